import numpy as np
from PIL import Image

from chmnet.viz.keypoints import draw_keypoints
from chmnet.viz.style import PAPER, colour, rgb

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
