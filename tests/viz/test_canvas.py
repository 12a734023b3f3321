import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz.canvas import (
    COLOURS,
    CORNERS,
    SMOOTH_PIXELS,
    Canvas,
    _to_oklab,
    contrast,
    map_colours,
    position_colours,
    rgb,
)

BLACK = (0, 0, 0)


def white(width: int = 60, height: int = 40) -> Canvas:
    return Canvas(Image.new("RGB", (width, height), "white"))


def darkness(canvas: Canvas) -> np.ndarray:
    return 255 - np.asarray(canvas.picture().convert("L")).astype(int)


def test_nothing_drawn_changes_nothing() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (31, 47, 3), dtype=np.uint8))
    canvas = Canvas(noise)
    assert canvas.picture() == noise
    canvas.disc((5, 5), 2, BLACK)
    assert (np.asarray(canvas.picture())[:, 10:] == np.asarray(noise)[:, 10:]).all()


def test_marks_lie_around_their_centre() -> None:
    for mark in (
        lambda canvas: canvas.disc((30, 20), 6, BLACK),
        lambda canvas: canvas.ring((30, 20), 6, BLACK, 2),
        lambda canvas: canvas.cross((30, 20), 6, BLACK, 2),
    ):
        canvas = white()
        mark(canvas)
        rows, columns = np.nonzero(darkness(canvas) > 20)
        assert (columns.min() + columns.max() + 1) / 2 == pytest.approx(30, abs=0.6)
        assert (rows.min() + rows.max() + 1) / 2 == pytest.approx(20, abs=0.6)
        assert columns.max() - columns.min() == pytest.approx(12, abs=2)


def test_lines_have_width_opacity_dashes_and_halo() -> None:
    thin, thick, faint, dashed = white(), white(), white(), white()
    thin.line((5, 20), (55, 20), BLACK, 2)
    thick.line((5, 20), (55, 20), BLACK, 6)
    faint.line((5, 20), (55, 20), BLACK, 2, opacity=0.5)
    dashed.line((5, 20), (55, 20), BLACK, 2, dashed=True)
    inks = [darkness(canvas).sum() for canvas in (thin, thick, faint, dashed)]
    assert inks[1] == pytest.approx(3 * inks[0], rel=0.15)
    assert inks[2] == pytest.approx(inks[0] / 2, rel=0.05)
    assert inks[3] == pytest.approx(inks[0] / 2, rel=0.2)
    on_black = Canvas(Image.new("RGB", (60, 40)))
    on_black.line((5, 20), (55, 20), BLACK, 2, halo=2)
    assert 255 in np.asarray(on_black.picture())


def test_letters_change_with_what_is_written() -> None:
    one, two, hollow = white(), white(), white()
    one.numbered((30, 20), "1", "#000000", 12)
    two.numbered((30, 20), "2", "#000000", 12)
    hollow.numbered((30, 20), "1", "#000000", 12, hollow=True)
    assert one.picture() != two.picture()
    assert darkness(hollow).sum() < 0.6 * darkness(one).sum()


def test_large_pictures_are_drawn_on_as_they_are() -> None:
    assert white().factor == 3
    side = int(SMOOTH_PIXELS**0.5) + 1
    assert white(side, side).factor == 1


def test_places_must_be_numbers() -> None:
    with pytest.raises(InputError, match=r"finite numbers, got \[nan, 1.0\]"):
        white().disc((float("nan"), 1.0), 2, BLACK)


def test_drawings_need_no_matplotlib() -> None:
    code = """
import sys, numpy as np
from PIL import Image
from chmnet.viz import draw_keypoints, draw_matches
grey, one = Image.new("RGB", (60, 40), "grey"), np.array([[9.0, 9.0]])
draw_matches(grey, grey, one, one)
draw_keypoints(grey, one)
assert "matplotlib" not in sys.modules
from chmnet.viz import plot_pck
assert "matplotlib" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# ---------------------------------------------------------------- colours

# How people without red, green or blue cones see linear colours (Machado, Oliveira and Fernandes 2009).
BLINDNESS = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def seen(colours: np.ndarray, kind: str) -> np.ndarray:
    """Oklab of colours 0 … 255 as people with a kind of colour blindness see them."""
    linear = np.where(colours / 255 <= 0.04045, colours / 255 / 12.92, ((colours / 255 + 0.055) / 1.055) ** 2.4)
    changed = np.clip(linear @ np.array(BLINDNESS[kind]).T, 0, 1)
    return _to_oklab(np.where(changed <= 0.0031308, 12.92 * changed, 1.055 * changed ** (1 / 2.4) - 0.055))


def smallest_distance(colours: np.ndarray) -> float:
    distances = np.linalg.norm(colours[:, None] - colours, axis=-1)
    return float(distances[~np.eye(len(colours), dtype=bool)].min())


@pytest.mark.parametrize("kind", BLINDNESS)
def test_colours_are_told_apart_by_all(kind: str) -> None:
    first_five = np.array([rgb(name) for name in COLOURS[:5]])
    assert smallest_distance(seen(first_five, kind)) > 0.06
    corners = np.array([rgb(name) for name in CORNERS])
    assert smallest_distance(seen(corners, kind)) > 0.12


def test_equal_steps_of_place_look_alike() -> None:
    line = np.linspace(0, 1, 11)
    for fixed in (0.0, 0.5, 1.0):
        for places in (np.stack([line, line * 0 + fixed], 1), np.stack([line * 0 + fixed, line], 1)):
            steps = np.linalg.norm(np.diff(_to_oklab(position_colours(places) / 255), axis=0), axis=1)
            assert steps.max() < 1.6 * steps.min()


def test_places_outside_take_the_nearest_colour() -> None:
    assert position_colours(np.array([[-3.0, -1.0]])).tolist() == [list(rgb(CORNERS[0]))]
    assert map_colours(np.array([-1.0, 2.0])).tolist() == map_colours(np.array([0.0, 1.0])).tolist()


@pytest.mark.parametrize("name", COLOURS)
def test_letters_on_marks_can_be_read(name: str) -> None:
    def luminance(colour: tuple[int, int, int]) -> float:
        values = np.array(colour) / 255
        linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted([luminance(rgb(name)), luminance(contrast(name))], reverse=True)
    assert (light + 0.05) / (dark + 0.05) > 3  # what the accessibility guidelines ask of large letters
