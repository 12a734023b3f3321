"""Smooth random warps of a picture: affine and thin-plate spline, with an inverse as exact as one likes."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

CONTROL_SIDE = 4
"""Control points of the spline along each side."""
_STEPS = 30
_EXACT = 1e-6


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
        matrix, shift, weights = self._parameters()
        return points @ matrix.T + shift + _kernel(points) @ weights

    def inverse(self, points: Float[np.ndarray, "n 2"]) -> tuple[Float[np.ndarray, "n 2"], "np.ndarray"]:
        """Where in the view each point of the picture lies, and whether it was found exactly.

        Newton's method with the slope of the affine part, which the spline changes little; where the warp
        folds it does not end, and such points are marked.
        """
        matrix, shift, _ = self._parameters()
        inverse = np.linalg.inv(matrix)
        found = (points - shift) @ inverse.T
        for _ in range(_STEPS):
            miss = points - self(found)
            found = np.clip(found + miss @ inverse.T, -4, 4)
        return found, np.abs(points - self(found)).max(axis=1, initial=0) < _EXACT

    def _parameters(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Matrix and shift of the affine part, weights of the spline's control points."""
        generator = np.random.default_rng([self.seed, 11])
        angle = np.deg2rad(generator.uniform(-self.rotation, self.rotation))
        sides = np.exp(generator.uniform(-1, 1) * np.log(self.zoom) + generator.uniform(-0.1, 0.1, 2))
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        shift = generator.uniform(-0.15, 0.15, 2)
        offsets = generator.normal(0, self.bend, (CONTROL_SIDE**2, 2)).clip(-2 * self.bend, 2 * self.bend)
        weights, linear, constant = _fit(offsets)
        return turn * sides + linear, shift + constant, weights


def _control_points() -> np.ndarray:
    axis = np.linspace(-1, 1, CONTROL_SIDE)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def _kernel(points: np.ndarray) -> np.ndarray:
    """``r² log r`` of each point's distance to each control point."""
    squared = np.square(points[:, None] - _control_points()).sum(-1)
    return 0.5 * squared * np.log(np.maximum(squared, 1e-12))


def _fit(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The thin-plate spline through offsets at the control points: weights, linear part, constant."""
    control = _control_points()
    number = len(control)
    affine = np.hstack([control, np.ones((number, 1))])
    system = np.block([[_kernel(control), affine], [affine.T, np.zeros((3, 3))]])
    solution = np.linalg.solve(system, np.vstack([offsets, np.zeros((3, 2))]))
    return solution[:number], solution[number : number + 2].T, solution[-1]
