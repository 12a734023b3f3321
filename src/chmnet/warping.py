"""Pictures drawn through a map of positions: smoothing the map, fitting a spline to matches, sampling."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from PIL import Image
from torch import Tensor

from chmnet.config import CONFIDENCE_THRESHOLD
from chmnet.errors import InputError
from chmnet.geometry import (
    Size,
    cell_centres,
    check_points,
    grid_points,
    normalised_to_pixels,
    pixels_to_normalised,
)
from chmnet.pictures import MAX_PIXELS, View

SPLINE_SIDE = 48
"""A spline is computed on a grid of this side, and interpolated in between."""

_SMOOTHING = (100.0, 10.0, 1.0)
"""How stiff a spline is that need not go through its points, from the first fit to the last."""

_MOST_POSITIONS = 512
"""Of a heat map, along each side."""
_STRIP_PIXELS = 2**20
"""Pixels that are drawn at a time."""


def check_size(size: Any) -> Size:
    """Refuse a size of a drawing that is not (height, width), or too large."""
    try:
        height, width = (operator.index(side) for side in size)
    except (TypeError, ValueError):
        raise InputError(f"a size must be two whole numbers (height, width), got {size!r}") from None
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        raise InputError(
            f"a size must be (height, width), both at least 1, with at most {MAX_PIXELS // 10**6} million pixels, "
            f"got {size}"
        )
    return height, width


def dense_strips(
    values: Float[Tensor, "1 h w k"], size: Size, view: View | None = None
) -> Iterator[tuple[slice, Float[Tensor, "rows width k"], Float[Tensor, "rows width 2"]]]:
    """Read a map of a picture's grid smoothly at the middle of every pixel, a few rows at a time.

    Cubic interpolation (Catmull and Rom's): through the map's own values, without creases between them, and exact
    for maps that are linear, up to the picture's edges.

    Args:
        values: any map with its first and last points at the edges.
        size: (height, width) of the picture in pixels.
        view: what the map is of; ``None``: the whole picture. Beyond a view its nearest edge is read.

    Yields:
        Which rows; the values there; the normalised points at which they were read.
    """
    height, width = size
    askew = view is not None and view.turn % 90 != 0
    if view is not None and not askew:  # the map as it would be of an upright view
        values = torch.rot90(values, -int(view.turn) // 90, (1, 2))
        values = values.flip(2) if view.mirrored else values
    columns = cell_centres((1, width), like=values)[0, :, 0]
    across = _cubic_weights(_within(columns, view, 0), values.shape[2])
    step = max(1, _STRIP_PIXELS // width)
    for first in range(0, height, step):
        part = slice(first, min(first + step, height))
        rows = cell_centres((height, 1), like=values)[part, 0, 1]
        frame = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1)
        if view is not None and askew:
            points = view.from_picture(normalised_to_pixels(frame, view.picture.size), inside=True)
            read = _read_cubic(values[0], points)
        else:
            down = _cubic_weights(_within(rows, view, 1), values.shape[1])
            read = torch.einsum("yh,hwk,xw->yxk", down, values[0], across)
        yield part, read, frame


def whole_heat(heat: Float[Tensor, "h w"], view: View) -> Float[Tensor, "rows columns"]:
    """Probabilities on the grid of a view as those of a grid over its whole picture, which is as fine.

    Outside of the view they are 0; the sum is 1. Whole pictures, mirrored or turned by quarters, are exact.

    Example:
        >>> view = View.of(np.zeros((40, 40), dtype=np.uint8))
        >>> whole_heat(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), replace(view, mirrored=True)).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
        >>> whole_heat(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), replace(view, area=(20, 20, 40, 40))).tolist()
        [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if view.turn % 90 == 0:
        heat = torch.rot90(heat, -int(view.turn) // 90)
        heat = heat.flip(1) if view.mirrored else heat
        if view.area is None:
            return heat
        view = View(view.picture, view.area)
    size = view.picture.size
    rows, columns = (
        min(_MOST_POSITIONS, max(count, round((count - 1) * whole / part) + 1))
        for count, whole, part in zip(heat.shape, size, view.size, strict=True)
    )
    places = normalised_to_pixels(grid_points((rows, columns), like=heat.double()), size)
    seen = view.from_picture(places)[None].to(heat)
    read = F.grid_sample(heat[None, None], seen, mode="bilinear", padding_mode="zeros", align_corners=True)[0, 0]
    inside = View(view.picture, view.area).from_picture(places).abs().amax(-1) <= 1 + 1e-9
    if view.window is not None:
        inside = inside & (seen[0].abs().amax(-1) <= 1)
    read = torch.where(inside, read, 0.0)
    if not read.sum() > 0:  # between the positions, or beside a turned area: all of it at the nearest position
        mean = (heat[..., None] * grid_points((heat.shape[0], heat.shape[1]), like=heat)).sum((0, 1)).double()
        distances = (places - view.to_picture(mean, inside=True)).square().sum(-1)
        read = (distances == distances.min()).to(heat)
    return read / read.sum()


def _within(points: Float[Tensor, " n"], view: View | None, axis: int) -> Float[Tensor, " n"]:
    """Normalised coordinates of a picture, along x (0) or y (1), as those of an area of it; at most its edges."""
    if view is None or view.area is None:
        return points
    length, first, last = view.picture.size[1 - axis], view.area[axis], view.area[axis + 2]
    return (((points + 1) * (length / 2) - first) / ((last - first) / 2) - 1).clamp(-1, 1)


def _cubic_weights(points: Float[Tensor, " n"], length: int) -> Float[Tensor, "n length"]:
    """How much each of ``length`` grid points on a line counts at normalised points inside of it."""
    weights = points.new_zeros(len(points), length + 2)  # one more on both sides
    if length == 1:
        return points.new_ones(len(points), 1)
    cell, taps = _cubic_taps(points, length)
    weights.scatter_(1, cell[:, None] + torch.arange(4, device=points.device), taps)
    inner = weights[:, 1:-1].clone()
    for edge, beyond, next_one in ((0, 0, 1), (-1, -1, -2)):  # the line continues straight: 2 · edge − next
        inner[:, edge] += 2 * weights[:, beyond]
        inner[:, next_one] -= weights[:, beyond]
    return inner


def _cubic_taps(points: Float[Tensor, " n"], length: int) -> tuple[Int64[Tensor, " n"], Float[Tensor, "n 4"]]:
    """The first of four neighbours of each point, on a line with one more on both sides, and what each counts."""
    place = (points + 1) / 2 * (length - 1)
    cell = place.floor().clamp(0, length - 2)
    t = (place - cell)[:, None]
    taps = torch.cat(
        [
            -(t**3) / 2 + t**2 - t / 2,
            1.5 * t**3 - 2.5 * t**2 + 1,
            -1.5 * t**3 + 2 * t**2 + t / 2,
            t**3 / 2 - t**2 / 2,
        ],
        dim=1,
    )
    return cell.long(), taps


def _read_cubic(values: Float[Tensor, "h w k"], points: Float[Tensor, "y x 2"]) -> Float[Tensor, "y x k"]:
    """Read a map at any normalised points; the same interpolation as along rows and columns."""
    for axis in (0, 1):  # one more on both sides: the line continues straight
        if values.shape[axis] == 1:
            values = torch.cat([values, values], axis)
        before, after = (
            2 * line[0] - line[1] for line in (values.movedim(axis, 0), values.movedim(axis, 0).flip(0))
        )
        values = torch.cat([before.unsqueeze(axis), values, after.unsqueeze(axis)], axis)
    height, width, _ = values.shape
    x, y = points.clamp(-1, 1).flatten(0, 1).unbind(-1)
    (column, across), (row, down) = _cubic_taps(x, width - 2), _cubic_taps(y, height - 2)
    read = points.new_zeros(len(x), values.shape[2])
    for i, j in product(range(4), range(4)):
        weight = (down[:, i] * across[:, j])[:, None]
        read += weight * values.flatten(0, 1)[(row + i) * width + column + j]
    return read.view(*points.shape[:2], -1)


def smooth_positions(
    positions: Float[Tensor, "1 h w 2"], confidence: Float[Tensor, "1 h w"]
) -> Float[Tensor, "1 h w 2"]:
    """The smooth map nearest to a position map: doubtful positions follow what lies around them.

    The map x minimises ``Σ wᵢ ‖xᵢ − pᵢ‖² + λ ‖second differences of x‖²``, so that a map which is linear stays
    what it is. It begins stiff, with a large λ; at each softer step, positions far from the map so far lose their
    weight: a few that are wrong, however confident, do not tear the picture.
    """
    height, width = positions.shape[1:3]
    bending = _second_differences(height, width)
    bending = bending.T @ bending
    given = positions[0].flatten(0, 1).double().numpy()
    trust = confidence[0].flatten().double().numpy()
    weights, cell = trust + _LEAST_WEIGHT, 2 / max(height - 1, width - 1, 1)
    smooth = given
    for stiff in _STIFFNESS:
        system = scipy.sparse.diags(weights) + stiff * bending
        smooth = scipy.sparse.linalg.spsolve(system.tocsc(), weights[:, None] * given)
        miss = np.square((smooth - given) / cell).sum(axis=1)
        weights = trust / np.square(1 + miss) + _LEAST_WEIGHT  # Geman and McClure's
    return torch.from_numpy(smooth).to(positions.dtype).view_as(positions)


_STIFFNESS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
"""λ, from the first to the last step."""
_LEAST_WEIGHT = 1e-4


def _second_differences(height: int, width: int) -> scipy.sparse.csr_matrix:
    """Rows that, times a map of so many points, are its second differences: along x, along y, and mixed twice."""
    identity_x, identity_y = scipy.sparse.eye(width), scipy.sparse.eye(height)
    first_x, first_y = _differences(width), _differences(height)
    return scipy.sparse.vstack(
        [
            scipy.sparse.kron(identity_y, _differences(first_x.shape[0]) @ first_x),
            scipy.sparse.kron(_differences(first_y.shape[0]) @ first_y, identity_x),
            np.sqrt(2) * scipy.sparse.kron(first_y, first_x),
        ]
    ).tocsr()


def _differences(length: int) -> scipy.sparse.csr_matrix:
    if length < 2:
        return scipy.sparse.csr_matrix((0, length))
    return (scipy.sparse.eye(length - 1, length, 1) - scipy.sparse.eye(length - 1, length)).tocsr()


@dataclass(frozen=True, eq=False)
class ThinPlateSpline:
    """A smooth map of the plane: ``A x + b + Σ wₖ φ(‖x − cₖ‖)`` with ``φ(r) = r² log r``.

    Example:
        >>> corners = np.array([[-1.0, -1], [1, -1], [-1, 1], [1, 1]])
        >>> spline = ThinPlateSpline.fit(corners, corners * 2 + 1)
        >>> spline(np.array([[0.5, 0.0]])).round(6).tolist()
        [[2.0, 1.0]]
    """

    centres: Float[np.ndarray, "k 2"]
    weights: Float[np.ndarray, "k 2"]
    matrix: Float[np.ndarray, "2 2"]
    shift: Float[np.ndarray, " 2"]

    @staticmethod
    def fit(
        points: Float[np.ndarray, "k 2"], values: Float[np.ndarray, "k 2"], smoothing: float = 0.0
    ) -> "ThinPlateSpline":
        """The spline with given values at some points, which must differ and not lie on one line.

        Args:
            points: its centres.
            values: at these points.
            smoothing: 0: the spline has these values exactly; the larger, the straighter it is instead.
        """
        number = len(points)
        affine = np.hstack([points, np.ones((number, 1))])
        kernel = _kernel(points, points) + smoothing * np.eye(number)
        system = np.block([[kernel, affine], [affine.T, np.zeros((3, 3))]])
        solution = np.linalg.solve(system, np.vstack([values, np.zeros((3, 2))]))
        return ThinPlateSpline(points, solution[:number], solution[number : number + 2].T, solution[-1])

    def add_affine(self, matrix: Float[np.ndarray, "2 2"], shift: Float[np.ndarray, " 2"]) -> "ThinPlateSpline":
        """This map plus ``matrix x + shift``."""
        return replace(self, matrix=matrix + self.matrix, shift=shift + self.shift)

    def __call__(self, points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """The map at some points."""
        return points @ self.matrix.T + self.shift + _kernel(points, self.centres) @ self.weights

    def derivative(self, points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2 2"]:
        """``∂ value i / ∂ coordinate j`` at some points."""
        offsets = points[:, None] - self.centres
        squared = np.square(offsets).sum(-1, keepdims=True)
        slopes = offsets * (np.log(np.maximum(squared, _TINY)) + 1)
        return self.matrix + np.einsum("nkj,ki->nij", slopes, self.weights)

    def inverse(self, values: Float[np.ndarray, "n 2"]) -> tuple[Float[np.ndarray, "n 2"], Bool[np.ndarray, " n"]]:
        """The points that the map takes to some values, and whether each was found exactly.

        Newton's method, from the inverse of the affine part. It does not converge in folds or far outside.
        """
        found = (values - self.shift) @ np.linalg.inv(self.matrix).T
        for _ in range(_NEWTON_STEPS):
            miss = values - self(found)
            exact = np.abs(miss).max(axis=1, initial=0) < _EXACT
            if exact.all():
                break
            slopes = self.derivative(found)
            slopes[np.abs(np.linalg.det(slopes)) < _EXACT] = self.matrix  # the edge of a fold
            found = np.clip(found + np.linalg.solve(slopes, miss[..., None])[..., 0], -_FAR, _FAR)
        return found, exact


_NEWTON_STEPS = 12
_EXACT = 1e-6
_TINY = 1e-12
_FAR = 4.0
"""Points are never looked for beyond this."""


def _kernel(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """``r² log r`` of each point's distance to each centre."""
    squared = np.square(points[:, None] - centres).sum(-1)
    return 0.5 * squared * np.log(np.maximum(squared, _TINY))


def spline_positions(source: np.ndarray, target: np.ndarray, exact: bool) -> Float[Tensor, "1 h w 2"]:
    """The thin-plate spline from target to source, on a grid: a position map of the target.

    Args:
        source: ``n`` normalised points.
        target: where they lie in the target.
        exact: whether the spline goes through all of them; else it is smooth, and leaves out those far from it.

    Raises:
        InputError: there are fewer than three matches, or all lie on one line.
    """
    spline = _fit(source, target, 0.0 if exact else _SMOOTHING[0])
    for smoothing in () if exact else _SMOOTHING:
        miss = np.linalg.norm(spline(target) - source, axis=1)
        kept = miss <= max(2.5 * float(np.median(miss)), 0.05)
        spline = _fit(source[kept], target[kept], smoothing)
    grid = grid_points((SPLINE_SIDE, SPLINE_SIDE), like=torch.zeros(1, dtype=torch.float64))
    values = spline(grid.flatten(0, 1).numpy())
    return torch.from_numpy(values).float().view(1, SPLINE_SIDE, SPLINE_SIDE, 2)


def spline_through(
    source: np.ndarray,
    target: np.ndarray,
    confidence: np.ndarray,
    source_size: Size,
    target_size: Size,
    exact: bool,
) -> Float[Tensor, "1 h w 2"]:
    """:func:`spline_positions` of matches in pixels; one that is not exact goes by the confident ones only.

    Raises:
        InputError: points do not come in pairs, or do not determine a spline.
    """
    source, target = check_points(source), check_points(target)
    if len(source) != len(target):
        raise InputError(f"keypoints must come in pairs, got {len(source)} of the source and {len(target)}")
    sure = slice(None) if exact else confidence >= CONFIDENCE_THRESHOLD
    source, target = (
        pixels_to_normalised(source[sure], source_size),
        pixels_to_normalised(target[sure], target_size),
    )
    return spline_positions(source, target, exact)


def _fit(source: np.ndarray, target: np.ndarray, smoothing: float) -> ThinPlateSpline:
    target, first = np.unique(target, axis=0, return_index=True)  # a spline has one value at a point
    source = source[first]
    if len(target) < 3 or np.linalg.matrix_rank(target - target.mean(axis=0), tol=1e-3) < 2:
        raise InputError("a thin-plate spline needs at least three matches that do not lie on one line")
    return ThinPlateSpline.fit(target, source, smoothing)


def draw_warped(
    picture: Image.Image, positions: Float[Tensor, "1 h w 2"], size: Size, view: View | None = None
) -> Image.Image:
    """Draw a picture through a position map of the frame it is drawn in; what lies outside of it is white.

    Args:
        picture: RGB.
        positions: for each point of the frame's grid, the normalised point of the picture to show there.
        size: (height, width) of the frame, in pixels.
        view: the part of the frame that the map is of; what lies beyond stays white. ``None``: all of it.
    """
    height, width = size
    # Pixels that come closer together are averaged first, or the sampling would leave most of them out.
    # Not with reduce(): its last pixels reach beyond the picture, and all others would lie too far to the left.
    fewer_columns, fewer_rows = (
        round(given / max(1, round(given / (2 * wanted))))
        for given, wanted in ((picture.width, width), (picture.height, height))
    )
    pixels = np.asarray(picture.resize((fewer_columns, fewer_rows), Image.Resampling.BOX))
    image = rearrange(torch.from_numpy(pixels.copy()), "h w c -> 1 c h w").float()
    output = np.empty((height, width, 3), dtype=np.uint8)
    for rows, at, frame in dense_strips(positions, size, view):
        drawn = F.grid_sample(image, at[None], mode="bilinear", padding_mode="border", align_corners=False)[0]
        beyond = (at.abs().amax(-1) > 1)[None]
        if view is not None and (view.area is not None or view.window is not None):
            for part in (View(view.picture, view.area), *([view] if view.window is not None else [])):
                places = part.from_picture(normalised_to_pixels(frame, view.picture.size))
                beyond = beyond | (places.abs().amax(-1) > 1)
        drawn = torch.where(beyond, 255.0, drawn).round().clamp(0, 255)
        output[rows] = rearrange(drawn, "c h w -> h w c").byte().numpy()
    return Image.fromarray(output)
