"""What matching two pictures found: points moved, dense flow, warps, confidence, in pixels of the pictures."""

import operator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor

from chmnet.config import CONFIDENCE_THRESHOLD, TransferConfig
from chmnet.errors import InputError
from chmnet.geometry import Size, grid_points, normalised_to_pixels, pixels_to_normalised
from chmnet.nn.confidence import confidence_map
from chmnet.nn.transfer import (
    match_probabilities,
    nearest_cell,
    sample_grid,
    sampler_weights,
    soft_argmax,
)
from chmnet.ops.correlation import exchange
from chmnet.pictures import MAX_PIXELS, PictureLike, to_picture
from chmnet.result_file import StoredResult, load_result, save_result
from chmnet.warping import dense_strips, draw_warped, smooth_positions, spline_positions


class Matches(NamedTuple):
    """Points of the source, where they lie in the target, and how far that can be trusted (0 … 1)."""

    source: np.ndarray
    """``n`` rows (x, y) in pixels of the source."""
    target: np.ndarray
    """``n`` rows (x, y) in pixels of the target."""
    confidence: np.ndarray
    """``n`` numbers."""


@dataclass(frozen=True, eq=False)
class MatchResult:
    """What matching two pictures found. Points are (x, y) in pixels, sizes are (height, width)."""

    correlation: Tensor = field(repr=False)
    """``1 1 hs ws ht wt``: score of every pair of grid positions."""
    source_size: Size
    target_size: Size
    config: TransferConfig
    source_picture: Image.Image | None = field(default=None, repr=False)
    """What was matched, upright RGB; ``None`` after :meth:`load`."""
    target_picture: Image.Image | None = field(default=None, repr=False)
    scale_pairs: Tensor | None = field(default=None, repr=False)
    """``1 hs ws ht wt`` on the grid of the features: number of the winning pair of scales, if it was asked for."""
    scales: tuple[float, ...] = (1.0,)
    """The scales that the model votes over."""
    keypoints: Matches | None = field(default=None, repr=False)
    """The points that were asked for when matching, if any."""

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same scores between pictures of the same sizes; the pictures do not count."""
        if not isinstance(other, MatchResult):
            return NotImplemented
        mine, theirs = ((r.source_size, r.target_size, r.config, r.scales) for r in (self, other))
        return mine == theirs and torch.equal(self.correlation, other.correlation)

    @property
    def _source_grid(self) -> Size:
        return self.correlation.shape[2], self.correlation.shape[3]

    @property
    def _target_grid(self) -> Size:
        return self.correlation.shape[4], self.correlation.shape[5]

    @cached_property
    def positions(self) -> Tensor:
        """``1 hs ws 2``: where every position of the source grid lies in the target, normalised."""
        return soft_argmax(self.correlation, self.config)

    @cached_property
    def back_positions(self) -> Tensor:
        """``1 ht wt 2``: where every position of the target grid lies in the source, normalised."""
        return soft_argmax(exchange(self.correlation), self.config)

    @cached_property
    def _confidences(self) -> Tensor:
        """``1 hs ws``."""
        return confidence_map(self.correlation, self.config, self.positions, self.back_positions)

    @cached_property
    def _back_confidences(self) -> Tensor:
        """``1 ht wt``."""
        turned = exchange(self.correlation)
        return confidence_map(turned, self.config, self.back_positions, self.positions)

    @property
    def confidence(self) -> Float32[np.ndarray, "hs ws"]:
        """How far the match of every position of the source grid can be trusted, 0 … 1.

        Of a calibrated model, such as the default one, about the share of such matches that are right, that is
        within a tenth of the picture; see :func:`chmnet.nn.confidence_map`.
        """
        return self._confidences[0].float().numpy()

    def transfer(self, points: ArrayLike) -> Matches:
        """Find points of the source picture in the target picture.

        Args:
            points: ``n`` rows (x, y), or one (x, y), in pixels of the source.

        Raises:
            InputError: the points are not finite numbers in rows of two.
        """
        rows = _check_points(points)
        confidence = self._read(self._confidences[..., None], rows)[:, 0]
        return Matches(rows, self.locate(rows), confidence.clip(0, 1))  # a mean of ones may round to above one

    def locate(self, points: ArrayLike) -> np.ndarray:
        """As :meth:`transfer`, but only the points of the target: half the work."""
        moved = self._read(self.positions, _check_points(points))
        return normalised_to_pixels(moved, self.target_size)

    def _read(self, values: Tensor, points: np.ndarray) -> np.ndarray:
        """Read a map of the source grid at points in pixels."""
        normalised = pixels_to_normalised(torch.from_numpy(points), self.source_size)
        return sample_grid(values, normalised.to(values.dtype)[None], self.config)[0].double().numpy()

    def matches(self, top: int = 300) -> Matches:
        """The most trustworthy matches of the grid, the best first."""
        if top < 1:
            raise InputError(f"the number of matches must be at least 1, got {top}")
        positions, confidence = self.positions[0], self._confidences.flatten()
        best = confidence.argsort(descending=True, stable=True)[:top]
        grid = grid_points((positions.shape[0], positions.shape[1]), like=positions)
        source = normalised_to_pixels(grid.flatten(0, 1)[best].double(), self.source_size)
        target = normalised_to_pixels(positions.flatten(0, 1)[best].double(), self.target_size)
        return Matches(source.numpy(), target.numpy(), confidence[best].double().numpy())

    def flow(self, size: Size | None = None, direction: str = "forward") -> Float32[np.ndarray, "h w 2"]:
        """Displacement (x, y) of every point of one picture to its match in the other, in pixels.

        Row i and column j stand for the middle of that pixel, where the first picture is cut into ``size`` pixels;
        displacements are in pixels of the pictures as they are, whatever ``size`` is.

        Args:
            size: (height, width) of the answer; default: the size of the picture that the flow starts from.
            direction: ``"forward"``, from source to target, or ``"backward"``, from target to source.

        Raises:
            InputError: the direction is unknown, or the size is not two whole numbers, too small or too large.

        Example:
            >>> same = MatchResult(50 * torch.eye(16).view(1, 1, 4, 4, 4, 4), (40, 60), (40, 60), TransferConfig())
            >>> flow = same.flow(size=(8, 12))
            >>> flow.shape, float(abs(flow).max()) < 0.01
            ((8, 12, 2), True)
        """
        if direction not in ("forward", "backward"):
            raise InputError(f"direction must be forward or backward, got {direction!r}")
        forward = direction == "forward"
        start, end = (self.source_size, self.target_size) if forward else (self.target_size, self.source_size)
        size = _check_size(start if size is None else size)
        positions = (self.positions if forward else self.back_positions).float()
        output = np.empty((*size, 2), dtype=np.float32)
        for rows, moved, centres in dense_strips(positions, size):
            there = normalised_to_pixels(moved.clamp(-1, 1), end)
            output[rows] = (there - normalised_to_pixels(centres, start)).numpy()
        return output

    def confidence_at(self, size: Size | None = None) -> Float32[np.ndarray, "h w"]:
        """The confidence of every point of a forward :meth:`flow` of the same size."""
        size = _check_size(self.source_size if size is None else size)
        output = np.empty(size, dtype=np.float32)
        for rows, values, _ in dense_strips(self._confidences.float()[..., None], size):
            output[rows] = values[..., 0].clamp(0, 1).numpy()
        return output

    def warp(
        self,
        method: str = "flow",
        picture: PictureLike | None = None,
        keypoints: Matches | None = None,
        size: Size | None = None,
    ) -> Image.Image:
        """The source picture drawn in the frame of the target: every pixel of the target shows its match.

        Args:
            method: ``"flow"``, each pixel by its own match, smoothed where matches are doubtful; or ``"tps"``, one
                thin-plate spline through the confident matches, without those that do not go with the others.
            picture: what to draw in place of the source: a mask, a label map, another version of it.
            keypoints: matches that the thin-plate spline goes through, instead of the confident ones.
            size: (height, width) of the drawing; default: the size of the target.

        Raises:
            InputError: the method is unknown, there is no picture (after :meth:`load`), the matches do not
                determine a spline, or the size is too small or too large.
        """
        if method not in ("flow", "tps"):
            raise InputError(f"method must be flow or tps, got {method!r}")
        if keypoints is not None and method != "tps":
            raise InputError("keypoints are for the method tps; the flow goes through all matches")
        drawn = self.source_picture if picture is None else to_picture(picture)
        if drawn is None:
            raise InputError("a result that was loaded holds no pictures; give the picture to warp")
        size = _check_size(self.target_size if size is None else size)
        if method == "flow":
            positions = smooth_positions(self.back_positions.float(), self._back_confidences.float())
        else:
            positions = self._spline(keypoints)
        return draw_warped(drawn, positions, size)

    def _spline(self, keypoints: Matches | None) -> Tensor:
        exact = keypoints is not None
        if keypoints is None:
            keypoints = self.matches(top=600)
            sure = keypoints.confidence >= CONFIDENCE_THRESHOLD
            keypoints = Matches(*(values[sure] for values in keypoints))
        source = pixels_to_normalised(_check_points(keypoints.source), self.source_size)
        target = pixels_to_normalised(_check_points(keypoints.target), self.target_size)
        if len(source) != len(target):
            raise InputError(f"keypoints must come in pairs, got {len(source)} of the source and {len(target)}")
        return spline_positions(source, target, exact)

    def heat(self, point: ArrayLike) -> Float32[np.ndarray, "ht wt"]:
        """How likely each position of the target grid is the match of one point of the source; the sum is 1.

        Its mean position is where :meth:`transfer` puts the point.

        Args:
            point: (x, y) in pixels of the source.

        Raises:
            InputError: it is not one point.
        """
        rows = _check_points(point)
        if len(rows) != 1:
            raise InputError(f"a heat map is of one point, got {len(rows)}")
        normalised = pixels_to_normalised(torch.from_numpy(rows), self.source_size)
        weights = sampler_weights(normalised[None].to(self.positions.dtype), self._source_grid, self.config)[0, 0]
        cells = weights.nonzero()[:, 0]
        scores = self.correlation[:, 0].flatten(1, 2)[:, cells, None]
        likely = match_probabilities(scores, self.config)[0, :, 0]
        return (weights[cells, None, None].to(likely.dtype) * likely).sum(0).float().numpy()

    def winning_scales(self, matches: Matches) -> Float64[np.ndarray, "n 2"]:
        """The scales (source, target) at which each match got its best vote.

        Raises:
            InputError: the model has one scale only, or the scales were not asked for when matching.
        """
        if len(self.scales) == 1:
            raise InputError(
                "this model matches at one scale; models with dimensions 6d-4d (the presets paper and reference) "
                "have several"
            )
        if self.scale_pairs is None:
            raise InputError("the winning scales were not kept; match with scales=True")
        _, *grids = self.scale_pairs.shape
        source = pixels_to_normalised(torch.from_numpy(_check_points(matches.source)), self.source_size)
        target = pixels_to_normalised(torch.from_numpy(_check_points(matches.target)), self.target_size)
        rows = nearest_cell(source[None], (grids[0], grids[1]))[0]
        columns = nearest_cell(target[None], (grids[2], grids[3]))[0]
        pair = self.scale_pairs[0].flatten(2).flatten(0, 1)[rows, columns].numpy()
        scales = np.asarray(self.scales, dtype=np.float64)
        return np.stack([scales[pair // len(scales)], scales[pair % len(scales)]], axis=-1)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the result, without the pictures, to one safetensors file; :meth:`load` reads it.

        Raises:
            InputError: the name does not end in ``.safetensors``, the file exists and may not be replaced, or it
                cannot be written.
        """
        stored = StoredResult(
            self.correlation,
            self.source_size,
            self.target_size,
            self.config,
            self.scale_pairs,
            self.scales,
            self.keypoints,
        )
        save_result(stored, path, overwrite)

    @staticmethod
    def load(path: str | Path) -> "MatchResult":
        """Read what :meth:`save` wrote. Transfers are the same to the last bit.

        Raises:
            InputError: there is no such file, or it holds something else.
        """
        stored = load_result(path)
        return MatchResult(
            stored.correlation,
            stored.source_size,
            stored.target_size,
            stored.config,
            scale_pairs=stored.scale_pairs,
            scales=stored.scales,
            keypoints=None if stored.keypoints is None else Matches(*stored.keypoints),
        )


def _check_points(points: ArrayLike) -> np.ndarray:
    if isinstance(points, Tensor):
        points = points.detach().cpu().double().numpy()  # NumPy has no bfloat16
    try:
        # A copy: results do not change with the caller's array, and PyTorch warns of arrays that are read-only.
        rows = np.atleast_2d(np.array(points, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError("points must be rows of two numbers (x, y)") from None
    if rows.size == 0:
        return rows.reshape(0, 2)
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise InputError(f"points must be rows (x, y), got an array of shape {list(rows.shape)}")
    if not np.isfinite(rows).all():
        raise InputError("points must be finite numbers, got NaN or infinity")
    return rows


def _check_size(size: Any) -> Size:
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
