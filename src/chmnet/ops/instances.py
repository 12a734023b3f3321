"""Several things of one kind: which positions of two pictures belong to each pair of things that match.

A *thing of the source* is a connected part of its foreground. Its positions vote for where it lies in the target
and at what size, as in a Hough transform, and each vote counts as much as its score. The strongest place is one
thing of the target. What it explains is taken away, and the rest is voted on again. A further place counts only if
the same parts of the source match there again: what is left of the thing that was found matches other parts.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from chmnet.geometry import Size, check_count

Foreground = tuple[Float[Tensor, "1 a b"] | None, Float[Tensor, "1 c d"] | None]
"""The probability that positions of source and target lie on a thing; ``None``: nobody can tell."""
SCALES = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
"""Sizes of a thing in the target that are tried, as shares of its size in the source."""
FREEDOM = 0.2
"""How far a part may lie from where the fit expects it, as a share of the thing's side."""
STRETCH = 1.4
"""By how much a fit may be refined to be larger or smaller, along each axis."""
SUPPORTED = 0.1
"""Parts of less than this share of the best score do not say what a fit explains."""
REPEATED = 0.74
"""How alike (as a cosine) the parts that match on two things of the target must be, at least."""
TOUCHING = 0.2
"""What a place loses of that likeness if all of it lies at the edge of what was found before."""
EDGE = 2.0
"""Cells from what was found that are its edge: no fit explains a thing up to its outline."""
BEYOND = 3.0
"""Cells around what a fit explains that still belong to the thing."""
LEAST = 0.3
"""Strength of a group, at least, as a share of the strongest one's."""
THING_AREA = 0.25
"""Area of a thing of the source, at least, as a share of the largest one's."""


class Instance(NamedTuple):
    """A thing of the source and one of the target that match."""

    source: Bool[Tensor, "hs ws"]
    """Positions that are nearer to this thing of the source than to any other."""
    target: Bool[Tensor, "ht wt"]
    """Positions on this thing of the target and around it, nearer to it than to any other; all, if it is alone."""
    strength: float
    """Mean score of its parts, as a share of the strongest instance's."""


class Restricted(NamedTuple):
    """What a result is made of, for one instance."""

    scores: Float[Tensor, "1 1 hs ws ht wt"]
    likeness: Float[Tensor, "1 e f g h"] | None
    foreground: Foreground


class _Fit(NamedTuple):
    """Where a thing of the source lies in the target."""

    value: float
    support: Float[Tensor, " cells"]
    """Score of each of its positions."""
    region: Bool[Tensor, "ht wt"]
    """What it explains of the target."""


def find_instances(
    scores: Float[Tensor, "1 1 hs ws ht wt"],
    foreground: Foreground = (None, None),
    sizes: tuple[Size, Size] = ((1, 1), (1, 1)),
    most: int = 3,
    threshold: float = 0.5,
) -> list[Instance]:
    """The pairs of things of two pictures that match, the strongest first; at least one.

    No two of them are on the same thing of the target; a thing of the source may be in several.

    Args:
        scores: of every pair of positions.
        foreground: of source and target, on grids of any size; ``None``: all positions lie on a thing.
        sizes: (height, width) of the two pictures, in any unit.
        most: pairs of things.
        threshold: probability from which on a position of the source lies on a thing.

    Raises:
        InputError: ``most`` is not positive.

    Example:
        >>> scores = torch.zeros(1, 1, 6, 6, 6, 12)
        >>> for row in range(6):
        ...     for column in range(6):  # the source stands in the target twice, side by side
        ...         scores[0, 0, row, column, row, [column, column + 6]] = torch.tensor([1.0, 0.9])
        >>> left, right = find_instances(scores, sizes=((60, 60), (60, 120)))
        >>> left.target[0, [2, 9]].tolist(), right.target[0, [2, 9]].tolist()
        ([True, False], [False, True])
    """
    most = check_count("the number of instances", most)
    scores = scores[0, 0].float().clamp(min=0)
    start, end = (scores.shape[0], scores.shape[1]), (scores.shape[2], scores.shape[3])
    here, there = _enlarged(foreground[0], start, scores), _enlarged(foreground[1], end, scores)
    things = split_things(here >= min(threshold, float(here.max())))
    sources = nearest_region(torch.stack(things))
    best = scores.amax((0, 1)).clamp(min=1e-9)
    votes = scores * (scores / best) * there * here[:, :, None, None]  # as far as they are the best of the target
    stretch = [sizes[0][axis] / sizes[1][axis] * end[axis] / start[axis] for axis in (0, 1)]
    mean = math.sqrt(stretch[0] * stretch[1])
    shape = stretch[0] / mean, stretch[1] / mean
    free = torch.ones(end, dtype=torch.bool, device=scores.device)
    found: list[tuple[int, _Fit]] = []
    while len(found) < most:
        fits = [(number, _fit(votes, thing, free, shape)) for number, thing in enumerate(things)]
        number, fit = max(fits, key=lambda each: each[1].value)
        if found and not _is_another(number, fit, found):
            break
        found.append((number, fit))
        free = free & ~fit.region
    nearest = nearest_region(torch.stack([fit.region for _, fit in found]))
    first = max(found[0][1].value, 1e-9)
    instances = []
    for place, (number, fit) in enumerate(found):
        around = _around(fit.region.nonzero().float(), end, BEYOND) if len(found) > 1 else torch.ones_like(free)
        instances.append(Instance(sources == number, (nearest == place) & around, fit.value / first))
    return instances


