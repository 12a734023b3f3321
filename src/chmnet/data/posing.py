"""Poses of the two objects of a pair, told from their keypoints alone: the same, another, or opposite.

PF-PASCAL's pairs show one pose nearly always (an agreement above 0.9), pairs drawn at random rarely do.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from chmnet.data.pairs import Pair, mirrored_rows

SAME_POSE = 0.8
"""Agreement from which on two objects count as posed alike."""
MIRRORED = "mirrored-target"
"""Flag of a pair whose target is to be mirrored; its rows are exchanged already."""
_BETTER = 0.1
"""How much more the mirrored target must agree, to be the better pose."""
_FEWEST = 4
"""Fewer keypoints do not tell a pose from its mirror image."""
_TINY = 1e-9


def pose_agreement(source: Float[np.ndarray, "n 2"], target: Float[np.ndarray, "n 2"]) -> float:
    """Cosine of the two sets of keypoints about their centres: 1 for the same up to place and size.

    Example:
        >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
        >>> pose_agreement(square, 3 * square + 5), round(pose_agreement(square, square * (-1, 1)), 3)
        (1.0, 0.0)
    """
    first, second = (points - points.mean(axis=0) for points in (source, target))
    lengths = np.linalg.norm(first) * np.linalg.norm(second)
    return float(round((first * second).sum() / max(_TINY, lengths), 9))


def with_mirrored_target(pair: Pair) -> Pair | None:
    """The pair with its target to be mirrored and its sides exchanged by name; ``None`` where too few are left.

    Coordinates stay those of the file: whoever draws the target mirrors it where the flag says so.
    """
    if not pair.keypoint_names:
        return None
    others = mirrored_rows(pair.keypoint_names)
    rows = [row for row, other in enumerate(others) if other is not None]
    counterparts = [other for other in others if other is not None]
    if len(rows) < _FEWEST:
        return None
    return replace(
        pair,
        name=f"{pair.name}:mirrored",
        source=replace(pair.source, keypoints=pair.source.keypoints[rows]),
        target=replace(pair.target, keypoints=pair.target.keypoints[counterparts]),
        keypoint_names=tuple(pair.keypoint_names[row] for row in rows),
        flags={**pair.flags, MIRRORED: 1},
    )


def choose_poses(pairs: Sequence[Pair], same_pose: float, mirror: float, seed: int = 0) -> list[Pair]:
    """Fewer pairs of different poses, and opposite poses made alike.

    Args:
        pairs: any.
        same_pose: chance that a pair of different poses is left out.
        mirror: chance that a pair whose mirrored target is posed more alike gets it.
        seed: the same seed chooses the same pairs.
    """
    generator, chosen = np.random.default_rng(seed), []
    for pair in pairs:
        stays, turns = generator.uniform(size=2) >= (same_pose, 1 - mirror)
        agreement = pose_agreement(pair.source.keypoints, pair.target.keypoints)
        if agreement < SAME_POSE and turns and (other := with_mirrored_target(pair)) is not None:
            mirrored = pose_agreement(other.source.keypoints, other.target.keypoints * (-1, 1))
            if mirrored > agreement + _BETTER:
                pair, agreement = other, mirrored
        if agreement >= SAME_POSE or stays:
            chosen.append(pair)
    return chosen
