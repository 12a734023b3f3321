"""Changes of an image that move its keypoints and its box with it.

Coordinates run from 0 at an image's left and top edges to its width and height (see :mod:`chmnet.geometry`):
resizing multiplies x by ``new width / width``, and mirroring makes it ``width − x``, as in the authors' code.
Random changes take their randomness from the generator they are given and from nowhere else.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from chmnet.data.pairs import AnnotatedImage, Box, Pair
from chmnet.errors import InputError
from chmnet.geometry import Size, rescale_points
from chmnet.pictures import open_picture

EXCHANGED = {"left": "right", "right": "left", "l": "r", "r": "l"}


@dataclass(frozen=True, eq=False)
class Sample:
    """An image with what is marked in it."""

    image: Image.Image
    """Upright RGB."""
    keypoints: np.ndarray
    """``n`` rows (x, y), in pixels of the image."""
    box: Box | None = None

    @property
    def size(self) -> Size:
        """(height, width) of the image."""
        return self.image.height, self.image.width


def load_sample(side: AnnotatedImage) -> Sample:
    """Open the image of one side of a pair."""
    return Sample(open_picture(side.path), side.keypoints.astype(np.float64), side.box)


def load_samples(pair: Pair) -> tuple[Sample, Sample]:
    """Open both images of a pair; where its list asks for the paper's horizontal flip, both are mirrored."""
    samples = load_sample(pair.source), load_sample(pair.target)
    return flip_pair(*samples) if pair.flags.get("flip") else samples


def resize(sample: Sample, size: Size) -> Sample:
    """Scale to (height, width) with Pillow's bilinear filter."""
    height, width = size
    image = sample.image.resize((width, height), Image.Resampling.BILINEAR)
    box = None if sample.box is None else rescale_points(_corners(sample.box), sample.size, size)
    return Sample(image, rescale_points(sample.keypoints, sample.size, size), _to_box(box))


def crop(sample: Sample, area: tuple[int, int, int, int]) -> Sample:
    """Cut out ``area`` (left, top, right, bottom).

    Keypoints outside stay in their rows, with coordinates outside of the new image; the box is cut, and is
    ``None`` when nothing of it is left.

    Raises:
        InputError: the area is empty or reaches beyond the image.
    """
    left, top, right, bottom = area
    height, width = sample.size
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise InputError(f"the area {area} to cut out must lie within the image of {width}×{height} pixels")
    corners = None
    if sample.box is not None:
        corners = np.clip(_corners(sample.box), (left, top), (right, bottom)) - (left, top)
    kept = corners is not None and bool((corners[1] > corners[0]).all())
    return Sample(sample.image.crop(area), sample.keypoints - (left, top), _to_box(corners) if kept else None)


def random_crop(sample: Sample, generator: np.random.Generator) -> Sample:
    """Cut out a random area that holds every keypoint."""
    height, width = sample.size
    inside = np.clip(sample.keypoints, 0, (width, height))
    least = inside.min(axis=0, initial=max(width, height))
    most = inside.max(axis=0, initial=0)
    left = int(generator.integers(0, min(int(least[0]), width - 1) + 1))
    top = int(generator.integers(0, min(int(least[1]), height - 1) + 1))
    right = int(generator.integers(max(int(np.ceil(most[0])), left + 1), width + 1))
    bottom = int(generator.integers(max(int(np.ceil(most[1])), top + 1), height + 1))
    return crop(sample, (left, top, right, bottom))


def mirror(sample: Sample) -> Sample:
    """Exchange left and right of the image: x becomes ``width − x``. Rows keep their meaning and order."""
    width = sample.image.width
    keypoints = sample.keypoints * (-1, 1) + (width, 0)
    box = sample.box
    if box is not None:
        box = (width - box[2], box[1], width - box[0], box[3])
    return Sample(ImageOps.mirror(sample.image), keypoints, box)


def flip_pair(source: Sample, target: Sample) -> tuple[Sample, Sample]:
    """The paper's horizontal flip: both images are mirrored, so every row stays a match."""
    return mirror(source), mirror(target)


