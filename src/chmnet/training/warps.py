"""Smooth random warps of a picture: affine and thin-plate spline, with an inverse as exact as one likes."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float

CONTROL_SIDE = 4
"""Control points of the spline along each side."""
_STEPS = 12
_EXACT = 1e-6
_TINY = 1e-12
_FAR = 4.0
"""Points are never looked for beyond this."""


@dataclass(frozen=True)
class Warp:
    """Maps normalised points (x, y) of a view to those of the picture it shows: ``A x + b + spline(x)``.

    Args:
        seed: everything about the warp is drawn from it.
        rotation: largest turn, in degrees.
        zoom: the view shows between ``1 / zoom`` and ``zoom`` times as much of the picture.
        bend: standard deviation of the spline's control points, in normalised coordinates.

    Example:
        >>> warp = Warp(seed=3, rotation=20, zoom=1.3, bend=0.08)
        >>> points = np.array([[0.1, -0.4], [0.5, 0.5]])
        >>> found, exact = warp.inverse(warp(points))
        >>> bool(exact.all()), bool(np.abs(found - points).max() < 1e-5)
        (True, True)
    """

    seed: int
    rotation: float = 20.0
    zoom: float = 1.3
    bend: float = 0.08

    def __call__(self, points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """Where in the picture each point of the view lies."""
        matrix, shift, weights = _parameters(self)
        return points @ matrix.T + shift + _kernel(points) @ weights

    def inverse(self, points: Float[np.ndarray, "n 2"]) -> tuple[Float[np.ndarray, "n 2"], Bool[np.ndarray, " n"]]:
        """Where in the view each point of the picture lies, and whether it was found exactly.

        Newton's method, from the inverse of the affine part; where it does not end, in folds or far outside,
        points are marked.
        """
        matrix, shift, weights = _parameters(self)
        found = (points - shift) @ np.linalg.inv(matrix).T
        for _ in range(_STEPS):
            miss = points - self(found)
            exact = np.abs(miss).max(axis=1, initial=0) < _EXACT
            if exact.all():
                break
            slopes = matrix + np.einsum("nkj,ki->nij", _kernel_slopes(found), weights)
            slopes[np.abs(np.linalg.det(slopes)) < _EXACT] = matrix  # the edge of a fold
            found = np.clip(found + np.linalg.solve(slopes, miss[..., None])[..., 0], -_FAR, _FAR)
        return found, exact


@lru_cache(maxsize=4096)  # a view is in many pairs
def _parameters(warp: Warp) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrix and shift of the affine part, weights of the spline's control points."""
    generator = np.random.default_rng([warp.seed, 11])
    angle = np.deg2rad(generator.uniform(-warp.rotation, warp.rotation))
    sides = np.exp(generator.uniform(-1, 1) * np.log(warp.zoom) + generator.uniform(-0.1, 0.1, 2))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shift = generator.uniform(-0.15, 0.15, 2)
    offsets = generator.normal(0, warp.bend, (CONTROL_SIDE**2, 2)).clip(-2 * warp.bend, 2 * warp.bend)
    weights, linear, constant = _fit(offsets)
    return turn * sides + linear, shift + constant, weights


@lru_cache(maxsize=1)
def _control_points() -> np.ndarray:
    axis = np.linspace(-1, 1, CONTROL_SIDE)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def _kernel(points: np.ndarray) -> np.ndarray:
    """``r² log r`` of each point's distance to each control point."""
    squared = np.square(points[:, None] - _control_points()).sum(-1)
    return 0.5 * squared * np.log(np.maximum(squared, _TINY))


def _kernel_slopes(points: np.ndarray) -> np.ndarray:
    """Derivative of the kernel with respect to x and y of each point, ``n k 2``."""
    offsets = points[:, None] - _control_points()
    squared = np.square(offsets).sum(-1, keepdims=True)
    return offsets * (np.log(np.maximum(squared, _TINY)) + 1)


def _fit(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The thin-plate spline through offsets at the control points: weights, linear part, constant."""
    control = _control_points()
    number = len(control)
    affine = np.hstack([control, np.ones((number, 1))])
    system = np.block([[_kernel(control), affine], [affine.T, np.zeros((3, 3))]])
    solution = np.linalg.solve(system, np.vstack([offsets, np.zeros((3, 2))]))
    return solution[:number], solution[number : number + 2].T, solution[-1]
