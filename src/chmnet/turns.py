"""How far the target is turned: views of it turned by steps, and the choice among them by how well they agree."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from chmnet.corners import find_canvas
from chmnet.features import Features
from chmnet.ops.correlation import cosine_correlation, resize_features
from chmnet.ops.evidence import logistic
from chmnet.pictures import Area, View
from chmnet.place import Vote, agree, mutual
from chmnet.turning import Size

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

Looks = Callable[[Sequence[View], str, float], list[Features]]
"""Extracts features of views, for a branch of the network, at a share of the side of matched pictures."""

PLAIN: Final = (math.inf, -3.0, 8.0, 2.0)
"""For models that nothing was fitted to: all turns are always tried, and one must be clearly better."""
_MATCHES = 60
"""Best matches that a twist is read from."""
_BINS = 36
"""Of the histogram of angles."""
_NEAR = 0.1
"""Two matches tell of an angle where they are so far apart in both pictures, as a share of the longer side."""


def find_turn(
    source: Features, target: Features, looks: Looks, vote: Vote, numbers: Sequence[float]
) -> tuple[Features, float]:
    """The target turned as it goes best with the source, and the probability that it does.

    Nothing is tried where the target agrees well as it is and its matches are straight. Otherwise all turns are
    tried on small pictures; those that agree best are compared at full size.

    Args:
        source: features of the source.
        target: features of the target, which is not turned.
        looks: extracts features of other views.
        vote: coarse votes between two pictures.
        numbers: ``calibration.turn`` of the model; empty: nothing was fitted.
    """
    view, branch, enough = target.view, target.branch, (numbers or PLAIN)[0]
    as_it_is = agree(source, target, vote)
    if as_it_is >= enough and abs(twist(source, target)) <= STRAIGHT:
        return target, 1.0
    views, canvas = turned_views(view)
    small = looks([source.view], source.branch, SMALL_SHARE)[0] if source.view.picture.at_hand else source
    coarse = [agree(small, each, vote) for each in looks(views, branch, SMALL_SHARE)]
    finalists = sorted(range(len(coarse)), key=coarse.__getitem__, reverse=True)[:FINALISTS]
    others = looks([views[number] for number in finalists], branch, 1.0)
    values = [agree(source, other, vote) for other in others]
    best = max(range(len(others)), key=values.__getitem__)
    evidence = turn_evidence(as_it_is, values[best], coarse, finalists[best], canvas)
    probability = turn_probability(evidence, numbers, canvas)
    return (others[best], probability) if probability > 0.5 else (target, 1 - probability)


def turn_evidence(
    as_it_is: float, other: float, coarse: Sequence[float], chosen: int, canvas: bool = False
) -> tuple[float, float]:
    """What speaks for a turned target: it agrees better than the target as it is, and better than other turns.

    Args:
        as_it_is: how well the target agrees as it is, at full size.
        other: likewise the turned one.
        coarse: of all turned targets, in small pictures.
        chosen: which of them the turned one is.
        canvas: they are turned by right angles against each other. Otherwise the two beside the chosen one, which
            agree nearly as well, do not count.

    Returns:
        Logarithms of ratios: to the target as it is; to the best of other turns.

    Example:
        >>> [round(number, 3) for number in turn_evidence(0.2, 0.4, [0.1, 0.3, 0.4, 0.2, 0.1], 2)]
        [0.693, 1.386]
    """
    apart = 0 if canvas else 1
    rest = [value for number, value in enumerate(coarse) if abs(number - chosen) > apart]
    logs = [math.log(max(value, 1e-4)) for value in (as_it_is, other, coarse[chosen], max(rest))]
    return logs[1] - logs[0], logs[2] - logs[3]


def turn_probability(evidence: tuple[float, float], numbers: Sequence[float], canvas: bool = False) -> float:
    """How likely a turned target is the better one to match.

    Args:
        evidence: see :func:`turn_evidence`.
        numbers: ``calibration.turn`` of the model; empty: nothing was fitted.
        canvas: the picture lies turned on a plain canvas. Then both are as likely before anything is compared.

    Example:
        >>> [round(turn_probability((gain, 0.5), (0.4, -4.0, 7.0, 5.0)), 2) for gain in (-0.3, 0.0, 0.6)]
        [0.03, 0.18, 0.94]
    """
    _, first, *slopes = numbers or PLAIN
    return logistic(max(0.0, first) if canvas else first, slopes, evidence)


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
    much smaller; what is seen of its middle is as large as the picture.

    Example:
        >>> import numpy as np
        >>> view = View.of(np.zeros((20, 30), dtype=np.uint8))
        >>> turned(view, -90).turn, replace(turned(view, 45), window=None).size, turned(view, 45).size
        (270, (36, 36), (24, 24))
    """
    view = replace(view, turn=(view.turn + degrees) % 360, window=None)
    if view.turn % 90 == 0 or view.area is not None:
        return view
    (height, width), frame = view.picture.size, view.size
    share = max(LEAST_MIDDLE, math.sqrt(height * width / (frame[0] * frame[1])))
    return _middle(view, (round(share * frame[0]), round(share * frame[1])))


def turned_views(view: View) -> tuple[list[View], bool]:
    """The ways to turn a view that are tried, and whether it shows that it was turned.

    A picture that was turned and put on a plain canvas is turned back, without the canvas, in all four ways; any
    other by :data:`TURNS`.
    """
    canvas = find_canvas(view.picture.image, view.picture.size) if view.area is None else None
    if canvas is None:
        return [turned(view, turn) for turn in TURNS[1:]], False
    views = [replace(view, turn=(canvas.turn + quarter) % 360) for quarter in (0, 90, 180, 270)]
    lying = canvas.size[1], canvas.size[0]
    return [_middle(each, lying if number % 2 else canvas.size) for number, each in enumerate(views)], True


def seen_area(view: View) -> Area | None:
    """The box in the picture around what is seen of it; ``None``: all of it.

    Example:
        >>> import numpy as np
        >>> view = View.of(np.zeros((100, 100), dtype=np.uint8))
        >>> seen_area(turned(view, 90)), seen_area(replace(view, turn=45, window=(50, 50, 90, 90)))
        (None, (21, 20, 79, 77))
    """
    if view.window is None:
        return view.area
    corners = view.to_picture(np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]), inside=True)
    (left, top), (right, bottom) = np.floor(corners.min(0) + 1e-6), np.ceil(corners.max(0) - 1e-6)
    area = int(left), int(top), int(right), int(bottom)
    return None if area == (0, 0, *view.picture.size[::-1]) else area


def _middle(view: View, size: Size) -> View:
    """What lies in the middle of the frame of a view turned askew, of at most such a (height, width)."""
    frame = view.size
    height, width = min(size[0], frame[0]), min(size[1], frame[1])
    left, top = (frame[1] - width) // 2, (frame[0] - height) // 2
    return replace(view, window=(left, top, left + width, top + height))
