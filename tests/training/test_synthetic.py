"""Synthetic ground truth: warps, their inverses, and the pictures drawn through them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from chmnet.geometry import normalised_to_pixels
from chmnet.pictures import Picture
from chmnet.training.synthetic import Texture, Warp, WarpedView

SIZE = (96, 128)


def save_dot(path: Path, size: tuple[int, int], x: int, y: int) -> Path:
    """A black picture with a white square of 5 px around the middle of pixel (x, y)."""
    pixels = np.zeros((*size, 3), dtype=np.uint8)
    pixels[y - 2 : y + 3, x - 2 : x + 3] = 255
    Image.fromarray(pixels).save(path)
    return path


def centre_of_light(image: torch.Tensor) -> np.ndarray:
    """(x, y) of the mean of the bright pixels, measured from the picture's corner."""
    light = image.sum(0).numpy()
    y, x = np.mgrid[: light.shape[0], : light.shape[1]] + 0.5
    return np.array([(x * light).sum(), (y * light).sum()]) / light.sum()


@pytest.mark.parametrize("seed", range(5))
def test_inverse_is_exact_for_many_points(seed: int) -> None:
    warp = Warp(seed, rotation=45, zoom=1.5, bend=0.1)
    points = np.random.default_rng(seed).uniform(-1, 1, (500, 2))
    found, exact = warp.inverse(warp(points))
    assert exact.mean() > 0.95
    np.testing.assert_allclose(warp(found[exact]), warp(points)[exact], atol=1e-6)
    assert np.isfinite(found).all()


def test_points_that_no_view_shows_are_marked() -> None:
    found, exact = Warp(0).inverse(np.array([[50.0, 50.0], [0.0, 0.0], [-9.0, 0.0]]))
    assert exact.tolist() == [False, True, False]
    assert np.isfinite(found).all()


def test_a_warp_is_its_seed() -> None:
    points = np.random.default_rng(0).uniform(-1, 1, (4, 2))
    np.testing.assert_array_equal(Warp(7)(points), Warp(7)(points))
    assert np.abs(Warp(7)(points) - Warp(8)(points)).max() > 0.01


@pytest.mark.parametrize("seed", range(4))
def test_what_is_drawn_lies_where_the_warp_says(tmp_path: Path, seed: int) -> None:
    path = save_dot(tmp_path / "dot.png", (192, 256), x=120, y=100)
    view = WarpedView(Picture(path), Warp(seed, rotation=20, zoom=1.2, bend=0.05))
    at, exact = view.warp.inverse(np.array([[120.5 / 128 - 1, 100.5 / 96 - 1]]))
    assert exact.all()
    expected = normalised_to_pixels(at, SIZE)[0]
    np.testing.assert_allclose(centre_of_light(view.tensor(SIZE)), expected, atol=0.35)


def test_views_are_keys() -> None:
    one, same = WarpedView(Texture(1), Warp(2), 3), WarpedView(Texture(1), Warp(2), 3)
    assert one == same
    assert len({one, same, WarpedView(Texture(1), Warp(2), 4)}) == 2
    image = one.tensor((32, 32))
    assert image.min() >= 0
    assert image.max() <= 1
    assert image.std() > 0.05
