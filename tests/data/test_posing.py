"""Poses told from keypoints, and opposite ones made alike."""

from pathlib import Path

import numpy as np

from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.data.posing import MIRRORED, choose_poses, pose_agreement, with_mirrored_target

NAMES = ("left_eye", "right_eye", "nose", "tail")
SIDEWAYS = np.array([[10.0, 10], [12, 10], [8, 14], [40, 12]])


def make_pair(source: np.ndarray, target: np.ndarray, names: tuple[str, ...] = NAMES) -> Pair:
    sides = [AnnotatedImage(Path(f"{name}.jpg"), points) for name, points in (("a", source), ("b", target))]
    return Pair("a-b", "dog", sides[0], sides[1], names)


def turned(points: np.ndarray) -> np.ndarray:
    """The same animal in a mirror, its sides named anew."""
    return (points * (-1, 1) + (60, 0))[[1, 0, 2, 3]]


def test_agreement_knows_place_and_size_only() -> None:
    assert pose_agreement(SIDEWAYS, 2 * SIDEWAYS + 7) == 1
    assert pose_agreement(SIDEWAYS, turned(SIDEWAYS)) < -0.5
    assert pose_agreement(np.zeros((1, 2)), np.ones((1, 2))) == 0  # one point has no pose


def test_mirrored_target_exchanges_sides_and_keeps_coordinates_of_the_file() -> None:
    pair = with_mirrored_target(make_pair(SIDEWAYS, turned(SIDEWAYS)))
    assert pair is not None
    assert pair.flags[MIRRORED] == 1
    np.testing.assert_allclose(60 - pair.target.keypoints[:, 0], SIDEWAYS[:, 0])
    assert pair.keypoint_names == NAMES


def test_points_without_counterpart_are_left_out_and_too_few_are_none() -> None:
    assert with_mirrored_target(make_pair(SIDEWAYS, SIDEWAYS, ())) is None
    assert with_mirrored_target(make_pair(SIDEWAYS, SIDEWAYS, ("left_eye", "nose", "chin", "tail"))) is None


def test_other_poses_are_left_out_and_opposite_ones_turned() -> None:
    same, opposite = make_pair(SIDEWAYS, SIDEWAYS + 3), make_pair(SIDEWAYS, turned(SIDEWAYS))
    other = make_pair(SIDEWAYS, SIDEWAYS[:, ::-1] * (1, -1), ("a", "b", "c", "d"))
    pairs = [same, opposite, other]
    assert choose_poses(pairs, same_pose=0, mirror=0) == pairs
    assert choose_poses(pairs, same_pose=1, mirror=0) == [same]
    chosen = choose_poses(pairs, same_pose=1, mirror=1)
    assert chosen[0] is same
    assert len(chosen) == 2
    assert chosen[1].flags[MIRRORED] == 1
