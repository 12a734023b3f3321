"""How far matches can be trusted: what speaks against each of them, and the probabilities that follow.

*Likeness* is the cosine of every pair of positions of the two feature grids, before any vote. *Foreground* is the
probability that a position of a feature grid lies on a thing; ``None`` where nobody can tell, and then every
position counts alike.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor

from chmnet.config import PLAIN_CALIBRATION
from chmnet.geometry import Size, grid_points, normalised_to_grid
from chmnet.ops.transfer import (
    BORDER_DOUBT,
    Located,
    border_trust,
    cells_missed,
    cycle_consistency,
    sample_positions,
)

NEIGHBOURHOOD = 5
"""Side, in cells, of the square whose mean displacement a match is compared with."""

SHARPNESS = 4
"""Power of the likeness when arrangements are compared: few good matches count more than many poor ones."""

Likeness = Float[Tensor, "1 hs ws ht wt"]
Foreground = tuple[Float[Tensor, "1 hs ws"] | None, Float[Tensor, "1 ht wt"] | None]


class PairEvidence(NamedTuple):
    """What two pictures say about all of their matches together; each number speaks against them."""

    unlike: float
    """1 − the mean likeness of each position of a thing with what is most like it in the other picture."""
    scattered: float
    """−log of the share of all mutual likeness that one displacement explains."""
    mirrored: float
    """log of what one displacement explains when the source is mirrored, against when it is not."""
    opposed: float
    """Whether the things face different ways: 1, the same: −1; 0: nobody can tell."""
    small_source: float
    """−log of the share of the source that the thing takes."""
    small_target: float


def pair_evidence(
    likeness: Likeness,
    foreground: Foreground = (None, None),
    facing: tuple[float | None, float | None] = (None, None),
) -> PairEvidence:
    """What speaks against two pictures showing the same kind of thing from the same side.

    Args:
        likeness: of the two pictures.
        foreground: of source and target.
        facing: which way the things face, −1 left … 1 right; ``None``: nobody can tell.

    Example:
        >>> same = torch.eye(9).view(1, 3, 3, 3, 3)
        >>> [round(number, 1) for number in pair_evidence(same)[:3]]
        [0.0, 1.8, -0.9]
    """
    scores = likeness[0].float().clamp(min=0)
    source, target = (scores.shape[0], scores.shape[1]), (scores.shape[2], scores.shape[3])
    weights = [_weights(side, size, scores) for side, size in zip(foreground, (source, target), strict=True)]
    matrix = scores.flatten(2).flatten(0, 1)
    rows, columns = matrix.amax(1), matrix.amax(0)
    unlike = 1 - (_mean(rows, weights[0]) + _mean(columns, weights[1])) / 2
    mutual = matrix.pow(3) / (rows[:, None] * columns).clamp(min=1e-6)
    mutual = mutual.pow(SHARPNESS) * weights[0][:, None] * weights[1]
    plain, mirror = (_strongest_move(mutual, source, target, flipped) for flipped in (False, True))
    total = float(mutual.sum())
    return PairEvidence(
        unlike=unlike,
        scattered=_log_ratio(total, plain),
        mirrored=_log_ratio(mirror, plain),
        opposed=0.0 if facing[0] is None or facing[1] is None else -facing[0] * facing[1],
        small_source=_log_ratio(1.0, float(weights[0].mean())),
        small_target=_log_ratio(1.0, float(weights[1].mean())),
    )


def _weights(foreground: Tensor | None, size: Size, like: Tensor) -> Float[Tensor, " cells"]:
    if foreground is None:
        return like.new_ones(size[0] * size[1])
    return foreground[0].to(like).flatten()


def _mean(values: Tensor, weights: Tensor) -> float:
    return float((values * weights).sum() / weights.sum().clamp(min=1e-6))


def _log_ratio(above: float, below: float) -> float:
    return float(torch.tensor([max(above, 1e-9) / max(below, 1e-9)]).log())


def _strongest_move(weights: Float[Tensor, "source target"], source: Size, target: Size, mirrored: bool) -> float:
    """The most that goes along with one displacement, give or take a cell; of the mirrored source if so wished."""
    rows, columns = (
        torch.arange(there, device=weights.device) - torch.arange(here, device=weights.device)[:, None] + here - 1
        for here, there in zip(source, target, strict=True)
    )
    if mirrored:
        columns = columns.flip(0)
    width, height = source[1] + target[1] - 1, source[0] + target[0] - 1
    moves = rearrange(rows, "hs ht -> hs 1 ht 1") * width + rearrange(columns, "ws wt -> 1 ws 1 wt")
    found = weights.new_zeros(height * width).index_add_(0, moves.flatten(), weights.flatten())
    bell = torch.exp(-torch.arange(-3.0, 4.0, device=weights.device).square() / 2)
    bell = (bell / bell.sum()).to(found)
    smooth = F.conv2d(found.view(1, 1, height, width), bell.view(1, 1, 7, 1), padding=(3, 0))
    return float(F.conv2d(smooth, bell.view(1, 1, 1, 7), padding=(0, 3)).max())


class Clues(NamedTuple):
    """What two pictures show beside the scores of their matches."""

    likeness: Likeness
    foreground: Foreground
    pair: PairEvidence

    def exchanged(self) -> "Clues":
        """The same with source and target exchanged."""
        pair = self.pair._replace(small_source=self.pair.small_target, small_target=self.pair.small_source)
        return Clues(rearrange(self.likeness, "b hs ws ht wt -> b ht wt hs ws"), self.foreground[::-1], pair)


def gather_clues(
    likeness: Likeness | None, foreground: Foreground, facing: tuple[float | None, float | None]
) -> Clues | None:
    """All that :func:`match_evidence` needs of two pictures; ``None`` without their likeness."""
    if likeness is None:
        return None
    return Clues(likeness, foreground, pair_evidence(likeness, foreground, facing))


def match_evidence(there: Located, back: Float[Tensor, "1 ht wt 2"], clues: Clues) -> Float[Tensor, "1 hs ws 13"]:
    """What speaks against the match of each source position.

    ``log(1 + m)`` with m the cells by which going there and back misses; the entropy of the match's probabilities
    as a share of the largest possible one, 0 … 1; ``log(1 + r)`` with r the cells by which its displacement
    differs from the mean of its neighbourhood's; nearness of its target to the border, 0 … 1; 1 − the likeness of
    its two ends; how much more like its source another place is; the probabilities that it starts, and that it
    ends, on the background. Then all of :class:`PairEvidence` but the first.

    Args:
        there: from :func:`chmnet.ops.transfer.locate`.
        back: position map of the exchanged scores.
        clues: of the two pictures.
    """
    positions, likeness = there.positions, clues.likeness
    start = grid_points((positions.shape[1], positions.shape[2]), like=positions)[None]
    alike = _likeness_at(likeness[0].to(positions), start, positions)
    best = sample_positions(likeness.flatten(3).amax(-1)[..., None].to(positions), start)[..., 0]
    ends = [
        torch.zeros_like(alike)
        if side is None
        else 1 - sample_positions(side[..., None].to(positions), at)[..., 0]
        for side, at in zip(clues.foreground, (start, positions), strict=True)
    ]
    border = (1 - border_trust(positions, (back.shape[1], back.shape[2]))) / BORDER_DOUBT
    own = torch.stack([border, 1 - alike, (best - alike).clamp(min=0), *ends], dim=-1)
    whole = positions.new_tensor(clues.pair[1:]).expand(*own.shape[:-1], -1)
    return torch.cat([map_evidence(there, back), own, whole], dim=-1)


def map_evidence(there: Located, back: Float[Tensor, "b ht wt 2"]) -> Float[Tensor, "b hs ws 3"]:
    """The first three kinds of :func:`match_evidence`, which position maps alone show; 0, 0, 0: nothing."""
    positions = there.positions
    size = (positions.shape[1], positions.shape[2])
    moves = normalised_to_grid(positions, size) - normalised_to_grid(grid_points(size, like=positions), size)
    plane = rearrange(moves, "b h w k -> b k h w")
    mean = F.avg_pool2d(plane, NEIGHBOURHOOD, 1, NEIGHBOURHOOD // 2, count_include_pad=False)
    roughness = (plane - mean).square().sum(1).sqrt()
    return torch.stack([cells_missed(positions, back).log1p(), there.entropy, roughness.log1p()], dim=-1)


def _likeness_at(
    likeness: Float[Tensor, "hs ws ht wt"], source: Float[Tensor, "1 h w 2"], target: Float[Tensor, "1 h w 2"]
) -> Float[Tensor, "1 h w"]:
    """Likeness of pairs of normalised positions, linear between the positions of both grids."""
    rows, row_weights = _corners(source, (likeness.shape[0], likeness.shape[1]))
    columns, column_weights = _corners(target, (likeness.shape[2], likeness.shape[3]))
    values = likeness.flatten(2).flatten(0, 1)[rows[..., :, None], columns[..., None, :]]
    return torch.einsum("bhwst,bhws,bhwt->bhw", values, row_weights, column_weights)


def _corners(
    points: Float[Tensor, "1 h w 2"], size: Size
) -> tuple[Int64[Tensor, "1 h w 4"], Float[Tensor, "1 h w 4"]]:
    """The four grid positions around each point, numbered row by row, and how much each counts."""
    last = points.new_tensor([size[1] - 1, size[0] - 1])
    cells = torch.minimum(normalised_to_grid(points, size).clamp(min=0), last)
    low = cells.floor()
    share = cells - low
    (x0, y0), (x1, y1) = low.long().unbind(-1), torch.minimum(low + 1, last).long().unbind(-1)
    x, y = share.unbind(-1)
    numbers = torch.stack([y0 * size[1] + x0, y0 * size[1] + x1, y1 * size[1] + x0, y1 * size[1] + x1], dim=-1)
    return numbers, torch.stack([(1 - y) * (1 - x), (1 - y) * x, y * (1 - x), y * x], dim=-1)


def calibrated(evidence: Float[Tensor, "*places kinds"], numbers: tuple[float, ...]) -> Float[Tensor, "*places"]:
    """A probability, by a logistic function of what speaks against it.

    Args:
        evidence: such as from :func:`match_evidence`.
        numbers: the logit without any evidence, and what each kind takes away from it.

    Example:
        >>> calibrated(torch.tensor([[0.0, 0, 0], [2.0, 0, 0]]), (2.0, 1.0, 0.5, 0.5))
        tensor([0.8808, 0.5000])
    """
    first, *slopes = numbers
    return torch.sigmoid(first - evidence @ evidence.new_tensor(slopes))


def logistic(first: float, slopes: Sequence[float], evidence: Sequence[float]) -> float:
    """A probability by what speaks for it, in plain numbers: the logit without any, and slopes.

    Example:
        >>> logistic(0.0, [2.0], [0.0]), round(logistic(-1.0, [2.0, 1.0], [1.0, 1.0]), 2)
        (0.5, 0.88)
    """
    logit = first + sum(slope * each for slope, each in zip(slopes, evidence, strict=True))
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, logit))))


def same_kind(clues: Clues, numbers: tuple[float, ...]) -> float:
    """The probability that two pictures show the same kind of thing: there is one in each, and they are alike.

    Args:
        clues: of the two pictures.
        numbers: see :func:`calibrated`, for the first two numbers of :class:`PairEvidence`.

    Example:
        >>> alike, nowhere = torch.ones(1, 3, 3, 3, 3), torch.zeros(1, 3, 3)  # two blank pictures
        >>> same_kind(gather_clues(alike, (nowhere, nowhere), (None, None)), (2.0, 1.0, 1.0))
        0.0
    """
    probability = float(calibrated(torch.tensor(clues.pair[:2]).double(), numbers))
    for side in clues.foreground:
        probability *= 1.0 if side is None else float(side.max())
    return probability


def confidence_map(
    there: Located, back: Float[Tensor, "b ht wt 2"], clues: Clues | None = None, numbers: tuple[float, ...] = ()
) -> Float[Tensor, "b hs ws"]:
    """How far the match of each source position can be trusted, 0 … 1.

    With a calibration, the share of such matches that were right where it was made. Those of version 0.1 go by
    position maps alone; without any, or where the clues that it needs are missing, it is cycle consistency. These
    two are lowered for matches at the border.

    Args:
        there: from :func:`chmnet.ops.transfer.locate`.
        back: position map of the exchanged scores.
        clues: of the two pictures, if they are known.
        numbers: see :func:`calibrated`: none, for :func:`match_evidence`, or four for :func:`map_evidence`.
    """
    if len(numbers) == PLAIN_CALIBRATION:
        trust = calibrated(map_evidence(there, back), numbers)
    elif numbers and clues is not None:
        return calibrated(match_evidence(there, back, clues), numbers)
    else:
        trust = cycle_consistency(there.positions, back)
    return trust * border_trust(there.positions, (back.shape[1], back.shape[2]))
