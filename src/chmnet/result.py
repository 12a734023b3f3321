"""What matching two pictures found: points moved, flow, warps, confidence, in pixels of the whole pictures."""

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor

from chmnet.config import CalibrationConfig, TransferConfig
from chmnet.errors import InputError
from chmnet.features import describe_view
from chmnet.geometry import (
    Size,
    check_count,
    check_points,
    grid_points,
    normalised_to_pixels,
    pixels_to_normalised,
    spread_out,
)
from chmnet.nn.foreground import best_matches, from_which_on
from chmnet.ops.correlation import exchange
from chmnet.ops.evidence import Clues, calibrated, confidence_map, gather_clues, match_evidence, same_kind
from chmnet.ops.instances import find_instances, restricted
from chmnet.ops.transfer import Located, PositionMap, heat_at, locate, match_scores, sample_grid, soft_argmax
from chmnet.pictures import PictureLike, View, to_picture
from chmnet.result_file import load_result, save_result
from chmnet.warping import check_size, dense_strips, draw_warped, smooth_positions, spline_through, whole_heat

if TYPE_CHECKING:
    _lazy = cached_property
else:

    class _lazy:  # noqa: N801 (a decorator)
        """``functools.cached_property`` without a lock, which before Python 3.12 is one for all instances."""

        def __init__(self, function):
            self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return vars(instance).setdefault(self.name, self.function(instance))


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
    """What matching two pictures found. Points are (x, y) in pixels, sizes are (height, width).

    :class:`chmnet.Matcher` makes results. Scores stay on the device that computed them, answers are NumPy arrays.
    """

    scores: Tensor = field(repr=False)
    """``1 1 hs ws ht wt``: score of every pair of grid positions."""
    source: View
    """What was seen of the source picture."""
    target: View
    config: TransferConfig
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    """What turns evidence into probabilities. Empty: confidence is cycle consistency."""
    scale_pairs: Tensor | None = field(default=None, repr=False)
    """``1 hs ws ht wt`` on the grid of the features: number of the winning pair of scales, if it was asked for."""
    scales: tuple[float, ...] = (1.0,)
    """The scales that the model votes over."""
    keypoints: Matches | None = field(default=None, repr=False)
    """The points that were asked for when matching, if any."""
    likeness: Tensor | None = field(default=None, repr=False)
    """``1 hs ws ht wt``: cosine of every pair of positions of the feature grids, before any vote."""
    facing: tuple[float | None, float | None] = (None, None)
    """Which way the things in source and target face, −1 left … 1 right, if the model can tell."""
    pose_probability: float | None = None
    """That the target was seen in the right pose; ``None``: only one was tried. ``target`` says which."""
    other_pose_probability: float | None = None
    """That its mirror image is right instead. The rest up to 1, if turns were tried: another turn is."""
    foreground: tuple[Tensor | None, Tensor | None] = field(default=(None, None), repr=False)
    """``1 h w`` of source and target: the probability that each position of the features lies on a thing."""

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same scores between views of the same sizes; the pictures do not count."""
        if not isinstance(other, MatchResult):
            return NotImplemented
        mine, theirs = (
            (*map(describe_view, (r.source, r.target)), r.config, r.calibration, r.scales) for r in (self, other)
        )
        return mine == theirs and torch.equal(self.scores, other.scores)

    @property
    def source_size(self) -> Size:
        """(height, width) of the whole source picture."""
        return self.source.picture.size

    @property
    def target_size(self) -> Size:
        """(height, width) of the whole target picture."""
        return self.target.picture.size

    @property
    def source_picture(self) -> Image.Image | None:
        """The whole source picture, upright RGB; ``None`` after :meth:`load`."""
        return self.source.picture.image if self.source.picture.at_hand else None

    @property
    def target_picture(self) -> Image.Image | None:
        """The whole target picture, upright RGB; ``None`` after :meth:`load`."""
        return self.target.picture.image if self.target.picture.at_hand else None

    @property
    def nbytes(self) -> int:
        """Memory of the scores."""
        return sum(each.nbytes for each in (self.scores, self.scale_pairs, self.likeness) if each is not None)

    @_lazy
    def _there(self) -> Located:
        return locate(self.scores, self.config)

    @_lazy
    def _back(self) -> Located:
        return locate(exchange(self.scores), self.config)

    @_lazy
    def _positions(self) -> Float[Tensor, "1 hs ws 2"]:
        """Positions alone, where nobody asked for confidence: no entropy is computed."""
        if "_there" in vars(self) or self.scores.dtype.itemsize < 4:
            return self._there.positions
        return soft_argmax(self.scores, self.config)

    @_lazy
    def forward(self) -> PositionMap:
        """Where every position of the source grid lies in the target view, normalised, and its confidence."""
        confidence = confidence_map(self._there, self._back.positions, self.clues, self.calibration.match)
        return PositionMap(self._there.positions[0], confidence[0])

    @_lazy
    def backward(self) -> PositionMap:
        """Where every position of the target grid lies in the source view, normalised, and its confidence."""
        clues = None if self.clues is None else self.clues.exchanged()
        confidence = confidence_map(self._back, self._there.positions, clues, self.calibration.match)
        return PositionMap(self._back.positions[0], confidence[0])

    @_lazy
    def clues(self) -> Clues | None:
        """What the pictures show beside the scores; ``None`` without their likeness."""
        return gather_clues(self.likeness, self.foreground, self.facing)

    @property
    def same_kind(self) -> float | None:
        """The probability that both pictures show the same kind of thing; ``None``: it was not fitted."""
        if self.clues is None or not self.calibration.same_kind:
            return None
        return same_kind(self.clues, self.calibration.same_kind)

    @property
    def confidence(self) -> Float32[np.ndarray, "hs ws"]:
        """How far the match of every position of the source grid can be trusted, 0 … 1.

        Of a calibrated model, such as the default one, about the share of such matches that are right, that is
        within a tenth of the thing's longer side; see :mod:`chmnet.ops.evidence`.
        """
        return self.forward.confidence.float().cpu().numpy()

    def transfer(self, points: ArrayLike) -> Matches:
        """Find points of the source picture in the target picture.

        Args:
            points: ``n`` rows (x, y), or one (x, y), in pixels of the source.

        Raises:
            InputError: the points are not finite numbers in rows of two.
        """
        rows = check_points(points)
        confidence = self._read(self.forward.confidence[None, ..., None], rows)[:, 0]
        return Matches(rows, self.locate(rows), confidence.clip(0, 1))  # a mean of ones may round to above one

    def locate(self, points: ArrayLike) -> np.ndarray:
        """As :meth:`transfer`, but only the points of the target: half the work."""
        return self.target.to_picture(self._read(self._positions, check_points(points)), inside=True)

    def unmatched_at(self, points: ArrayLike) -> Float64[np.ndarray, " n"] | None:
        """The probability that each point has no match: hidden in the target, or outside; ``None``: not fitted."""
        if self.clues is None or not self.calibration.unmatched:
            return None
        evidence = torch.from_numpy(self.evidence_at(points))
        return 1 - calibrated(evidence, self.calibration.unmatched).numpy()

    def evidence_at(self, points: ArrayLike) -> Float64[np.ndarray, "n 13"]:
        """What speaks against the match of each point, as :func:`chmnet.ops.evidence.match_evidence` says."""
        if self.clues is None:
            raise InputError("this result does not hold what evidence is made of; match the pictures again")
        return self._read(match_evidence(self._there, self._back.positions, self.clues), check_points(points))

    def scores_at(self, source: ArrayLike, target: ArrayLike) -> Float32[np.ndarray, " n"]:
        """Score of each match of a point of the source with one of the target, on the nearest grid positions."""
        first = self._normalised(self.source, source, self.scores)
        second = self._normalised(self.target, target, self.scores)
        return match_scores(self.scores, first, second)[0].float().cpu().numpy()

    def _read(self, values: Float[Tensor, "1 h w k"], points: np.ndarray) -> np.ndarray:
        """Read a map of the source grid at points in pixels."""
        read = sample_grid(values, self._normalised(self.source, points, values), self.config)
        return read[0].cpu().double().numpy()

    @staticmethod
    def _normalised(view: View, points: ArrayLike, like: Tensor) -> Float[Tensor, "1 n 2"]:
        return torch.from_numpy(view.from_picture(check_points(points), inside=True)).to(like)[None]

    def instances(self, most: int = 3) -> list["MatchResult"]:
        """The same result for each of at most so many things of the target, the one that matches best first.

        Each is a thing of the source, a connected part of its foreground, and the one thing of the target that it
        matches; no two are on the same thing of the target. At least one; the only one is the whole result.
        :mod:`chmnet.ops.instances` says how they are found.
        """
        sizes, threshold = (self.source.size, self.target.size), from_which_on(self.foreground[0])
        found = find_instances(self.scores, self.foreground, sizes, most, threshold)
        parts = (restricted(self.scores, self.likeness, self.foreground, each) for each in found)
        results = [replace(self, **part._asdict(), keypoints=None) for part in parts]
        return sorted(results, key=lambda each: -float(each.matches(100).confidence.mean()))

    @overload
    def matches(self, top: int = 300, spread: bool = False, background: bool = False) -> Matches: ...
    @overload
    def matches(
        self, top: int = ..., spread: bool = ..., background: bool = ..., *, instances: int
    ) -> list[Matches]: ...

    def matches(
        self, top: int = 300, spread: bool = False, background: bool = False, instances: int | None = None
    ) -> Matches | list[Matches]:
        """The best matches of the grid, the best first: confident ones whose both ends lie on a thing.

        Models that cannot tell a thing from its background give the most confident matches. Where few matches lie
        on the thing there are fewer than ``top``, but always one.

        Args:
            top: most matches.
            spread: good matches that lie far apart, such as a drawing shows, instead of the very best.
            background: matches of the background too, as confident as they are.
            instances: the best of each of at most so many things of the target, as a list; see :meth:`instances`.

        Raises:
            InputError: ``top`` or ``instances`` is not positive.
        """
        top = check_count("the number of matches", top)
        if instances is not None:
            return [each.matches(top, spread, background) for each in self.instances(instances)]
        positions, confidence = (values.cpu().double() for values in self.forward)
        grid = grid_points((positions.shape[0], positions.shape[1]), like=positions)
        source, inside = (self.source.to_picture(grid.flatten(0, 1), inside=each) for each in (False, True))
        seen = (source - inside).abs().amax(1) < 1e-6  # not beside a turned area
        foreground = (None, None) if background else self.foreground
        best, strength = best_matches(confidence, positions, foreground, seen)
        rows = spread_out(source[best].numpy(), top, weights=strength.numpy() ** 2) if spread else range(top)
        best = best[sorted(rows)[: len(best)]]
        target = self.target.to_picture(positions.flatten(0, 1)[best], inside=True)
        return Matches(source[best].numpy(), target.numpy(), confidence.flatten()[best].numpy())

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
            >>> whole = View.of(np.zeros((40, 60)))
            >>> same = MatchResult(50 * torch.eye(16).view(1, 1, 4, 4, 4, 4), whole, whole, TransferConfig())
            >>> flow = same.flow(size=(8, 12))
            >>> flow.shape, float(abs(flow).max()) < 0.01
            ((8, 12, 2), True)
        """
        if direction not in ("forward", "backward"):
            raise InputError(f"direction must be forward or backward, got {direction!r}")
        start, end, positions = self.source, self.target, self._positions
        if direction == "backward":
            start, end, positions = self.target, self.source, self._back.positions
        size = check_size(start.picture.size if size is None else size)
        output = np.empty((*size, 2), dtype=np.float32)
        for rows, moved, centres in dense_strips(positions.float().cpu(), size, start):
            there = end.to_picture(moved.clamp(-1, 1), inside=True)
            output[rows] = (there - normalised_to_pixels(centres, start.picture.size)).numpy()
        return output

    def confidence_at(self, size: Size | None = None) -> Float32[np.ndarray, "h w"]:
        """The confidence of every point of a forward :meth:`flow` of the same size."""
        size = check_size(self.source_size if size is None else size)
        output = np.empty(size, dtype=np.float32)
        for rows, values, _ in dense_strips(
            self.forward.confidence.float().cpu()[None, ..., None], size, self.source
        ):
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
        size = check_size(self.target_size if size is None else size)
        if method == "tps":
            chosen, sizes = keypoints or self.matches(600, background=True), (self.source_size, self.target_size)
            return draw_warped(drawn, spline_through(*chosen, *sizes, exact=keypoints is not None), size)
        positions, confidence = (values.float().cpu()[None] for values in self.backward)
        smooth = smooth_positions(positions, confidence)
        return draw_warped(
            drawn, pixels_to_normalised(self.source.to_picture(smooth), self.source_size), size, self.target
        )

    def heat(self, point: ArrayLike) -> Float32[np.ndarray, "ht wt"]:
        """How likely each position of the target is the match of one point of the source; the sum is 1.

        Positions are a regular grid whose outer points lie on the border of the whole target picture. The mean
        position is where :meth:`transfer` puts the point.

        Args:
            point: (x, y) in pixels of the source.

        Raises:
            InputError: it is not one point.
        """
        rows = check_points(point)
        if len(rows) != 1:
            raise InputError(f"a heat map is of one point, got {len(rows)}")
        heat = (
            heat_at(self.scores, self._normalised(self.source, rows, self._positions), self.config).float().cpu()
        )
        return whole_heat(heat, self.target).numpy()

    def winning_scales(self, matches: Matches) -> Float64[np.ndarray, "n 2"]:
        """The scales (source, target) at which each match got its best vote.

        Raises:
            InputError: the model has one scale only, or the scales were not asked for when matching.
        """
        if len(self.scales) == 1:
            raise InputError("this model matches at one scale; models like the paper's have several")
        if self.scale_pairs is None:
            raise InputError("the winning scales were not kept; match with scales=True")
        sides = (self.source, matches.source), (self.target, matches.target)
        ends = (torch.from_numpy(view.from_picture(check_points(points)))[None] for view, points in sides)
        pair = match_scores(self.scale_pairs[:, None].cpu(), *ends)[0].numpy()
        scales = np.asarray(self.scales, dtype=np.float64)
        return np.stack([scales[pair // len(scales)], scales[pair % len(scales)]], axis=-1)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the result, without the pictures, to one safetensors file; :meth:`load` reads it.

        Raises:
            InputError: the name does not end in ``.safetensors``, or the file exists or cannot be written.
        """
        save_result({each.name: getattr(self, each.name) for each in fields(self)}, path, overwrite)

    @staticmethod
    def load(path: str | Path) -> "MatchResult":
        """Read what :meth:`save` wrote. Transfers are the same to the last bit.

        Raises:
            InputError: there is no such file, or it holds something else.
        """
        stored = load_result(path)
        if stored["keypoints"] is not None:
            stored["keypoints"] = Matches(*stored["keypoints"])
        return MatchResult(**stored)
