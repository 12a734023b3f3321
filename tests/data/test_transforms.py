"""Image, keypoints and box move together: a coloured dot is put at each keypoint, and found again after."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from chmnet.data.transforms import (
    Sample,
    crop,
    jitter_colours,
    mirror,
    random_crop,
)
from chmnet.errors import InputError

COLOURS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], dtype=np.uint8)
DOT = 4


def dotted(width: int = 64, height: int = 48, seed: int = 0) -> Sample:
    """A black image with a square dot of each colour; the keypoints are the dots' middles, the box holds them."""
    generator = np.random.default_rng(seed)
    # A grid of cells keeps the dots apart, and away from the edges by a dot.
    cells = generator.permutation(
        [(column, row) for column in range(1, width // 8 - 1) for row in range(1, height // 8 - 1)]
    )
    corners = cells[:3] * 8
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    for (x, y), colour in zip(corners, COLOURS, strict=True):
        picture[y : y + DOT, x : x + DOT] = colour
    left, top = corners.min(axis=0).tolist()
    right, bottom = (corners.max(axis=0) + DOT).tolist()
    return Sample(Image.fromarray(picture), corners + DOT / 2, (left, top, right, bottom))


def find_dots(image: Image.Image) -> np.ndarray:
    """The middles of the three dots, measured from the image's edges: pixel i reaches from i to i + 1."""
    weights = np.asarray(image, dtype=np.float64)
    ys, xs = np.mgrid[: weights.shape[0], : weights.shape[1]] + 0.5
    return np.array(
        [[(xs * weights[..., c]).sum(), (ys * weights[..., c]).sum()] / weights[..., c].sum() for c in range(3)]
    )


def box_of_dots(image: Image.Image) -> list[int]:
    ys, xs = np.nonzero(np.asarray(image).max(axis=-1) > 127)
    return [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]


def assert_together(sample: Sample, tolerance: float = 1e-9, box_tolerance: float = 0) -> None:
    np.testing.assert_allclose(sample.keypoints[:3], find_dots(sample.image), atol=tolerance)
    np.testing.assert_allclose(sample.box, box_of_dots(sample.image), atol=box_tolerance)


def test_control_dots_are_where_the_keypoints_are() -> None:
    assert_together(dotted())
    wrong = dotted()
    with pytest.raises(AssertionError):
        assert_together(Sample(wrong.image, wrong.keypoints + 0.5, wrong.box))


@pytest.mark.parametrize(
    "change",
    [
        mirror,
        lambda sample: mirror(mirror(sample)),
        lambda sample: crop(sample, (3, 2, 60, 47)),
        lambda sample: mirror(crop(sample, (5, 5, 62, 46))),
    ],
)
def test_moves_by_whole_pixels_are_exact(change: Callable[[Sample], Sample]) -> None:
    before = dotted()
    after = change(before)
    assert after.image.size[0] <= before.image.size[0]
    assert_together(after)


def test_everything_after_another() -> None:
    generator = np.random.default_rng(1)
    for seed in range(20):
        sample = dotted(128, 96, seed)
        # Two more keypoints a little outside of the box, so that no dot is cut in half.
        corners = np.reshape(sample.box, (2, 2)) + np.array([[-2], [2]])
        sample = replace(sample, keypoints=np.concatenate([sample.keypoints, corners]))
        assert_together(mirror(random_crop(sample, generator)), tolerance=0.02)


def test_mirror_keeps_the_box_in_order() -> None:
    sample = Sample(Image.new("RGB", (100, 50)), np.array([[0.0, 7.0], [100.0, 8.0]]), (10, 5, 30, 45))
    after = mirror(sample)
    assert after.box == (70, 5, 90, 45)
    np.testing.assert_array_equal(after.keypoints, [[100, 7], [0, 8]])


def test_crop_cuts_the_box() -> None:
    sample = Sample(Image.new("RGB", (100, 50)), np.array([[90.0, 40.0]]), (10, 5, 30, 45))
    after = crop(sample, (20, 10, 60, 40))
    assert after.image.size == (40, 30)
    assert after.box == (0, 0, 10, 30)
    np.testing.assert_array_equal(after.keypoints, [[70, 30]])  # outside, and still in its row
    assert crop(sample, (40, 0, 60, 40)).box is None
    assert crop(Sample(sample.image, sample.keypoints), (0, 0, 9, 9)).box is None


@pytest.mark.parametrize("area", [(-1, 0, 5, 5), (0, 0, 0, 5), (0, 6, 5, 5), (0, 0, 65, 5), (0, 0, 5, 49)])
def test_crop_refuses(area: tuple[int, int, int, int]) -> None:
    with pytest.raises(InputError, match="must lie within the image of 64×48 pixels"):
        crop(dotted(), area)


def test_random_crop_holds_every_keypoint() -> None:
    sizes = set()
    generator = np.random.default_rng(0)
    for seed in range(50):
        after = random_crop(dotted(seed=seed), generator)
        height, width = after.size
        sizes.add((height, width))
        assert (after.keypoints >= 0).all()
        assert (after.keypoints <= (width, height)).all()
    assert len(sizes) > 30


@pytest.mark.parametrize("keypoints", [np.zeros((0, 2)), np.array([[64.0, 48.0]]), np.array([[-5.0, 99.0]])])
def test_random_crop_of_odd_keypoints(keypoints: np.ndarray) -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        height, width = random_crop(Sample(dotted().image, keypoints), generator).size
        assert height >= 1
        assert width >= 1


# ---------------------------------------------------------------- colours


def colourful() -> Sample:
    values = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    return Sample(Image.fromarray(values), np.array([[3.0, 4.0]]), (1, 2, 3, 4))


def test_jitter_changes_colours_and_nothing_else() -> None:
    before = colourful()
    after = jitter_colours(before, np.random.default_rng(0))
    assert after.image.size == before.image.size
    assert np.abs(np.asarray(after.image).astype(int) - np.asarray(before.image)).mean() > 3
    assert after.keypoints is before.keypoints
    assert after.box is before.box


def test_jitter_is_the_generators() -> None:
    before = colourful()
    first, again, other = (jitter_colours(before, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(np.asarray(first.image), np.asarray(again.image))
    assert not np.array_equal(np.asarray(first.image), np.asarray(other.image))


def test_no_jitter_is_nearly_no_change() -> None:
    before = colourful()
    after = jitter_colours(before, np.random.default_rng(0), 0, 0, 0, 0)
    # Only the way through hue and back rounds.
    assert np.abs(np.asarray(after.image).astype(int) - np.asarray(before.image)).max() <= 6


@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        ({"brightness": -0.1}, "brightness must be from 0 to 1, got -0.1"),
        ({"contrast": 1.5}, "contrast must be from 0 to 1, got 1.5"),
        ({"hue": 0.6}, "hue must be from 0 to 0.5, got 0.6"),
    ],
)
def test_jitter_refuses(amounts: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        jitter_colours(colourful(), np.random.default_rng(0), **amounts)
