import numpy as np
import pytest
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz import draw_errors, draw_keypoints
from chmnet.viz.canvas import PAPER, colour, rgb, sizes
from chmnet.viz.keypoints import MARGIN
from chmnet.viz.panels import panels

from .test_matches import at

GREY = Image.new("RGB", (100, 80), (128, 128, 128))


def marked(points: list, side: int = 400, **options: object) -> np.ndarray:
    return np.asarray(draw_keypoints(GREY, np.array(points, dtype=float), side=side, **options))


def test_sure_points_are_filled_and_doubtful_ones_hollow() -> None:
    drawn = marked([[25, 40], [75, 40]], sure=np.array([True, False]))
    assert drawn.shape == (320, 400, 3)
    # Just inside of the rims, beside the letters: the first has its colour there, the second is white.
    assert tuple(drawn[160 + 6, 100]) == rgb(colour(0))
    assert tuple(drawn[160 + 6, 300]) == PAPER


def test_points_without_a_place_keep_their_numbers_and_break_no_skeleton() -> None:
    nowhere = [np.nan, np.nan]
    drawn = marked([nowhere, [75, 40], nowhere], skeleton=[(1, 2), (2, 3)])
    assert tuple(drawn[160 + 6, 300]) == rgb(colour(1))
    assert (drawn[:, :250] == 128).all()


def test_skeleton_joins_points() -> None:
    drawn = marked([[25, 40], [75, 40]], skeleton=[(1, 2)])
    assert drawn[160, 200].min() > 200


def test_any_shape_of_picture() -> None:
    for size in ((1, 1), (1, 5000), (3000, 10)):
        picture = Image.new("RGB", size)
        assert max(draw_keypoints(picture, np.array([[0.5, 0.5]]), side=64).size) <= 64


def test_errors_have_circle_cross_and_line() -> None:
    picture = Image.new("RGB", (100, 100), (120, 120, 120))
    true, found = np.array([[25.0, 50.0]]), np.array([[75.0, 50.0]])
    drawing = draw_errors(picture, picture, true, found, true, side=240)
    row = panels([picture, picture], 240, MARGIN)
    circle, cross = row.on(1, true)[0], row.on(1, found)[0]
    assert at(drawing, cross) == rgb(colour(0))
    assert at(drawing, (circle + cross) / 2) == rgb(colour(0))
    assert at(drawing, circle - [0.9 * sizes(240).radius, 0]) == rgb(colour(0))
    assert at(drawing, circle - [0.4 * sizes(240).radius, 0]) == (120, 120, 120)
    assert at(drawing, row.on(0, true)[0] - [0.8 * sizes(240).radius, 0]) == rgb(colour(0))


@pytest.mark.parametrize("background", ["black", "white"])
def test_numbers_are_legible_on_black_and_white(background: str) -> None:
    picture, points = Image.new("RGB", (100, 100), background), np.array([[50.0, 50.0]])
    drawing = draw_errors(picture, picture, points, points, points, side=480)
    x, y = panels([picture, picture], 480, MARGIN).on(1, points)[0].astype(int)
    beside = np.asarray(drawing)[y - 20 : y - 10, x + 7 : x + 17]
    assert beside.max(-1).min() <= 60  # the number, on white
    assert beside.min(-1).max() >= 250  # its outline, on black


def test_each_point_needs_its_truth() -> None:
    two = np.zeros((2, 2))
    with pytest.raises(InputError, match="got 2 and 1"):
        draw_errors(GREY, GREY, two, two, two[:1])
