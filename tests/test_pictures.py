import math
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from chmnet import arrays, pictures
from chmnet.errors import InputError
from chmnet.pictures import Picture, PictureLike, View, to_picture, to_rgb, to_tensor


def save(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def test_rotated_by_exif_is_seen_upright(tmp_path: Path) -> None:
    image = Image.new("RGB", (40, 20), "white")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show a quarter turn clockwise
    path = save(image, tmp_path / "turned.jpg", exif=exif)
    assert to_picture(path).size == (20, 40)


def test_sixteen_bits_are_scaled_not_cut(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None]
    path = save(Image.fromarray(ramp), tmp_path / "deep.png")
    values = np.asarray(to_picture(path))[0, :, 0]
    assert np.abs(values.astype(int) - np.arange(256)).max() <= 1


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    assert (
        to_rgb(Image.new("RGB", (5, 4), "red").convert("L" if mode in "IF" else "RGB").convert(mode)).mode == "RGB"
    )


def test_transparent_parts_are_white(tmp_path: Path) -> None:
    path = save(Image.new("RGBA", (3, 3), (255, 0, 0, 0)), tmp_path / "clear.png")
    assert to_picture(path).getpixel((1, 1)) == (255, 255, 255)


def test_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("blue", "red")]
    path = tmp_path / "moving.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert to_picture(path).getpixel((0, 0)) == (0, 0, 255)


@pytest.mark.parametrize("size", [(1, 1), (1, 5000)])
def test_odd_sizes(size: tuple[int, int], tmp_path: Path) -> None:
    picture = to_picture(save(Image.new("RGB", size, "green"), tmp_path / "ünïcode.png"))
    assert to_tensor(picture, (32, 48)).shape == (3, 32, 48)


def test_truncated(tmp_path: Path) -> None:
    whole = save(Image.effect_noise((200, 200), 50).convert("RGB"), tmp_path / "whole.jpg")
    half = tmp_path / "half.jpg"
    half.write_bytes(whole.read_bytes()[:2000])
    with pytest.raises(InputError, match="cannot be read as a picture"):
        to_picture(half)


def test_not_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "notes.png"
    path.write_text("hello")
    with pytest.raises(InputError, match="not a picture"):
        to_picture(path)


def test_missing_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no picture"):
        to_picture(tmp_path / "none.png")
    with pytest.raises(InputError, match="is a folder"):
        to_picture(tmp_path)


def test_too_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(Image.new("RGB", (300, 200)), tmp_path / "large.png")
    monkeypatch.setattr(pictures, "MAX_PIXELS", 10_000)
    with pytest.raises(InputError, match="make it smaller"):
        to_picture(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Pillow's own limit is reached first
    with pytest.raises(InputError, match="make it smaller"):
        to_picture(path)


def test_tensor_is_rgb_from_0_to_1() -> None:
    tensor = to_tensor(Image.new("RGB", (10, 10), (255, 0, 51)), (2, 3))
    assert tensor[:, 1, 2].tolist() == pytest.approx([1.0, 0.0, 0.2])


# ---------------------------------------------------------------- arrays and tensors

RED = np.zeros((4, 6, 3), dtype=np.uint8)
RED[..., 0] = 255


@pytest.mark.parametrize(
    "picture",
    [
        RED,
        RED.astype(np.uint16) * 257,
        RED.astype(np.float32) / 255,
        RED.astype(np.float16) / 255,
        RED > 0,
        np.dstack([RED, np.full((4, 6), 255, dtype=np.uint8)]),
        np.asfortranarray(RED),
        torch.from_numpy(RED),
        torch.from_numpy(RED).permute(2, 0, 1),
        torch.from_numpy(RED).permute(2, 0, 1)[None] / 255,
        (torch.from_numpy(RED) / 255).to(torch.bfloat16),
        (torch.from_numpy(RED) / 255).double().requires_grad_(),
        Image.fromarray(RED),
    ],
)
def test_colour_pictures_of_every_kind(picture: PictureLike) -> None:
    converted = to_picture(picture)
    assert converted.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(converted), RED)


@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 1)])
def test_grey_pictures_of_every_kind(shape: tuple[int, ...]) -> None:
    for values in (np.full(shape, 51, np.uint8), np.full(shape, 51 * 257, np.uint16), np.full(shape, 0.2)):
        assert to_picture(values).getpixel((5, 3)) == (51, 51, 51)
        assert to_picture(torch.from_numpy(values)).getpixel((5, 3)) == (51, 51, 51)
    assert to_picture(torch.full((1, 1, 4, 6), 0.2)).getpixel((5, 3)) == (51, 51, 51)


