import numpy as np
import pytest
from PIL import Image

from chmnet.viz import draw_matches


@pytest.mark.parametrize("size", [(300, 200), (50, 400), (2000, 10), (1, 1)])
def test_drawing_is_bounded_and_has_the_points(size: tuple[int, int]) -> None:
    picture = Image.new("RGB", size, "white")
    centre = np.array([[size[0] / 2, size[1] / 2]])
    drawing = draw_matches(picture, picture, centre, centre, side=200)
    assert drawing.width <= 2 * 200 + 10
    assert drawing.height <= 200
    assert (np.asarray(drawing) != 255).any()


def test_points_land_where_they_should() -> None:
    picture = Image.new("RGB", (100, 100), "black")
    drawing = draw_matches(picture, picture, np.array([[25.0, 50.0]]), np.array([[75.0, 50.0]]), side=400)
    coloured = np.argwhere(np.asarray(drawing)[200].max(-1) > 100).flatten()
    assert coloured.min() == pytest.approx(100, abs=10)  # left mark at a quarter of the left picture
    assert coloured.max() == pytest.approx(400 + 10 + 300, abs=10)  # right mark at three quarters of the right


def test_nothing_to_draw_leaves_the_pictures() -> None:
    picture = Image.new("RGB", (40, 40), "red")
    drawing = draw_matches(picture, picture, np.zeros((0, 2)), np.zeros((0, 2)), side=40)
    assert drawing.getpixel((5, 5)) == drawing.getpixel((drawing.width - 5, 5)) == (255, 0, 0)
