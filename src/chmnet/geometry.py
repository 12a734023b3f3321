"""Coordinates: pixels ↔ normalised ↔ grid. All coordinate arithmetic of the project is here.

Three systems, points always (x, y), sizes always (height, width):

* pixels of a picture, as a person sees it;
* normalised: 0 … width and 0 … height become −1 … 1, as in the authors' code (240 px: ``x / 120 − 1``);
* grid: column and row of a regular grid whose first and last points lie at −1 and 1.
"""

import operator
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from chmnet.errors import InputError
from chmnet.turning import turn_matrix

Size = tuple[int, int]
_MOST = 10**6
Points = TypeVar("Points", Tensor, np.ndarray)


def check_count(name: str, value: Any) -> int:
    """A whole number of at least 1; more than any picture has places is as good as all of them.

    Raises:
        InputError: it is something else.

    Example:
        >>> check_count("top", 12)
        12
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {value!r}") from None
    if number < 1:
        raise InputError(f"{name} must be at least 1, got {number}")
    return min(number, _MOST)


def check_points(points: ArrayLike) -> np.ndarray:
    """Points as a new array of ``n`` rows (x, y).

    Raises:
        InputError: they are not finite numbers in rows of two.
    """
    if isinstance(points, Tensor):
        if points.is_meta or points.layout != torch.strided or points.is_complex():
            raise InputError("points must be rows of two numbers (x, y)")
        points = points.detach().cpu().double().numpy()  # NumPy has no bfloat16
    try:
        # A copy: results do not change with the caller's array, and PyTorch warns of arrays that are read-only.
        rows = np.atleast_2d(np.array(points, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        raise InputError("points must be rows of two numbers (x, y)") from None
    if rows.size == 0:
        return rows.reshape(0, 2)
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise InputError(f"points must be rows (x, y), got an array of shape {list(rows.shape)}")
    if not np.isfinite(rows).all():
        raise InputError("points must be finite numbers, got NaN or infinity")
    return rows


def pixels_to_normalised(points: Points, size: Size) -> Points:
    """Points in pixels of a picture of ``size`` (height, width) to normalised coordinates.

    Example:
        >>> pixels_to_normalised(torch.tensor([[0.0, 60.0], [320.0, 240.0]]), (240, 320)).tolist()
        [[-1.0, -0.5], [1.0, 1.0]]
    """
    return points / (_width_height(points, size) / 2) - 1


def normalised_to_pixels(points: Points, size: Size) -> Points:
    """The inverse of :func:`pixels_to_normalised`."""
    return (points + 1) * (_width_height(points, size) / 2)


def rescale_points(points: Points, old_size: Size, new_size: Size) -> Points:
    """Move points from a picture of one (height, width) to the same picture at another size."""
    return points * (_width_height(points, new_size) / _width_height(points, old_size))


def clip_points(points: Points, size: Size) -> Points:
    """Points in pixels moved to the nearest place of a picture of ``size`` (height, width); NaN stays NaN.

    Example:
        >>> clip_points(np.array([[-3.0, 5.0], [4.0, 99.0]]), (50, 40)).tolist()
        [[0.0, 5.0], [4.0, 50.0]]
    """
    limits = _width_height(points, size)
    return points.clip(0 * limits, limits)


def move_points(points: Points, x: float, y: float) -> Points:
    """Points moved by so many pixels."""
    return points + _pair(points, x, y)


def mirror_points(points: Points) -> Points:
    """Normalised points of a picture whose left and right are exchanged."""
    return points * _pair(points, -1, 1)


def turn_points(points: Points, degrees: float, size: Size = (1, 1)) -> Points:
    """Normalised points of a picture as those of the frame around it when it is turned counter-clockwise.

    Args:
        points: (x, y).
        degrees: any angle; multiples of 90 are exact.
        size: (height, width) of the picture; quarter turns do not need it.

    Example:
        >>> turn_points(np.array([[1.0, 0.5]]), 90).tolist()  # what was on the right is on top
        [[0.5, -1.0]]
        >>> turn_points(np.array([[1.0, -1.0]]), 45, (100, 100)).round(2).tolist()  # 142 pixels hold 141.4
        [[0.0, -1.0]]
    """
    if degrees % 90:
        a, b, c, d = turn_matrix(size, degrees)
        determinant = a * d - b * c
        return (points * _pair(points, d, a) - points[..., [1, 0]] * _pair(points, b, c)) / determinant
    for _ in range(int(degrees) // 90 % 4):
        points = points[..., [1, 0]] * _pair(points, 1, -1)
    return points


def turn_back(points: Points, degrees: float, size: Size = (1, 1)) -> Points:
    """The inverse of :func:`turn_points`; ``size`` is the picture's, not that of the frame."""
    if degrees % 90:
        a, b, c, d = turn_matrix(size, degrees)
        return points * _pair(points, a, d) + points[..., [1, 0]] * _pair(points, b, c)
    return turn_points(points, -degrees)


