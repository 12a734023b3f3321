import math

import numpy as np
import pytest
import torch

from chmnet.geometry import (
    grid_axis,
    grid_points,
    normalised_to_grid,
    normalised_to_pixels,
    pixels_to_normalised,
    rescale_points,
    turn_back,
    turn_points,
)
from chmnet.turning import turned_size

PIXELS = [[0.0, 0.0], [320.0, 240.0], [80.0, 60.0], [-10.0, 500.0]]
NORMALISED = [[-1.0, -1.0], [1.0, 1.0], [-0.5, -0.5], [-1.0625, 19 / 6]]
SIZE = (240, 320)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_pixels_and_normalised_points(dtype: torch.dtype) -> None:
    pixels, normalised = torch.tensor(PIXELS, dtype=dtype), torch.tensor(NORMALISED, dtype=dtype)
    torch.testing.assert_close(pixels_to_normalised(pixels, SIZE), normalised)
    torch.testing.assert_close(normalised_to_pixels(normalised, SIZE), pixels, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pixels_and_normalised_points_in_numpy(dtype: type) -> None:
    pixels, normalised = np.array(PIXELS, dtype=dtype), np.array(NORMALISED, dtype=dtype)
    converted, back = pixels_to_normalised(pixels, SIZE), normalised_to_pixels(normalised, SIZE)
    assert isinstance(converted, np.ndarray)
    assert converted.dtype == back.dtype == dtype
    np.testing.assert_allclose(converted, normalised, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(back, pixels, rtol=1e-6, atol=1e-4)


def test_whole_pixels() -> None:
    """Integers are converted, not cut off."""
    whole = [[80, 60], [1, 239]]
    expected = [[-0.5, -0.5], [-0.99375, 0.9916667]]
    torch.testing.assert_close(pixels_to_normalised(torch.tensor(whole), SIZE), torch.tensor(expected))
    np.testing.assert_allclose(pixels_to_normalised(np.array(whole), SIZE), expected, rtol=1e-6)
    assert rescale_points(torch.tensor([[3, 3]]), (240, 320), (120, 160)).tolist() == [[1.5, 1.5]]


def test_round_trips() -> None:
    points = 1000 * torch.rand(2, 50, 2, dtype=torch.float64) - 300
    for there, back in (
        (pixels_to_normalised, normalised_to_pixels),
        (normalised_to_pixels, pixels_to_normalised),
    ):
        torch.testing.assert_close(back(there(points, (97, 161)), (97, 161)), points)
        np.testing.assert_allclose(back(there(points.numpy(), (97, 161)), (97, 161)), points.numpy())
    rescaled = rescale_points(rescale_points(points, (97, 161), (50, 30)), (50, 30), (97, 161))
    torch.testing.assert_close(rescaled, points)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270, -90, 450, 33.0, 359.5])
def test_turned_points_are_those_of_a_rotation_in_pixels(degrees: float) -> None:
    size, points = (97, 161), 2 * torch.rand(50, 2, dtype=torch.float64) - 1
    turned = turn_points(points, degrees, size)
    frame = turned_size(size, degrees)
    offsets = normalised_to_pixels(points, size) - torch.tensor([161, 97]) / 2
    found = normalised_to_pixels(turned, frame) - torch.tensor(frame[::-1]) / 2
    angle = math.radians(degrees)
    x = math.cos(angle) * offsets[:, 0] + math.sin(angle) * offsets[:, 1]
    y = math.cos(angle) * offsets[:, 1] - math.sin(angle) * offsets[:, 0]
    torch.testing.assert_close(found, torch.stack([x, y], dim=-1))
    assert turned.abs().max() <= 1
    torch.testing.assert_close(turn_back(turned, degrees, size), points)
    np.testing.assert_allclose(turn_points(points.numpy(), degrees, size), turned)
    if degrees % 90 == 0:
        assert torch.equal(turn_back(turned, degrees), points)


def test_rescaling_keeps_normalised_points() -> None:
    points = torch.tensor([[10.0, 20.0], [300.0, 5.0]])
    rescaled = rescale_points(points, (240, 320), (480, 160))
    assert rescaled.tolist() == [[5.0, 40.0], [150.0, 10.0]]
    torch.testing.assert_close(
        pixels_to_normalised(rescaled, (480, 160)), pixels_to_normalised(points, (240, 320))
    )
    in_numpy = rescale_points(points.numpy(), (240, 320), (480, 160))
    np.testing.assert_allclose(in_numpy, rescaled.numpy())


def test_grid_coordinates() -> None:
    points = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]])
    assert normalised_to_grid(points, (5, 3)).tolist() == [[0.0, 0.0], [2.0, 4.0], [1.0, 3.0]]
    assert normalised_to_grid(points, (1, 1)).tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("size", [(3, 4), (1, 2), (5, 1), (30, 30)], ids=str)
def test_grid_points_are_the_grid(size: tuple[int, int]) -> None:
    points = grid_points(size, like=torch.zeros(1, dtype=torch.float64))
    assert points.shape == (*size, 2)
    assert points.dtype == torch.float64
    rows, columns = torch.meshgrid(*[torch.arange(side).double() for side in size], indexing="ij")
    torch.testing.assert_close(normalised_to_grid(points, size), torch.stack([columns, rows], dim=-1))


def test_grid_axis() -> None:
    assert grid_axis(5, like=torch.zeros(1)).tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert grid_axis(1, like=torch.zeros(1)).tolist() == [0.0]
    assert grid_axis(2, like=torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_single_grid_point_is_the_centre() -> None:
    assert grid_points((1, 3), like=torch.zeros(1)).tolist() == [[[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]]
