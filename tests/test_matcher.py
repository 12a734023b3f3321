import numpy as np
import pytest
import torch
from PIL import Image

import chmnet
from chmnet.config import TransferConfig
from chmnet.errors import InputError
from chmnet.matcher import Matcher, MatchResult

from .conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


@pytest.fixture(scope="module")
def identity() -> MatchResult:
    """A result in which every grid position matches itself."""
    correlation = torch.eye(36).view(1, 1, 6, 6, 6, 6)
    return MatchResult(correlation, (60, 120), (300, 240), TransferConfig(temperature=1e-3, sampler="nearest"))


def test_points_move_between_pixels_of_both_pictures(identity: MatchResult) -> None:
    found = identity.transfer([[0, 0], [120, 60], [48, 36]])
    np.testing.assert_allclose(found.target, [[0, 0], [240, 300], [96, 180]], atol=1e-3)
    np.testing.assert_allclose(found.confidence, [0.4, 0.4, 1 - 0.6 * np.exp(-2)], atol=1e-3)  # border, inside


def test_one_point_and_none(identity: MatchResult) -> None:
    assert identity.transfer([10, 20]).target.shape == (1, 2)
    assert identity.transfer([]).target.shape == (0, 2)


def test_points_outside_stay_finite(identity: MatchResult) -> None:
    assert np.isfinite(identity.transfer([[-500, 1e9]]).target).all()


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ([[1, 2, 3]], "rows"),
        ("nonsense", "rows of two numbers"),
        ([[np.nan, 1]], "finite"),
        ([[np.inf, 1]], "finite"),
    ],
)
def test_bad_points(identity: MatchResult, points: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        identity.transfer(points)


def test_best_matches_come_first() -> None:
    generator = torch.Generator().manual_seed(0)
    correlation = torch.rand(1, 1, 5, 5, 5, 5, generator=generator)
    result = MatchResult(correlation, (50, 50), (50, 50), TransferConfig(temperature=0.01))
    found = result.matches(top=7)
    assert found.source.shape == found.target.shape == (7, 2)
    assert (np.diff(found.confidence) <= 0).all()
    with pytest.raises(InputError, match="at least 1"):
        result.matches(top=0)


def test_a_picture_matches_itself() -> None:
    picture = EXAMPLES / "european-bear.png"
    result = chmnet.match(picture, picture, model="nearest-neighbour")
    found = result.matches(top=100)
    assert np.abs(found.source - found.target).mean() < 0.02 * 346


def test_paths_and_images_are_the_same() -> None:
    paths = [EXAMPLES / "donkey.png", EXAMPLES / "zebra.png"]
    matcher = Matcher("nearest-neighbour")
    from_paths = matcher.match(*paths)
    from_images = matcher.match(*(Image.open(path) for path in paths))
    torch.testing.assert_close(from_paths.correlation, from_images.correlation)
    assert from_paths.source_size == (161, 200)


def test_default_model_is_deterministic() -> None:
    paths = [EXAMPLES / "donkey.png", EXAMPLES / "zebra.png"]
    first, second = (Matcher().match(*paths).correlation for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
