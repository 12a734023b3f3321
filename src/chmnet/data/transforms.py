"""Changes of an image that move its keypoints and its box with it.

Coordinates run from 0 at an image's left and top edges to its width and height (see :mod:`chmnet.geometry`):
resizing multiplies x by ``new width / width``, and mirroring makes it ``width − x``, as in the authors' code.
Random changes take their randomness from the generator they are given and from nowhere else.
"""

from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.pictures import Box


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


def _corners(box: Box) -> np.ndarray:
    return np.asarray(box, dtype=np.float64).reshape(2, 2)


def _to_box(corners: np.ndarray | None) -> Box | None:
    if corners is None:
        return None
    left, top, right, bottom = corners.reshape(4).tolist()
    return left, top, right, bottom
