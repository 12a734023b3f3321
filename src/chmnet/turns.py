"""How far the target is turned: views of it turned by steps, and the choice among them by how well they agree."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from chmnet.features import Features
from chmnet.ops.correlation import cosine_correlation, resize_features
from chmnet.ops.evidence import logistic
from chmnet.pictures import View
from chmnet.place import Look, Vote, agree, mutual
from chmnet.turning import turned_size

TURNS = tuple(30.0 * number for number in range(12))
"""Turns that are tried, in degrees. With steps of 45 half of those between them are not found."""
LEAST_MIDDLE = 0.6
"""Share of the sides of a picture that is seen of it, turned, at least."""
SMALL_SHARE = 0.5
"""Side of the pictures that all turns are tried on, as a share of the side that pictures are matched at."""
FINALISTS = 2
"""Turns that are compared at full size."""
STRAIGHT = 12.0
"""Things whose matches say that they are turned by less, in degrees, are upright, if they agree enough."""

PLAIN: Final = (math.inf, -3.0, 8.0, 1.5)
"""For models that nothing was fitted to: all turns are always tried, and one must be clearly better."""
_MATCHES = 60
"""Best matches that a twist is read from."""
_BINS = 36
"""Of the histogram of angles."""
_NEAR = 0.1
"""Two matches tell of an angle where they are so far apart in both pictures, as a share of the longer side."""


def find_turn(
    source: Features, target: Features, look: Look, vote: Vote, numbers: Sequence[float]
) -> tuple[Features, float]:
    """The target turned as it goes best with the source, and the probability that it does.

    Nothing is tried where the target agrees well as it is and its matches are straight. Otherwise all turns are
    tried on small pictures; those that agree best are compared at full size.

    Args:
        source: features of the source.
        target: features of the target, which is not turned.
        look: extracts features of another view.
        vote: coarse votes between two pictures.
        numbers: ``calibration.turn`` of the model; empty: nothing was fitted.
    """
    view, branch, enough = target.view, target.branch, (numbers or PLAIN)[0]
    as_it_is = agree(source, target, vote)
    if as_it_is >= enough and abs(twist(source, target)) <= STRAIGHT:
        return target, 1.0
    small = look(source.view, source.branch, SMALL_SHARE) if source.view.picture.at_hand else source
    coarse = [agree(small, look(turned(view, turn), branch, SMALL_SHARE), vote) for turn in TURNS[1:]]
    finalists = sorted(range(len(coarse)), key=coarse.__getitem__, reverse=True)[:FINALISTS]
    others = [look(turned(view, TURNS[1 + number]), branch, 1.0) for number in finalists]
    values = [agree(source, other, vote) for other in others]
    best = max(range(len(others)), key=values.__getitem__)
    probability = turn_probability(turn_evidence(as_it_is, values[best], coarse, finalists[best]), numbers)
    return (others[best], probability) if probability > 0.5 else (target, 1 - probability)


def turn_evidence(as_it_is: float, other: float, coarse: Sequence[float], chosen: int) -> tuple[float, float]:
    """What speaks for a turned target: it agrees better than the target as it is, and better than other turns.

    Args:
        as_it_is: how well the target agrees as it is, at full size.
        other: likewise the turned one.
        coarse: of all turned targets, in small pictures.
        chosen: which of them the turned one is.

    Returns:
        Logarithms of ratios: to the target as it is; to the geometric mean of all turns.

    Example:
        >>> [round(number, 3) for number in turn_evidence(0.2, 0.4, [0.1, 0.4, 0.1], 1)]
        [0.693, 0.924]
    """
    logs = [math.log(max(value, 1e-4)) for value in (as_it_is, other, *coarse)]
    return logs[1] - logs[0], logs[2 + chosen] - sum(logs[2:]) / len(coarse)


def turn_probability(evidence: tuple[float, float], numbers: Sequence[float]) -> float:
    """How likely a turned target is the better one to match.

    Args:
        evidence: see :func:`turn_evidence`.
        numbers: ``calibration.turn`` of the model; empty: nothing was fitted.

    Example:
        >>> [round(turn_probability((gain, 0.5), (0.4, -4.0, 7.0, 5.0)), 2) for gain in (-0.3, 0.0, 0.6)]
        [0.03, 0.18, 0.94]
    """
    _, first, *slopes = numbers or PLAIN
    return logistic(first, slopes, evidence)


def twist(source: Features, target: Features) -> float:
    """By how much the thing in the target is turned against that in the source, in degrees counter-clockwise.

    Every two of the best mutual matches say an angle; the answer is their mean around the strongest peak. It is
    useful up to some 20 degrees: features of things that are turned by more are hardly alike.

    Example:
        >>> from chmnet.features import Fingerprint
        >>> import numpy as np
        >>> view = View.of(np.zeros((40, 40), dtype=np.uint8))
        >>> cells = torch.eye(16).view(1, 16, 4, 4)
        >>> levels = cells, cells.rot90(1, (2, 3))
        >>> one, two = (Features((level,), (4, 4), view, Fingerprint("")) for level in levels)
        >>> round(twist(one, one), 3), round(twist(one, two), 3)
        (0.0, 90.0)
    """
    weights = (
        mutual(cosine_correlation(source.levels[0].float(), target.levels[0].float())).flatten(2).flatten(0, 1)
    )
    weights = weights * _things(source)[:, None] * _things(target)
    best, ends = weights.max(1)
    best, starts = best.topk(min(_MATCHES, len(best)))
    sides = (source, starts), (target, ends[starts])
    steps = [_steps(side, places) for side, places in sides]
    lengths = [step.norm(dim=-1) / max(side.view.size) for step, (side, _) in zip(steps, sides, strict=True)]
    counts = torch.outer(best.square(), best.square()) * (lengths[0] * lengths[1]).sqrt()
    counts = (counts * (lengths[0] > _NEAR) * (lengths[1] > _NEAR)).flatten()
    before, after = (torch.atan2(step[..., 1], step[..., 0]) for step in steps)
    angles = torch.rad2deg(before - after).flatten() % 360  # y points down
    width = 360 / _BINS
    histogram = counts.new_zeros(_BINS).index_add(0, (angles / width).long() % _BINS, counts)
    peak = width * (int((histogram + histogram.roll(1) + histogram.roll(-1)).argmax()) + 0.5)
    beside = (angles - peak + 180) % 360 - 180
    near = counts * (beside.abs() < 2 * width)
    angle = peak + float((near * beside).sum() / near.sum().clamp(min=1e-9))
    return (angle + 180) % 360 - 180


def _things(side: Features) -> Float[Tensor, " cells"]:
    """The probability of each position of the first level that it lies on a thing."""
    height, width = side.levels[0].shape[-2:]
    if side.foreground is None:
        return torch.ones(height * width, device=side.levels[0].device)
    return resize_features(side.foreground[None].float(), (height, width)).flatten()


def _steps(side: Features, places: Tensor) -> Float[Tensor, "n n 2"]:
    """From each of some positions of the first level to each other, in pixels of the view."""
    rows, columns = side.levels[0].shape[-2:]
    height, width = side.view.size
    points = torch.stack([places % columns * (width / columns), places // columns * (height / rows)], -1)
    return points[None] - points[:, None]


def turned(view: View, degrees: float) -> View:
    """The view turned counter-clockwise; of a whole picture that is not turned by quarters, the middle of it.

    The frame around all of a turned picture would be up to twice as large as the picture, and the thing in it so
    much smaller; that around the middle is as large as the picture.

    Example:
        >>> import numpy as np
        >>> turned(View.of(np.zeros((20, 30), dtype=np.uint8)), -90).turn
        270
    """
    angle = (view.turn + degrees) % 360
    if angle % 90 == 0 or view.area is not None:
        return replace(view, turn=angle)
    height, width = view.picture.size
    frame = turned_size((height, width), angle)
    share = max(LEAST_MIDDLE, math.sqrt(height * width / (frame[0] * frame[1])))
    x, y = int(width * (1 - share) / 2), int(height * (1 - share) / 2)
    return replace(view, area=(x, y, width - x, height - y), turn=angle)
