import numpy as np
import pytest
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz import draw_inside_matches, draw_matches, draw_scales, draw_top_matches
from chmnet.viz.canvas import PAPER, colour, position_colours, rgb, sizes
from chmnet.viz.matches import SCALES_MARGIN
from chmnet.viz.panels import panels

SIZES = [(300, 200), (50, 400), (4000, 3000), (5000, 1), (1, 5000), (1, 1)]


def grey(width: int, height: int) -> Image.Image:
    return Image.new("RGB", (width, height), (120, 120, 120))


def at(drawing: Image.Image, place: np.ndarray) -> tuple[int, ...]:
    """The pixel around a place."""
    x, y = np.floor(place).astype(int).tolist()
    pixel = drawing.getpixel((x, y))
    assert isinstance(pixel, tuple)
    return pixel


@pytest.mark.parametrize("source", SIZES)
@pytest.mark.parametrize("target", SIZES)
def test_points_land_in_pictures_of_any_size(source: tuple[int, int], target: tuple[int, int]) -> None:
    pictures = grey(*source), grey(*target)
    start, end = np.array(source) * [[0.0, 0.5]], np.array(target) * [[1.0, 0.5]]
    drawing = draw_matches(*pictures, start, end, side=240)
    assert drawing.width <= 2 * (240 + 4 * sizes(240).radius)
    assert drawing.height <= 240 + 4 * sizes(240).radius
    row = panels(pictures, 240)
    above = np.array([0, -0.85 * sizes(240).radius])  # inside of the mark, outside of the number
    for place in (row.on(0, start)[0], row.on(1, end)[0]):
        assert at(drawing, place + above) == rgb(colour(0))


def test_lines_join_the_marks() -> None:
    picture = grey(100, 100)
    points = np.array([[50.0, 50.0]])
    drawing = draw_matches(picture, picture, points, points, side=200)
    row = panels([picture, picture], 200)
    middle = (row.on(0, points)[0] + row.on(1, points)[0]) / 2
    column = np.asarray(drawing)[:, int(middle[0])].astype(int)
    blue = np.flatnonzero(np.abs(column - rgb(colour(0))).sum(-1) < 120)
    assert blue.mean() + 0.5 == pytest.approx(middle[1], abs=1.5)
    assert len(blue) <= 3


def test_doubtful_matches_are_hollow_and_dashed() -> None:
    picture = grey(100, 100)
    points = np.array([[50.0, 25.0], [50.0, 75.0]])
    drawing = draw_matches(picture, picture, points, points, side=240, confidence=np.array([0.9, 0.1]))
    row = panels([picture, picture], 240)
    inside = np.array([0, -0.6 * sizes(240).radius])
    sure, doubtful = row.on(0, points)
    assert at(drawing, sure + inside) == rgb(colour(0))
    assert at(drawing, doubtful + inside) == PAPER
    lines = [
        np.asarray(drawing)[int(y), int(sure[0]) + 20 : int(row.on(1, points)[0, 0]) - 20]
        for y in (sure[1], doubtful[1])
    ]
    changes = [int((np.abs(np.diff(line.astype(int), axis=0)).sum(-1) > 60).sum()) for line in lines]
    assert changes[0] <= 4  # frames and margin
    assert changes[1] > 10
    assert drawing.height > row.picture.height  # the legend
    certain = draw_matches(picture, picture, points, points, side=240, confidence=np.array([0.9, 0.8]))
    assert certain.size == row.picture.size


def test_surer_matches_have_stronger_lines() -> None:
    picture = grey(100, 100)
    points = np.array([[50.0, 25.0], [50.0, 75.0]])
    drawing = draw_matches(picture, picture, points, points, side=480, confidence=np.array([1.0, 0.5]))
    row = panels([picture, picture], 480)
    pixels, x = np.asarray(drawing).astype(int), row.boxes[0][2] - 40
    inks = [np.abs(pixels[int(y) - 6 : int(y) + 7, x] - 120).sum() for y in row.on(0, points)[:, 1]]
    assert inks[0] > inks[1]


def test_top_matches_have_the_colour_of_their_place() -> None:
    picture = grey(80, 60)
    corners = np.array([[0, 0], [80, 0], [0, 60], [80, 60]], dtype=np.float64)
    drawing = draw_top_matches(picture, picture, corners, corners[::-1].copy(), side=240)
    row = panels([picture, picture], 240)
    expected = position_colours(np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=np.float64))
    for place, other, shade in zip(row.on(0, corners), row.on(1, corners[::-1]), expected.tolist(), strict=True):
        assert at(drawing, place) == tuple(shade)
        assert at(drawing, other) == tuple(shade)


def test_the_surest_match_is_on_top() -> None:
    picture = grey(10, 10)
    source, target = np.array([[0.0, 0.0], [10.0, 10.0]]), np.array([[5.0, 5.0], [5.0, 5.0]])
    drawing = draw_top_matches(picture, picture, source, target, side=120)
    place = panels([picture, picture], 120).on(1, target)[0]
    assert at(drawing, place) == tuple(position_colours(np.array([[0.0, 0.0]]))[0])