def restricted(
    scores: Float[Tensor, "1 1 hs ws ht wt"],
    likeness: Float[Tensor, "1 e f g h"] | None,
    foreground: Foreground,
    instance: Instance,
) -> Restricted:
    """Scores, likeness and foreground of one instance: nothing else of the target is like anything.

    Args:
        scores: of every pair of positions.
        likeness: of every pair of positions of the features, if it is known.
        foreground: of source and target.
        instance: of :func:`find_instances`.

    Example:
        >>> half = Instance(torch.ones(1, 1).bool(), torch.tensor([[True, False]]), 1.0)
        >>> restricted(torch.ones(1, 1, 1, 1, 1, 2), None, (None, torch.ones(1, 1, 2)), half).foreground[1]
        tensor([[[1., 0.]]])
    """
    source, target = foreground
    kept = torch.where(instance.target, scores, scores.amin())
    if likeness is not None:
        likeness = likeness * _resized(instance.target, likeness)
    if source is not None:
        source = source * _resized(instance.source, source)
    if target is not None:
        target = target * _resized(instance.target, target)
    return Restricted(kept, likeness, (source, target))


def _resized(mask: Bool[Tensor, "h w"], like: Tensor) -> Float[Tensor, "a b"]:
    """A mask on the last two dimensions of something else."""
    grid = F.interpolate(mask[None, None].to(like), size=like.shape[-2:], mode="bilinear", align_corners=True)[
        0, 0
    ]
    return (grid >= 0.5).to(like)


def _enlarged(foreground: Tensor | None, size: Size, like: Tensor) -> Float[Tensor, "h w"]:
    if foreground is None:
        return like.new_ones(size)
    return F.interpolate(foreground[None].to(like), size=size, mode="bilinear", align_corners=True)[0, 0]


def _is_another(number: int, fit: _Fit, found: list[tuple[int, _Fit]]) -> bool:
    """Whether a fit is one more thing of the target: strong, of the same parts as the first, and beside it."""
    if fit.value < LEAST * found[0][1].value or not bool(fit.region.any()):
        return False
    before = next((other for thing, other in found if thing == number), None)
    if before is None:
        return True
    taken = torch.stack([other.region for _, other in found]).any(0)
    edge = _around(taken.nonzero().float(), (taken.shape[0], taken.shape[1]), EDGE)
    touching = float((edge & fit.region).sum() / fit.region.sum())
    return float(F.cosine_similarity(before.support, fit.support, dim=0)) - TOUCHING * touching >= REPEATED


def split_things(on_thing: Bool[Tensor, "h w"]) -> list[Bool[Tensor, "h w"]]:
    """The connected parts of a foreground, the largest first, without those that are much smaller.

    Example:
        >>> [thing.int().tolist() for thing in split_things(torch.tensor([[True, False, True, True]]))]
        [[[0, 0, 1, 1]], [[1, 0, 0, 0]]]
    """
    numbers = torch.arange(1.0, on_thing.numel() + 1, device=on_thing.device).view_as(on_thing) * on_thing
    while True:  # the largest number spreads over each part
        spread = F.max_pool2d(numbers[None, None], 3, 1, 1)[0, 0] * on_thing
        if torch.equal(spread, numbers):
            break
        numbers = spread
    labels, areas = numbers[on_thing].unique(return_counts=True)
    order = areas.argsort(descending=True, stable=True)
    return [numbers == labels[place] for place in order.tolist() if areas[place] >= THING_AREA * areas.max()]


def nearest_region(regions: Bool[Tensor, "n h w"]) -> Tensor:
    """For each position, the number of the region that is nearest to it.

    Example:
        >>> nearest_region(torch.tensor([[[True, False, False, False]], [[False, False, False, True]]])).tolist()
        [[0, 0, 1, 1]]
    """
    places = torch.ones_like(regions[0]).nonzero().float()
    distances = [
        torch.cdist(places, region.nonzero().float()).amin(1)
        if bool(region.any())
        else torch.full_like(places[:, 0], torch.inf)
        for region in regions
    ]
    return torch.stack(distances).argmin(0).view_as(regions[0])


