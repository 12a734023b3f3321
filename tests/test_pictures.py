from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from chmnet import arrays, pictures
from chmnet.errors import InputError
from chmnet.pictures import PictureLike, to_picture, to_rgb, to_tensor


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