def test_matches_inside_are_blue_and_strays_are_not() -> None:
    picture = grey(80, 60)
    points = np.array([[20.0, 15.0], [60.0, 45.0]])
    drawing = draw_inside_matches(picture, picture, points, points, np.array([True, False]), side=240)
    row = panels([picture, picture], 240)
    assert drawing.size == row.picture.size
    for side in (0, 1):
        for number, place in enumerate(row.on(side, points)):
            assert at(drawing, place) == rgb(colour(number))
    middle = int((row.on(0, points)[0, 0] + row.on(1, points)[0, 0]) / 2)
    for number, y in enumerate(row.on(0, points)[:, 1].astype(int)):
        tinted = np.asarray(drawing)[y - 1 : y + 2, middle].astype(int) - row.picture.getpixel((middle, int(y)))
        towards = np.array(rgb(colour(number))) - row.picture.getpixel((middle, int(y)))
        assert (tinted @ towards).max() > 0.2 * towards @ towards  # a thin line of its colour joins the two


def test_strays_never_hide_matches_inside() -> None:
    picture, same = grey(60, 60), np.full((3, 2), 30.0)
    place = panels([picture, picture], 120).on(0, same)[0]
    for inside in ([True, False, False], [False, True, False], [False, False, True]):
        drawing = draw_inside_matches(picture, picture, same, same, np.array(inside), side=120)
        assert at(drawing, place) == rgb(colour(0))
    strays = draw_inside_matches(picture, picture, same, same, np.zeros(3, dtype=bool), side=120)
    assert at(strays, place) == rgb(colour(1))
    none = np.zeros((0, 2))
    untouched = draw_inside_matches(picture, picture, none, none, np.zeros(0, dtype=bool), side=120)
    assert untouched == panels([picture, picture], 120).picture


def test_one_match_alone_or_none() -> None:
    picture, one, none = grey(10, 10), np.array([[5.0, 5.0]]), np.zeros((0, 2))
    assert draw_top_matches(picture, picture, one, one, side=60) != draw_top_matches(
        picture, picture, none, none, side=60
    )
    untouched = panels([picture, picture], 60).picture
    assert draw_matches(picture, picture, none, none, side=60) == untouched


def test_scales_are_sizes_of_circles() -> None:
    picture = grey(100, 100)
    points = np.array([[20.0, 50.0], [50.0, 50.0], [80.0, 50.0]])
    scales = np.array([[0.7, 1.4], [1.0, 1.0], [1.4, 0.7]])
    drawing = draw_scales(picture, picture, points, points, scales, side=480)
    row = panels([picture, picture], 480, SCALES_MARGIN)
    widths = []
    for places in (row.on(0, points), row.on(1, points)):
        for number, (x, y) in enumerate(places):
            line = np.asarray(drawing)[int(y), int(x) - 45 : int(x) + 46].astype(int)
            ring = np.flatnonzero(np.abs(line - rgb(colour(number))).sum(-1) < 60)
            widths.append(int(ring.max() - ring.min()))
            assert (ring.max() + ring.min()) / 2 == pytest.approx(45, abs=1.5)
    assert widths[0] < widths[1] < widths[2]
    assert widths[3:] == pytest.approx(widths[2::-1], abs=2)


def test_numbers_that_do_not_fit_together() -> None:
    picture, two = grey(9, 9), np.zeros((2, 2))
    with pytest.raises(InputError, match="each source point needs one row of the rest, got 2 and 1"):
        draw_matches(picture, picture, two, two[:1])
    with pytest.raises(InputError, match="one confidence, got 1 for 2 points"):
        draw_matches(picture, picture, two, two, confidence=np.ones(1))
    with pytest.raises(InputError, match="one label, got 3 for 2 points"):
        draw_matches(picture, picture, two, two, labels=["a", "b", "c"])
    with pytest.raises(InputError, match="got 2 and 1"):
        draw_inside_matches(picture, picture, two, two[:1], np.ones(2, dtype=bool))
    with pytest.raises(InputError, match="got 2 and 1"):
        draw_inside_matches(picture, picture, two, two, np.ones(1, dtype=bool))
    with pytest.raises(InputError, match="points to draw must be finite"):
        draw_inside_matches(picture, picture, np.array([[np.inf, 1.0]]), two[:1], np.ones(1, dtype=bool))
    with pytest.raises(InputError, match="points to draw must be finite"):
        draw_matches(picture, picture, np.array([[np.nan, 1.0]]), two[:1])


def test_points_far_outside_do_no_harm() -> None:
    picture = grey(9, 9)
    far = np.array([[1e30, -1e30]])
    drawing = draw_matches(picture, picture, far, far, side=60)
    assert drawing.size == panels([picture, picture], 60).picture.size


def test_a_confidence_that_is_no_number_is_doubtful() -> None:
    picture, one = grey(9, 9), np.array([[4.0, 4.0]])
    unknown = draw_matches(picture, picture, one, one, side=60, confidence=np.array([np.nan]))
    assert unknown == draw_matches(picture, picture, one, one, side=60, confidence=np.array([0.0]))


def test_a_group_has_one_colour() -> None:
    places = np.array([[20.0, 40.0], [60.0, 40.0], [100.0, 40.0]])
    pictures = grey(120, 80), grey(120, 80)
    drawing = draw_matches(*pictures, places, places, side=240, groups=[2, 0, 2])
    above = np.array([0, -0.85 * sizes(240).radius])
    shades = [at(drawing, place + above) for place in panels(pictures, 240).on(0, places)]
    assert shades == [rgb(colour(number)) for number in (2, 0, 2)]
    with pytest.raises(InputError, match="one group, got 1 for 3 points"):
        draw_matches(*pictures, places, places, groups=[0])
