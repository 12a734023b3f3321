"""Which way the target faces: candidate views of it, and the choice among them by likeness, facing and votes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from chmnet.errors import InputError
from chmnet.features import Features
from chmnet.ops.correlation import cosine_correlation, resize_features
from chmnet.pictures import View
from chmnet.turning import turned_size

POSES = ("upright", "mirror", "any")
"""What may be tried: the target as it is; mirrored too; mirrored and turned too."""
DEFAULT_POSES: Final = "mirror"
"""What is tried unless somebody says otherwise."""
TURNS = tuple(30.0 * number for number in range(12))
"""Turns that are tried, in degrees. Finer ones do not pay: a neighbour of the right turn often votes as well."""
CLEARLY = 1.02
"""A turned target must have so much stronger votes than the target as it is."""
LEAST_MIDDLE = 0.6
"""Share of the sides of a picture that is seen of it, turned, at least."""
SEARCH_SHARE = 0.5
"""Side of the pictures that all turns are tried on, as a share of the side that pictures are matched at."""
FINALISTS = 2
"""Turns that are compared at full size."""

_PLAIN = (-4.9, 0.0, 0.0, 7.0, 60.0)
"""For models that nothing was fitted to: a mirrored target must look clearly more like the source."""
_HALF_CLEAR = 0.3
"""A thing that faces so far to one side counts half."""


def check_poses(poses: str) -> str:
    """Refuse what is not one of :data:`POSES`."""
    if poses not in POSES:
        raise InputError(f"poses must be {', '.join(POSES[:-1])} or {POSES[-1]}, got {poses!r}")
    return poses


Look = Callable[[View, str, float], Features]
"""Extracts features of a view, for a branch of the network, at a share of the side of matched pictures."""
Vote = Callable[[Features, Features], Tensor]
"""The votes of the first layer, on the grids of the features."""


def find_pose(
    source: Features, target: Features, poses: str, look: Look, vote: Vote, numbers: Sequence[float]
) -> tuple[Features, float | None]:
    """The target in the pose that goes best with the source, and the probability that it does.

    A target that somebody mirrored or turned already, or whose picture is not at hand, stays as it is; the
    probability is then ``None``.

    Args:
        source: features of the source.
        target: features of the target.
        poses: ``"mirror"`` or ``"any"``.
        look: extracts features of another view.
        vote: coarse votes between two pictures.
        numbers: ``calibration.pose`` of the model.

    Raises:
        InputError: there are no such poses.
    """
    check_poses(poses)
    view, branch = target.view, target.branch
    if view.mirrored or view.turn or not view.picture.at_hand:
        return target, None
    chance = 1.0
    if poses == "any":
        target, chance = _find_turn(source, target, look, vote, numbers)
    other = look(mirrored(target.view), branch, 1.0)
    probability = mirror_probability(mirror_evidence(source, target, other), numbers)
    return (other, chance * probability) if probability > 0.5 else (target, chance * (1 - probability))


def _find_turn(
    source: Features, target: Features, look: Look, vote: Vote, numbers: Sequence[float]
) -> tuple[Features, float]:
    """The target turned as it goes best with the source, and the probability that it does.

    All turns are tried on small pictures; those with the strongest votes are compared at full size.
    """
    view, branch = target.view, target.branch
    small = look(source.view, source.branch, SEARCH_SHARE) if source.view.picture.at_hand else source

    def strength(turn: float) -> float:
        return vote_strength(vote(small, look(turned(view, turn), branch, SEARCH_SHARE)))

    finalists = sorted(TURNS[1:], key=strength, reverse=True)[:FINALISTS]
    others = [look(turned(view, turn), branch, 1.0) for turn in finalists]
    strengths = [vote_strength(vote(source, other)) for other in others]
    best = max(range(len(others)), key=lambda number: strengths[number])
    as_it_is = CLEARLY * vote_strength(vote(source, target))
    probability = turn_probability(as_it_is, strengths[best], numbers)
    return (others[best], probability) if probability > 0.5 else (target, 1 - probability)


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


def mirrored(view: View) -> View:
    """The view with left and right exchanged: what a mirror beside it would show.

    Example:
        >>> import numpy as np
        >>> view = turned(View.of(np.zeros((20, 30), dtype=np.uint8)), 90)
        >>> mirrored(view).turn, mirrored(mirrored(view)).turn
        (270, 90)
    """
    return replace(view, mirrored=not view.mirrored, turn=-view.turn % 360)


def vote_strength(votes: Float[Tensor, "1 c hs ws ht wt"]) -> float:
    """How well two pictures vote for each other: the mean over the source of the best mutual vote.

    A vote counts as far as it is the best of its source position and of its target position.

    Example:
        >>> import torch
        >>> round(vote_strength(torch.eye(4).view(1, 1, 2, 2, 2, 2)), 3)
        1.0
        >>> round(vote_strength(torch.full((1, 1, 2, 2, 2, 2), 0.5)), 3)
        0.5
    """
    matrix = votes.amax(1)[0].flatten(2).flatten(0, 1).float().clamp(min=0)
    rows, columns = matrix.amax(1, keepdim=True), matrix.amax(0, keepdim=True)
    mutual = matrix.pow(3) / (rows * columns).clamp(min=1e-9)
    return float(mutual.amax(1).mean())


def mirror_evidence(source: Features, target: Features, other: Features) -> tuple[float, float, float]:
    """What speaks for matching the mirrored target.

    The fronts lie on opposite sides of the backs, −1 … 1; below 0 where left and right sides are seen in the same
    order, which a mirror would exchange, down to −1 (both 0 where the model cannot tell); :func:`likeness_gain`.

    Args:
        source: features of the source.
        target: features of the target as it is.
        other: features of the mirrored target.
    """
    gain = likeness_gain(source, target, other)
    if source.facing is None or target.facing is None or other.facing is None:
        return 0.0, 0.0, gain
    return *facing_evidence(source.facing, target.facing, other.facing), gain


def facing_evidence(
    source: tuple[float, float], target: tuple[float, float], other: tuple[float, float]
) -> tuple[float, float]:
    """What facings speak for matching the mirrored target; see :mod:`chmnet.nn.facing`.

    Example:
        >>> left, right = (-0.9, 0.0), (0.9, 0.0)
        >>> [round(number, 2) for number in facing_evidence(right, left, right)]
        [0.56, 0.0]
    """
    across = (target[0] - other[0]) / 2, (target[1] + other[1]) / 2  # a mirror exchanges front and back only
    return -_clear(source[0]) * _clear(across[0]), min(0.0, -source[1] * across[1]) + 0.0


def likeness_gain(source: Features, target: Features, other: Features) -> float:
    """How much more like another view of the target the thing in the source looks, −1 … 1.

    At each position of the source's finest level: the cosine with what is most like it in the other view, less
    that in the target. The answer is the mean of these differences over their root mean square: 1 where all
    positions gain alike. Positions count by the probability that they show a thing.

    Example:
        >>> import numpy as np, torch
        >>> from chmnet.features import Fingerprint
        >>> view = View.of(np.zeros((8, 8), dtype=np.uint8))
        >>> same, else_ = torch.eye(2).view(1, 2, 1, 2), -torch.eye(2).view(1, 2, 1, 2)
        >>> one, two = (Features((level,), (1, 2), view, Fingerprint("")) for level in (same, else_))
        >>> likeness_gain(one, two, one), likeness_gain(one, one, two), likeness_gain(one, one, one)
        (1.0, -1.0, 0.0)
    """
    size = source.levels[-1].shape[-2:]
    gains = _most_alike(source, other) - _most_alike(source, target)
    weights = torch.ones_like(gains)
    if source.foreground is not None:
        weights = resize_features(source.foreground[None].float(), (size[0], size[1])).flatten()
    spread = (weights * gains.square()).sum() * weights.sum()
    return float((weights * gains).sum() / spread.sqrt().clamp(min=1e-9))


def _most_alike(source: Features, target: Features) -> Float[Tensor, " cells"]:
    """The largest cosine of each position of the source's finest level with any of the target's."""
    cosines = cosine_correlation(source.levels[-1].float(), target.levels[-1].float())
    return cosines.flatten(4).amax(-1).flatten()


def _clear(across: float) -> float:
    """A thing that clearly faces one way counts nearly as much as one that does so fully."""
    return across / (abs(across) + _HALF_CLEAR)


def mirror_probability(evidence: tuple[float, float, float], numbers: Sequence[float]) -> float:
    """The probability that the mirrored target is the better one to match.

    Args:
        evidence: see :func:`mirror_evidence`.
        numbers: ``calibration.pose`` of the model; empty: nothing was fitted.

    Example:
        >>> numbers = (-2.0, 8.0, 2.0, 10.0, 60.0)
        >>> cases = (0.56, 0.0, 0.0), (-0.56, 0.0, 0.0), (0.0, 0.0, 0.0)
        >>> [round(mirror_probability(each, numbers), 2) for each in cases]
        [0.92, 0.0, 0.12]
    """
    first, *slopes = (numbers or _PLAIN)[:4]
    return _sigmoid(first + sum(slope * each for slope, each in zip(slopes, evidence, strict=True)))


def turn_probability(as_it_is: float, other: float, numbers: Sequence[float]) -> float:
    """How likely a turned target is the better one to match.

    Args:
        as_it_is: :func:`vote_strength` of the target as it is.
        other: that of the turned one.
        numbers: ``calibration.pose`` of the model; empty: nothing was fitted.

    Example:
        >>> numbers = (-2.0, 8.0, 2.0, 10.0, 60.0)
        >>> [round(turn_probability(0.5, other, numbers), 3) for other in (0.55, 0.5, 0.45)]
        [0.997, 0.5, 0.002]
    """
    return _sigmoid((numbers or _PLAIN)[4] * math.log(max(other, 1e-9) / max(as_it_is, 1e-9)))


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, logit))))
