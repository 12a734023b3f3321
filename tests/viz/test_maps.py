import numpy as np
import pytest
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz import blend, checkerboard, draw_confidence, draw_heat, draw_warp
from chmnet.viz.canvas import FRAME, INK, map_colours
from chmnet.viz.maps import colour_bar, enlarge_map
from chmnet.viz.panels import panels

SIZES = [(300, 200), (4000, 3000), (5000, 1), (1, 5000), (1, 1)]


def nearest_value(pixel: np.ndarray, opacity: float, pale: float) -> float:
    """Which value of the colour map gave a pixel of a heat map, over a pale grey."""
    table = opacity * map_colours(np.linspace(0, 1, 101)).astype(float) + (1 - opacity) * pale
    return float(np.abs(table - pixel).sum(-1).argmin() / 100)


@pytest.mark.parametrize("size", SIZES)
def test_confidence_lies_where_it_belongs(size: tuple[int, int]) -> None:
    picture = Image.new("RGB", size, "white")
    drawing = np.asarray(draw_confidence(picture, np.array([[0.0, 1.0], [0.0, 0.0]]), side=240)).astype(float)
    row = panels([picture], 240)
    left, top, right, bottom = row.boxes[0]
    shift = (drawing.shape[1] - row.picture.width) // 2  # narrow pictures stand in the middle above the bar
    corners = [(y, x + shift) for y in (top, bottom - 1) for x in (left, right - 1)]
    values = [nearest_value(drawing[place], 0.6, 255) for place in corners]
    assert values == pytest.approx([0, 1, 0, 0], abs=0.1)


@pytest.mark.parametrize("size", SIZES)
def test_heat_lies_on_the_target_only(size: tuple[int, int]) -> None:
    source, target = Image.new("RGB", (90, 60), (9, 99, 9)), Image.new("RGB", size, (120, 120, 120))
    heat = np.zeros((5, 7))
    heat[2, 6] = 0.3  # the middle of the right border
    drawing = np.asarray(draw_heat(source, target, np.array([45.0, 30.0]), heat, side=240)).astype(int)
    boxes = panels([source, target], 240).boxes
    left, top, right, bottom = boxes[1]
    pale = round(255 - 0.7 * 135)
    assert drawing[top + 1, left + 1].tolist() == pytest.approx([pale] * 3, abs=3)  # nothing there
    middle = drawing[(top + bottom) // 2]
    assert nearest_value(middle[right - 1], 0.9, pale) == pytest.approx(1, abs=0.2)
    assert drawing[boxes[0][1] + 1, boxes[0][0] + 1].tolist() == [9, 99, 9]


def test_point_and_find_are_marked() -> None:
    picture, heat = Image.new("RGB", (100, 100), (120, 120, 120)), np.zeros((4, 4))
    place = np.array([50.0, 50.0])
    without = np.asarray(draw_heat(picture, picture, place, heat, side=200)).astype(int)
    marked = np.asarray(draw_heat(picture, picture, place, heat, found=place, side=200)).astype(int)
    rows, columns = np.nonzero((without != marked).any(-1))
    x, y = panels([picture, picture], 200).on(1, place)[0]
    assert (columns.min() + columns.max() + 1) / 2 == pytest.approx(x, abs=1)
    assert (rows.min() + rows.max() + 1) / 2 == pytest.approx(y, abs=1)
    left_x, left_y = panels([picture, picture], 200).on(0, place)[0].astype(int)
    assert without[left_y, left_x].tolist() != [120, 120, 120]


def test_bar_has_its_colours_and_numbers() -> None:
    bar = np.asarray(colour_bar(480, 0.5, "probability", 480))
    framed = (bar == FRAME).all(-1)
    rows = np.flatnonzero(framed.sum(1) > 100)  # the frame's upper and lower edge
    columns = np.flatnonzero(framed[rows[0]])
    middle = (rows.min() + rows.max()) // 2
    strip = bar[middle, columns.min() + 1 : columns.max()]
    assert strip.tolist() == map_colours(np.linspace(0, 1, len(strip))).tolist()
    below = bar[rows.max() + 6 :]
    assert (below.max(-1) < max(INK) + 60).any()


def test_enlarged_maps_keep_the_grid_at_the_border() -> None:
    values = np.arange(6.0).reshape(2, 3)
    enlarged = enlarge_map(values, 200, 300)
    assert enlarged.shape == (200, 300)
    assert enlarged[0, 0] == pytest.approx(0, abs=0.02)
    assert enlarged[-1, -1] == pytest.approx(5, abs=0.02)
    assert enlarged[0, 150] == pytest.approx(1, abs=0.02)
    assert (enlarge_map(np.array([[0.3]]), 4, 5) == 0.3).all()


def test_maps_that_cannot_be_drawn() -> None:
    picture = Image.new("RGB", (9, 9))
    with pytest.raises(InputError, match="at least one number, all of them finite"):
        draw_confidence(picture, np.array([[np.nan]]))
    with pytest.raises(InputError, match=r"got shape \[0, 3\]"):
        draw_heat(picture, picture, np.zeros(2), np.zeros((0, 3)))


# ---------------------------------------------------------------- warped pictures

RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 128, 0)


def test_blend_mixes_by_share() -> None:
    red, blue = Image.new("RGB", (3, 2), RED), Image.new("RGB", (3, 2), BLUE)
    assert blend(red, blue, 1.0) == red
    assert blend(red, blue, 0.0) == blue
    assert blend(red, blue, 0.4).getpixel((2, 1)) == (102, 0, 153)


@pytest.mark.parametrize("size", [(80, 40), (40, 80), (5000, 1), (1, 5000), (3, 3), (1, 1)])
def test_checkerboard_takes_turns(size: tuple[int, int]) -> None:
    board = np.asarray(checkerboard(Image.new("RGB", size, RED), Image.new("RGB", size, BLUE), squares=8))
    red = (board == RED).all(-1)
    assert red[0, 0]
    along = red[0] if size[0] >= size[1] else red[:, 0]
    assert int((along[1:] != along[:-1]).sum()) == min(8, max(size)) - 1
    assert (red | (board == BLUE).all(-1)).all()
    if size == (80, 40):
        assert red[5, 5]
        assert not red[5, 15]
        assert not red[15, 5]
        assert red[15, 15]


def test_sheet_shows_all_five() -> None:
    source, warped, target = (Image.new("RGB", (200, 200), colour) for colour in (GREEN, RED, BLUE))
    sheet = np.asarray(draw_warp(source, warped, target, side=200))
    areas = {
        name: int((sheet == colour).all(-1).sum()) for name, colour in (("s", GREEN), ("w", RED), ("t", BLUE))
    }
    assert areas["s"] == 200 * 200
    assert areas["w"] == 1.5 * 200 * 200  # its own picture and half the checkerboard
    assert areas["t"] == 1.5 * 200 * 200
    assert int((np.abs(sheet.astype(int) - [127, 0, 127]).max(-1) <= 1).sum()) == 200 * 200


def test_warps_that_cannot_be_drawn() -> None:
    small, large = Image.new("RGB", (3, 2)), Image.new("RGB", (30, 20))
    with pytest.raises(InputError, match="must have the target's 30×20 pixels, got 3×2"):
        draw_warp(small, small, large)
    with pytest.raises(InputError, match="from 0 to 1, got 2"):
        blend(small, small, 2)
    with pytest.raises(InputError, match="at least one square, got 0"):
        checkerboard(small, small, squares=0)
