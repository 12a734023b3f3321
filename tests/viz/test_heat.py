import numpy as np
import pytest
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz import draw_confidence, draw_heat
from chmnet.viz.heat import colour_bar, enlarge_map
from chmnet.viz.panels import panels
from chmnet.viz.style import FRAME, INK, map_colours

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