def normalised_to_grid(points: Tensor, size: Size) -> Tensor:
    """Normalised points as (column, row) of a grid of ``size``, counted from 0, fractions allowed."""
    return (points + 1) / 2 * (_width_height(points, size) - 1)


def grid_axis(length: int, like: Tensor) -> Float[Tensor, " length"]:
    """Normalised coordinates of ``length`` grid points: −1 … 1; a single point lies at 0.

    Example:
        >>> grid_axis(3, like=torch.zeros(1)).tolist(), grid_axis(1, like=torch.zeros(1)).tolist()
        ([-1.0, 0.0, 1.0], [0.0])
    """
    if length == 1:
        return like.new_zeros(1)
    return torch.linspace(-1, 1, length, dtype=like.dtype, device=like.device)


def grid_points(size: Size, like: Tensor) -> Float[Tensor, "h w 2"]:
    """Normalised (x, y) of every point of a regular grid, with the dtype and device of ``like``."""
    height, width = size
    y, x = torch.meshgrid(grid_axis(height, like), grid_axis(width, like), indexing="ij")
    return torch.stack([x, y], dim=-1)


def cell_centres(size: Size, like: Tensor) -> Float[Tensor, "h w 2"]:
    """Normalised (x, y) of the middles of a picture's pixels, or of cells it is cut into: none lies at its edge.

    Example:
        >>> cell_centres((1, 4), like=torch.zeros(1))[0, :, 0].tolist()
        [-0.75, -0.25, 0.25, 0.75]
    """
    x, y = (
        (torch.arange(length, dtype=like.dtype, device=like.device) * 2 + 1) / length - 1
        for length in (size[1], size[0])
    )
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)


def spread_out(points: np.ndarray, count: int, first: int = 0, weights: np.ndarray | float = 1.0) -> list[int]:
    """Numbers of ``count`` points: the first, then always the one farthest from those already chosen.

    Args:
        points: ``n`` rows (x, y).
        count: how many are wanted.
        first: number of the first one.
        weights: of each point; its distance counts so many times.

    Example:
        >>> row = np.array([[0.0, 0], [1, 0], [10, 0], [4, 0]])
        >>> spread_out(row, 3), spread_out(row, 2, weights=np.array([1, 1, 0.1, 1]))
        ([0, 2, 3], [0, 3])
    """
    chosen = [first]
    distances = np.linalg.norm(points - points[first], axis=1)
    while len(chosen) < min(count, len(points)):
        chosen.append(int((weights * distances).argmax()))
        distances = np.minimum(distances, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return chosen


def _width_height(points: Points, size: Size) -> Points:
    height, width = size
    return _pair(points, width, height)


def _pair(points: Points, x: float, y: float) -> Points:
    """Two numbers of the type of the points."""
    return points.new_tensor([x, y]) if isinstance(points, Tensor) else np.asarray([x, y], dtype=points.dtype)