def flip_target(source: Sample, target: Sample, names: Sequence[str]) -> tuple[Sample, Sample, tuple[str, ...]]:
    """Mirror the target alone, and exchange its left and right keypoints where their names tell.

    A mirrored left eye looks like a right eye, so it becomes the match of the source's right eye. Rows whose
    counterpart is not there are left out on both sides. Without names no keypoint is exchanged.

    Args:
        source: stays as it is.
        target: is mirrored.
        names: of the rows of keypoints, or none.

    Returns:
        Both samples and the names of the rows they now have.
    """
    mirrored = mirror(target)
    if not names:
        return source, mirrored, ()
    counterparts = mirrored_rows(names)
    kept = [row for row, other in enumerate(counterparts) if other is not None]
    others = [other for other in counterparts if other is not None]
    return (
        replace(source, keypoints=source.keypoints[kept]),
        replace(mirrored, keypoints=mirrored.keypoints[others]),
        tuple(names[row] for row in kept),
    )


def mirrored_rows(names: Sequence[str]) -> list[int | None]:
    """For each name the row of its counterpart in a mirror: of ``left_eye`` that of ``right_eye``.

    A name without a side is its own counterpart; ``None`` stands where the counterpart is missing.

    Example:
        >>> mirrored_rows(["left_eye", "right_eye", "nose", "LeftEar"])
        [1, 0, 2, None]
    """
    words = [_words(name) for name in names]
    exchanged = [tuple(EXCHANGED.get(word, word) for word in name) for name in words]
    return [words.index(name) if name in words else None for name in exchanged]


def side_words(names: Sequence[str], mirrored: bool) -> tuple[tuple[str, ...], ...]:
    """What each keypoint looks like, as words: in a mirrored picture a left eye looks like a right one.

    Example:
        >>> side_words(["leftEye", "nose"], mirrored=True)
        (('right', 'eye'), ('nose',))
    """
    words = [_words(name) for name in names]
    return tuple(tuple(EXCHANGED.get(word, word) if mirrored else word for word in name) for name in words)


def jitter_colours(
    sample: Sample,
    generator: np.random.Generator,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.1,
) -> Sample:
    """Change the colours by random factors from ``1 − amount`` to ``1 + amount``; nothing moves.

    Args:
        sample: image, keypoints and box.
        generator: where the randomness comes from.
        brightness: amount, from 0 to 1.
        contrast: amount, from 0 to 1.
        saturation: amount, from 0 to 1.
        hue: largest turn of the colour circle, from 0 to 0.5 (half a turn).

    Raises:
        InputError: an amount is out of range.
    """
    amounts = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
    for name, amount in amounts.items():
        limit = 0.5 if name == "hue" else 1
        if not 0 <= amount <= limit:
            raise InputError(f"{name} must be from 0 to {limit}, got {amount}")
    image = sample.image
    image = ImageEnhance.Brightness(image).enhance(1 + generator.uniform(-brightness, brightness))
    image = ImageEnhance.Contrast(image).enhance(1 + generator.uniform(-contrast, contrast))
    image = ImageEnhance.Color(image).enhance(1 + generator.uniform(-saturation, saturation))
    return replace(sample, image=_turn_hue(image, generator.uniform(-hue, hue)))


def _turn_hue(image: Image.Image, turn: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    shift = round(turn * 256)
    hue = hue.point([(level + shift) % 256 for level in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def _words(name: str) -> tuple[str, ...]:
    """``leftEye``, ``Left eye`` and ``left_eye`` are the same words."""
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", " ", name)
    return tuple(separated.lower().split())


def _corners(box: Box) -> np.ndarray:
    return np.asarray(box, dtype=np.float64).reshape(2, 2)


def _to_box(corners: np.ndarray | None) -> Box | None:
    if corners is None:
        return None
    left, top, right, bottom = corners.reshape(4).tolist()
    return left, top, right, bottom