def test_transparent_arrays_are_white() -> None:
    assert to_picture(np.zeros((2, 2, 4))).getpixel((0, 0)) == (255, 255, 255)


def test_values_a_little_out_of_range_are_clipped() -> None:
    assert to_picture(np.full((2, 2), 1.0005)).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        (np.full((2, 2), np.nan), "NaN"),
        (np.array([[0.5, np.inf]]), "infinity"),
        (torch.full((3, 2, 2), torch.nan), "NaN"),
        (torch.full((3, 2, 2), -torch.inf), "infinity"),
        (np.full((2, 2), 255.0), "from 0 to 1"),
        (torch.full((3, 2, 2), -0.5), "from 0 to 1"),
        (np.zeros((2, 2), dtype=np.int64), "int64"),
        (np.zeros((2, 2), dtype=complex), "complex"),
        (np.zeros((2, 2), dtype="U3"), "<U3"),
        (np.zeros((3, 20, 30), dtype=np.uint8), "move its channels to the end"),
        (np.zeros((20, 30, 2), dtype=np.uint8), "H W 3"),
        (np.zeros(5, dtype=np.uint8), "H W 3"),
        (np.zeros((0, 5), dtype=np.uint8), "at least one pixel"),
        (torch.zeros(2, 3, 4, 4), "3 H W"),
        (torch.zeros(4), "3 H W"),
        (torch.zeros(3, 0, 4), "at least one pixel"),
        (Image.new("RGB", (0, 3)), "at least one pixel, got 0×3"),
    ],
)
def test_arrays_that_are_no_pictures(picture: PictureLike, words: str) -> None:
    with pytest.raises(InputError, match=words):
        to_picture(picture)


def test_truncated_pil_image_is_one_sentence(tmp_path: Path) -> None:
    whole = save(Image.effect_noise((200, 200), 50).convert("RGB"), tmp_path / "whole.jpg")
    half = tmp_path / "half.jpg"
    half.write_bytes(whole.read_bytes()[:2000])
    with Image.open(half) as image, pytest.raises(InputError, match="the picture cannot be read"):
        to_picture(image)


def test_strips_together_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).random((37, 11))
    whole = np.asarray(to_picture(values))
    monkeypatch.setattr(arrays, "_STRIP_VALUES", 20)
    np.testing.assert_array_equal(np.asarray(to_picture(values)), whole)


# ---------------------------------------------------------------- pictures and views