def _fit(
    votes: Float[Tensor, "hs ws ht wt"],
    thing: Bool[Tensor, "hs ws"],
    free: Bool[Tensor, "ht wt"],
    shape: tuple[float, float],
) -> _Fit:
    """The strongest place of one thing among the free positions of the target."""
    rows = votes[thing] * free
    cells = thing.nonzero().float()
    cells = cells - cells.mean(0)  # from the middle of the thing
    side = math.sqrt(max(9, len(cells)))
    mutual = rows * rows / rows.amax((1, 2), keepdim=True).clamp(min=1e-9)
    stretch = torch.tensor(shape, device=votes.device)
    best, scale, middle = -1.0, 1.0, (0, 0)
    for each in SCALES:
        places = _middles(mutual, each * stretch * cells)
        smooth = _blurred(places, max(1.0, each * side / 6)) / math.sqrt((each * side) ** 2 + 9)
        if float(smooth.max()) > best:
            best, scale = float(smooth.max()), each
            middle = divmod(int(smooth.argmax()), smooth.shape[1])
    expected = cells * scale * stretch + torch.tensor(middle, device=votes.device)
    reach = max(1.5, FREEDOM * scale * side)
    support, positions = _near(rows, expected, reach)
    support, positions = _near(rows, _refined(cells, positions, support, scale * stretch), reach)
    clear = support > SUPPORTED * support.max()
    region = _around(positions[clear], (votes.shape[2], votes.shape[3]), max(1.0, 1.5 * scale))
    return _Fit(float(support.mean()), support, region & free)


def _middles(votes: Float[Tensor, "cells ht wt"], offsets: Float[Tensor, "cells 2"]) -> Float[Tensor, "ht wt"]:
    """Votes for each position of the target to be the middle of the thing."""
    _, height, width = votes.shape
    row = (torch.arange(height, device=votes.device) - offsets[:, :1]).round().long()
    column = (torch.arange(width, device=votes.device) - offsets[:, 1:]).round().long()
    inside = ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[:, None]
    index = torch.where(inside, row[:, :, None] * width + column[:, None], height * width)
    found = votes.new_zeros(height * width + 1).index_add_(0, index.flatten(), votes.flatten())
    return found[:-1].view(height, width)


def _blurred(values: Float[Tensor, "h w"], sigma: float) -> Float[Tensor, "h w"]:
    reach = math.ceil(3 * sigma)
    bell = torch.exp(-(torch.arange(-reach, reach + 1.0, device=values.device) / sigma).square() / 2)
    rows = F.conv2d(values[None, None], bell.view(1, 1, -1, 1), padding=(reach, 0))
    return F.conv2d(rows, bell.view(1, 1, 1, -1), padding=(0, reach))[0, 0]


def _near(
    votes: Float[Tensor, "cells ht wt"], expected: Float[Tensor, "cells 2"], reach: float
) -> tuple[Float[Tensor, " cells"], Float[Tensor, "cells 2"]]:
    """The best score of each position of the source near where it is expected, and its (row, column)."""
    _, height, width = votes.shape
    bells = [
        torch.exp(-((torch.arange(length, device=votes.device) - middle[:, None]) / reach).square() / 2)
        for length, middle in zip((height, width), expected.unbind(1), strict=True)
    ]
    near = votes * rearrange(bells[0], "n h -> n h 1") * rearrange(bells[1], "n w -> n 1 w")
    best, place = near.flatten(1).max(1)
    return best, torch.stack([place // width, place % width], 1).float()


def _refined(
    cells: Float[Tensor, "cells 2"],
    positions: Float[Tensor, "cells 2"],
    weights: Float[Tensor, " cells"],
    scale: Float[Tensor, "2"],
) -> Float[Tensor, "cells 2"]:
    """Expected positions by the best scale along each axis and the best displacement, least squares."""
    share = (weights / weights.sum().clamp(min=1e-9))[:, None]
    start, end = (share * cells).sum(0), (share * positions).sum(0)
    spread = (share * (cells - start).square()).sum(0)
    slope = (share * (cells - start) * (positions - end)).sum(0) / spread.clamp(min=1e-9)
    return end + slope.clamp(scale / STRETCH, scale * STRETCH) * (cells - start)


def _around(positions: Float[Tensor, "n 2"], size: Size, radius: float) -> Bool[Tensor, "ht wt"]:
    """The positions of a grid near any of those given."""
    grid = torch.ones(size, device=positions.device).nonzero().float()
    if not len(positions):
        return grid.new_zeros(size, dtype=torch.bool)
    return (torch.cdist(grid, positions).amin(1) <= radius + 1e-3).view(size)
