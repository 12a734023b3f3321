"""Which way the target faces: candidate views of it, and the choice among them by likeness and facing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from chmnet.errors import InputError
from chmnet.features import Features
from chmnet.ops.correlation import cosine_correlation, resize_features
from chmnet.ops.evidence import logistic
from chmnet.pictures import View
from chmnet.place import Vote
from chmnet.turns import Looks, find_turn

POSES = ("upright", "mirror", "any")
"""What may be tried: the target as it is; mirrored too; mirrored and turned too."""
DEFAULT_POSES: Final = "mirror"
"""What is tried unless somebody says otherwise."""

_PLAIN = (-4.9, 0.0, 0.0, 7.0)
"""For models that nothing was fitted to: a mirrored target must look clearly more like the source."""
_HALF_CLEAR = 0.3
"""A thing that faces so far to one side counts half."""


def check_poses(poses: str) -> str:
    """Refuse what is not one of :data:`POSES`."""
    if poses not in POSES:
        raise InputError(f"poses must be {', '.join(POSES[:-1])} or {POSES[-1]}, got {poses!r}")
    return poses


def find_pose(
    source: Features,
    target: Features,
    poses: str,
    looks: Looks,
    vote: Vote,
    numbers: Sequence[float],
    turn_numbers: Sequence[float] = (),
) -> tuple[Features, tuple[float, float] | None]:
    """The target in the pose that goes best with the source; the probabilities of it and of its mirror image.

    Both together are the probability of the turn, which is less than 1 where turns were tried. A target that
    somebody mirrored or turned already, or whose picture is not at hand, stays as it is; the probabilities are
    then ``None``.

    Args:
        source: features of the source.
        target: features of the target.
        poses: ``"mirror"`` or ``"any"``.
        looks: extracts features of other views.
        vote: coarse votes between two pictures.
        numbers: ``calibration.pose`` of the model.
        turn_numbers: ``calibration.turn`` of the model.

    Raises:
        InputError: there are no such poses.
    """
    check_poses(poses)
    view, branch = target.view, target.branch
    if view.mirrored or view.turn or not view.picture.at_hand:
        return target, None
    chance = 1.0
    if poses == "any":
        target, chance = find_turn(source, target, looks, vote, turn_numbers)
    (other,) = looks([mirrored(target.view)], branch, 1.0)
    probability = mirror_probability(mirror_evidence(source, target, other), numbers)
    chances = chance * (1 - probability), chance * probability
    return (other, chances[::-1]) if probability > 0.5 else (target, chances)


def mirrored(view: View) -> View:
    """The view with left and right exchanged: what a mirror beside it would show.

    Example:
        >>> import numpy as np
        >>> view = replace(View.of(np.zeros((20, 30), dtype=np.uint8)), turn=90)
        >>> mirrored(view).turn, mirrored(mirrored(view)).turn
        (270, 90)
    """
    window = view.window
    if window is not None:
        width = replace(view, window=None).size[1]
        window = width - window[2], window[1], width - window[0], window[3]
    return replace(view, mirrored=not view.mirrored, turn=-view.turn % 360, window=window)


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
    finest = len(source.levels) - 1  # behind it a target may have those of turned views
    cosines = cosine_correlation(source.levels[finest].float(), target.levels[finest].float())
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
        >>> numbers = (-2.0, 8.0, 2.0, 10.0)
        >>> cases = (0.56, 0.0, 0.0), (-0.56, 0.0, 0.0), (0.0, 0.0, 0.0)
        >>> [round(mirror_probability(each, numbers), 2) for each in cases]
        [0.92, 0.0, 0.12]
    """
    first, *slopes = (numbers or _PLAIN)[:4]
    return logistic(first, slopes, evidence)