def test_size_reads_the_header_only(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    noise = Image.effect_noise((60, 40), 50).convert("RGB")
    for name, options, size in (
        ("a.jpg", {}, (40, 60)),
        ("b.jpg", {"exif": exif}, (60, 40)),
        ("c.png", {}, (40, 60)),
    ):
        path = save(noise, tmp_path / name, **options)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        picture = Picture(path)
        assert picture.size == Picture(path.read_bytes()).size == size
        with pytest.raises(InputError, match="cannot be read") as error:
            picture.image  # noqa: B018 (decoding is what is tested)
        assert error.value.reason == "broken-picture"


def test_orientation_behind_the_pixels_of_a_png_counts(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(Image.new("RGB", (6, 4)), tmp_path / "late.png")
    data, content = exif.tobytes()[6:], path.read_bytes()
    chunk = len(data).to_bytes(4, "big") + b"eXIf" + data
    chunk += zlib.crc32(b"eXIf" + data).to_bytes(4, "big")
    path.write_bytes(content[:-12] + chunk + content[-12:])
    assert Picture(path).size == (6, 4)
    assert Picture(path).image.size == (4, 6)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("none.png", "no-such-file"),
        (".", "no-such-file"),
        ("notes.png", "not-a-picture"),
        ("large.png", "too-large"),
    ],
)
def test_errors_say_their_reason(
    source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.png").write_text("hello")
    save(Image.new("RGB", (300, 200)), tmp_path / "large.png")
    monkeypatch.setattr(pictures, "MAX_PIXELS", 10_000)
    with pytest.raises(InputError) as error:
        to_picture(tmp_path / source)
    assert error.value.reason == reason


def test_pictures_are_equal_by_content_and_files_by_their_state(tmp_path: Path) -> None:
    path = save(Image.new("RGB", (6, 4), "red"), tmp_path / "a.png")
    assert Picture(path) == Picture(str(path))
    assert Picture(RED) == Picture(RED.copy()) != Picture(RED[:, :5])
    assert len({View.of(RED), View.of(RED.copy()), View(Picture(RED), mirrored=True)}) == 2


def test_forgotten_pixels_are_read_again(tmp_path: Path) -> None:
    picture = Picture(save(Image.new("RGB", (6, 4), "red"), tmp_path / "a.png"))
    first = picture.image
    assert picture.image is first
    picture.forget()
    assert picture.image is not first
    assert picture.image.getpixel((0, 0)) == (255, 0, 0)
    array = Picture(RED)
    kept = array.image
    array.forget()
    assert array.image is kept


def test_a_picture_that_is_not_at_hand_has_a_size_only() -> None:
    picture = Picture(None, (3, 4))
    assert (picture.size, picture.at_hand) == ((3, 4), False)
    with pytest.raises(InputError, match="not at hand"):
        picture.image  # noqa: B018


@pytest.mark.parametrize("turn", [0, 90, 180, 270, 30, 45, 137.5, 359])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("area", [None, (4, 2, 16, 11)])
def test_points_move_with_the_pixels(turn: float, mirrored: bool, area: tuple[int, int, int, int] | None) -> None:
    """A single bright pixel is found where the view says that it is, and the way back is exact."""
    values = np.zeros((14, 20, 3), dtype=np.uint8)
    row, column = 7, 9
    values[row, column] = 255
    view = View(Picture(values), area, mirrored, turn)
    seen = np.asarray(view.image())[..., 0]
    assert seen.shape == view.size
    middle = np.array([[column + 0.5, row + 0.5]])
    normalised = view.from_picture(middle)
    height, width = view.size
    np.testing.assert_allclose(
        (normalised + 1) / 2 * (width, height), [centre_of_light(seen)], atol=0.5 if turn % 90 else 1e-9
    )
    np.testing.assert_allclose(view.to_picture(normalised), middle)
    points = torch.rand(5, 2, dtype=torch.float64)
    torch.testing.assert_close(view.from_picture(view.to_picture(points)), points)


def centre_of_light(seen: np.ndarray) -> np.ndarray:
    """(x, y) of what is brighter than half of the brightest, in pixels."""
    light = np.where(seen > seen.max() / 2, seen.astype(float), 0)
    rows, columns = np.indices(seen.shape)
    return np.array([(light * (columns + 0.5)).sum(), (light * (rows + 0.5)).sum()]) / light.sum()


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_points_and_pixels_of_any_view_agree(data: st.DataObject) -> None:
    """Any area, mirrored or not, any angle, any size: a dot is found within a pixel, points come back."""
    height, width = data.draw(st.integers(30, 90)), data.draw(st.integers(30, 90))
    left, top = data.draw(st.integers(0, width - 20)), data.draw(st.integers(0, height - 20))
    area = left, top, data.draw(st.integers(left + 16, width)), data.draw(st.integers(top + 16, height))
    column = data.draw(st.integers(area[0] + 3, area[2] - 4))
    row = data.draw(st.integers(area[1] + 3, area[3] - 4))
    values = np.zeros((height, width, 3), dtype=np.uint8)
    values[row - 1 : row + 2, column - 1 : column + 2] = 255
    turn = data.draw(st.one_of(st.integers(-720, 720), st.floats(-1e3, 1e3)))
    view = View(Picture(values), area, data.draw(st.booleans()), turn)
    if view.turn % 90 and data.draw(st.booleans()):
        view = replace(view, window=window_around(view, (column + 0.5, row + 0.5), data))
    assert 0 <= view.turn < 360
    dot = np.array([[column + 0.5, row + 0.5]])
    image = np.asarray(view.image())[..., 0]
    assert image.shape == view.size
    size = data.draw(st.integers(40, 120)), data.draw(st.integers(40, 120))
    tensor = view.tensor(size)
    assert tensor.shape == (3, *size)
    for seen in (image, tensor[0].numpy()):
        shown = (view.from_picture(dot)[0] + 1) / 2 * seen.shape[::-1]
        assert np.abs(shown - centre_of_light(seen)).max() < 1
    points = np.array(data.draw(st.lists(st.tuples(*[st.floats(-200, 200)] * 2), min_size=1, max_size=5)))
    np.testing.assert_allclose(view.to_picture(view.from_picture(points)), points, rtol=0, atol=1e-9)
    there = view.from_picture(torch.from_numpy(points))
    torch.testing.assert_close(there.numpy(), view.from_picture(points), rtol=0, atol=1e-12)
    single = view.to_picture(view.from_picture(torch.from_numpy(points).float()))
    torch.testing.assert_close(single, torch.from_numpy(points).float(), rtol=1e-4, atol=1e-3)
    assert single.dtype == torch.float32
    inside = view.to_picture(np.array([[-1.0, -1], [1, 1], [-1, 1]]), inside=True)
    assert (inside >= np.array(area[:2]) - 1e-9).all()
    assert (inside <= np.array(area[2:]) + 1e-9).all()


def window_around(view: View, dot: tuple[float, float], data: st.DataObject) -> tuple[int, int, int, int]:
    """Any part of the frame of a view that shows a place of the picture, and three pixels around it."""
    height, width = view.size
    x, y = (view.from_picture(np.array([dot]))[0] + 1) / 2 * (width, height)
    left, top = data.draw(st.integers(0, max(0, int(x) - 4))), data.draw(st.integers(0, max(0, int(y) - 4)))
    return (
        left,
        top,
        data.draw(st.integers(min(width, max(int(x) + 5, left + 12)), width)),
        data.draw(st.integers(min(height, max(int(y) + 5, top + 12)), height)),
    )


def test_a_window_is_what_is_cut_out_of_the_turned_picture() -> None:
    """At the same place and as large, and only there where a frame is."""
    smooth = Image.effect_noise((9, 12), 60).convert("RGB").resize((90, 120), Image.Resampling.BICUBIC)
    whole = View(Picture(smooth), (5, 10, 80, 110), mirrored=True, turn=200.7)
    part = replace(whole, window=(30, 20, 75, 90))
    assert part.size == (70, 45)
    cut = np.asarray(whole.image().crop((30, 20, 75, 90))).astype(int)
    assert np.abs(np.asarray(part.image()).astype(int) - cut).max() <= 1
    assert (part.tensor((140, 90)) - to_tensor(part.image(), (140, 90))).abs().mean() < 0.01
    beyond = np.array([[5.0, 10.0], [80.0, 110.0]])
    assert (np.abs(part.from_picture(beyond)) > 1).any(axis=1).all()
    assert (np.abs(part.from_picture(beyond, inside=True)) <= 1).all()


@pytest.mark.parametrize(
    ("turn", "window"),
    [
        (30, (0, 0, 9, 3)),
        (30, (-1, 0, 3, 3)),
        (30, (2, 0, 2, 3)),
        (90, (0, 0, 2, 2)),
        (30, (0, 0, 1.5, 2)),
        (30, 5),
    ],
)
def test_windows_that_are_none(turn: float, window: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would refuse some of them first
    with pytest.raises(InputError, match=r"window"):
        View(Picture(RED), turn=turn, window=window)


def test_a_frame_around_a_turned_area_has_its_mean_colour_beside_it() -> None:
    values = np.zeros((40, 60, 3), dtype=np.uint8)
    values[:, 20:] = (200, 100, 50)
    values[:, 40:] = (0, 100, 150)
    view = View(Picture(values), area=(20, 0, 60, 40), turn=45)
    assert view.size == (57, 57)
    assert view.image().getpixel((0, 0)) == (100, 100, 100)
    torch.testing.assert_close(view.tensor((20, 30))[:, 0, -1], torch.full((3,), 100 / 255))
    corners = view.from_picture(np.array([[20, 0], [60, 0], [20, 40], [60, 40]]))
    assert (np.abs(corners) <= 1).all()
    assert np.abs(corners).max() > 0.98


@pytest.mark.parametrize("turn", [20, 45.5, 200])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_turned_tensor_is_the_turned_picture_without_aliasing(turn: float, mirrored: bool) -> None:
    """Reduced before it is turned, it is what turning all pixels first would give."""
    generator = np.random.default_rng(0)
    smooth = Image.fromarray(generator.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize((1200, 900), 3)
    view = View(Picture(smooth), (100, 50, 1100, 850), mirrored, turn)
    miss = (view.tensor((60, 80)) - to_tensor(view.image(), (60, 80))).abs()
    assert miss.mean() < 0.003
    assert miss.max() < 0.08  # at the edge of the area
    stripes = np.zeros((900, 1200, 3), dtype=np.uint8)
    stripes[:, ::2] = 255  # finer than the answer can show: grey
    grey = View(Picture(stripes), None, mirrored, turn).tensor((60, 80))
    torch.testing.assert_close(grey, torch.full_like(grey, 0.5), rtol=0, atol=0.03)


def test_large_pictures_are_reduced_before_they_are_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    turned: list[tuple[int, int]] = []
    real = Image.Image.transform

    def transform(self: Image.Image, *arguments: Any, **options: Any) -> Image.Image:
        turned.append(self.size)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Image.Image, "transform", transform)
    View(Picture(Image.new("RGB", (4000, 3000))), turn=33).tensor((240, 240))
    View(Picture(Image.new("RGB", (50, 3))), turn=33).tensor((240, 240))
    assert max(turned[0]) < 1000
    assert turned[1] == (50, 3)


def test_a_frame_that_is_too_large_is_refused_and_its_tensor_is_not() -> None:
    view = View(Picture(Image.new("RGB", (40_000, 2))), turn=45)
    with pytest.raises(InputError, match="frame of 28"):
        view.image()
    assert view.tensor((30, 40)).shape == (3, 30, 40)


@pytest.mark.parametrize("turn", [math.nan, math.inf, -math.inf, True, False, "90", None, 10**400, 1j])
def test_angles_that_are_none(turn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would refuse some of them first
    with pytest.raises(InputError, match="finite number of degrees"):
        View(Picture(RED), turn=turn)


@pytest.mark.parametrize(
    ("turn", "kept"),
    [
        (0, 0),
        (-0.0, 0),
        (360, 0),
        (90.0, 90),
        (-90, 270),
        (450, 90),
        (-1e-20, 0),
        (-30, 330.0),
        (np.float32(1.5), 1.5),
    ],
)
def test_angles_are_from_0_to_360_and_quarter_turns_whole(turn: float, kept: float) -> None:
    view = View(Picture(RED), turn=float(turn) if isinstance(turn, np.floating) else turn)
    assert (view.turn, type(view.turn)) == (kept, type(kept))
    assert view == View(Picture(RED), turn=kept)


def test_a_view_around_a_box() -> None:
    picture = Picture(RED)
    assert View.around(picture, (1, 1, 3, 3)).area == (1, 1, 4, 4)
    assert View.around(picture, (1, 1, 3, 3), margin=5).area == (0, 0, 6, 4)
    with pytest.raises(InputError, match="outside"):
        View.around(picture, (30, 30, 40, 40))
    with pytest.raises(InputError, match="within"):
        View(picture, (0, 0, 7, 4))


def test_a_smaller_rendition_keeps_the_coordinates_of_the_whole_picture() -> None:
    large = Image.effect_noise((80, 40), 60).convert("RGB")
    small = Picture(large.resize((40, 20)), size=(40, 80))
    assert small.size == (40, 80)
    view = View(small, (20, 10, 60, 30))
    assert view.image().size == (20, 10)
    np.testing.assert_allclose(view.to_picture(np.array([[-1.0, 1.0]])), [[20, 30]])
    assert View(small, (79, 39, 80, 40)).image().size == (1, 1)  # half a pixel of the rendition
    turned = View(small, (20, 10, 60, 30), turn=90.001)
    assert turned.size == (41, 21)
    assert turned.image().size == (10, 20)
    whole = to_tensor(View(Picture(large), turned.area, turn=90).image(), (8, 4))
    torch.testing.assert_close(turned.tensor((8, 4)), whole, rtol=0, atol=0.1)


def test_names_that_the_system_refuses_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read|no picture") as error:
        to_picture(tmp_path / ("x" * 300 + ".png"))
    assert error.value.reason == "no-such-file"


def test_decoding_in_threads_leaves_the_warnings_alone(tmp_path: Path) -> None:
    path = save(Image.effect_noise((200, 200), 50).convert("RGB"), tmp_path / "noise.png")
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: to_picture(path), range(64)))
    assert list(warnings.filters) == before


@pytest.mark.parametrize("box", [5, (1, 2, 3), ("a", 0, 1, 2), None], ids=str)
def test_what_is_no_box(box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would refuse the box first
    with pytest.raises(InputError, match="must be left, top, right, bottom, got"):
        View.around(np.zeros((10, 10), dtype=np.uint8), box)


@pytest.mark.parametrize("box", [(0, 0, math.nan, 3), (0, -math.inf, 2, 3)])
def test_boxes_that_are_not_finite(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(InputError, match="finite"):
        View.around(RED, box)


def test_a_view_takes_what_a_picture_takes_and_nothing_is_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # it would refuse the path first
    path = save(Image.new("RGB", (6, 4), "red"), tmp_path / "a.png")
    assert View(path).size == (4, 6)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="NoneType"):
        Picture(None)
