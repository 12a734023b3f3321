"""The choice of a pose, fitted to annotated pairs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.evaluation.poses import MARGIN, PoseEvidence, collect_poses, fit_poses
from chmnet.poses import mirror_probability
from chmnet.weights import load_model
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
SMALL = {"image_size": (96, 96)}


def facing_each_other(gain: float, count: int = 40) -> PoseEvidence:
    """Half of the things face the same way; of the others the mirrored target gains so much."""
    evidence = np.tile([[0.5625, 0.0, 0.0], [-0.5625, 0.0, 0.0]], (count // 2, 1))
    return PoseEvidence(evidence, np.where(evidence[:, 0] > 0, gain, -0.5))


def test_things_that_face_each_other_are_mirrored() -> None:
    numbers = fit_poses([facing_each_other(0.5)])
    assert mirror_probability((0.5625, 0.0, 0.0), numbers) > 0.5
    assert mirror_probability((-0.5625, 0.0, 0.0), numbers) < 0.1
    assert mirror_probability((0.0, 0.0, 0.0), numbers) < 0.5  # upright, unless something speaks against it


def test_a_set_that_would_lose_raises_the_bar() -> None:
    numbers = fit_poses([facing_each_other(0.5), facing_each_other(-0.4)])
    assert mirror_probability((0.5625, 0.0, 0.0), numbers) < 0.5


def test_pairs_just_below_the_limit_must_not_lose_either() -> None:
    evidence = np.array([[0.9, 0.0, 0.0], [0.5, 0.0, 0.0]] * 10)
    found = PoseEvidence(evidence, np.array([0.5, -0.6] * 10))
    first, across, *_ = fit_poses([found])
    assert -first / across >= 0.5 + MARGIN - 1e-6


@pytest.fixture
def pairs(tmp_path: Path) -> list[Pair]:
    """A picture with itself, and with its mirror image."""
    path = EXAMPLES / "donkey.png"
    picture = Image.open(path).convert("RGB")
    ImageOps.mirror(picture).save(tmp_path / "mirror.png")
    points = np.array([[60.0, 60.0], [120.0, 90.0], [90.0, 120.0], [140.0, 60.0]])
    source = AnnotatedImage(path, points)
    across = np.column_stack([picture.width - points[:, 0], points[:, 1]])
    flipped = AnnotatedImage(tmp_path / "mirror.png", across)
    return [Pair("same", "donkey", source, source), Pair("mirrored", "donkey", source, flipped)]


def test_evidence_of_a_picture_and_its_mirror_image(pairs: list[Pair]) -> None:
    found = collect_poses(pairs, load_model("hough-prior", changes=SMALL))
    assert found.gain[0] < -0.3
    assert found.gain[1] > 0.3
    assert found.evidence[0, 2] < 0 < found.evidence[1, 2]  # the features know
