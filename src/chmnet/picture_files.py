"""Picture files in, with Pillow and NumPy alone: what decodes strangers' files needs no PyTorch to start."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from chmnet.errors import InputError

MAX_PIXELS = 150_000_000
"""Larger pictures are refused: decoding one would take more than a gigabyte."""

_STRIP_VALUES = 2**22
"""Values that are converted at a time: what is in between stays small, however large the picture."""


def read_picture(
    file: Path | BytesIO, name: str, max_pixels: int = MAX_PIXELS, formats: tuple[str, ...] | None = None
) -> Image.Image:
    """Read a picture as a person sees it: upright (EXIF), RGB, transparent parts white, first frame.

    Args:
        file: a path, or a file in memory.
        name: what messages call it.
        max_pixels: larger pictures are refused before they are decoded.
        formats: Pillow's names of the formats to try; ``None``: all.

    Raises:
        InputError: no picture, broken or too large.
    """
    with decoding(name, max_pixels), Image.open(file, formats=formats) as image:
        width, height = image.size
        if width * height > max_pixels:
            raise InputError(f"{name} has {width}×{height} pixels, more than can be read; make it smaller")
        image.load()
        return to_rgb(image)


@contextmanager
def decoding(name: str, max_pixels: int = MAX_PIXELS) -> Iterator[None]:
    """Turn whatever a decoder raises into one sentence about ``name``."""
    try:
        with warnings.catch_warnings():
            # Pillow warns of large pictures; we have a limit of our own.
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(f"{name} is not a picture in a format that can be read") from None
    except Image.DecompressionBombError:
        raise InputError(f"{name} has more than {max_pixels // 10**6} million pixels; make it smaller") from None
    except Exception as error:  # decoders raise many kinds of errors on broken files
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{name} cannot be read as a picture: {reason}") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """An upright RGB copy of any picture.

    Example:
        >>> to_rgb(Image.new("LA", (2, 1), (0, 0))).getpixel((0, 0))  # transparent black on white
        (255, 255, 255)
    """
    if image.getexif().get(_ORIENTATION, 1) != 1:  # without it exif_transpose makes a copy, of a large picture too
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits a pixel: Pillow would cut off, not scale
        values = np.asarray(image)
        return Image.fromarray(scaled_to_bytes(values, _full_scale(values))).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        opaque = Image.new("RGB", image.size, "white")
        opaque.paste(image, mask=image.getchannel("A"))
        return opaque
    return image.convert("RGB")


_ORIENTATION = 0x0112
"""EXIF tag: how the camera was held."""


def _full_scale(values: np.ndarray) -> float:
    """What counts as white in a picture of more than eight bits a pixel: 1, 255, 65535, or its largest value."""
    largest = max((float(np.nan_to_num(strip).max()) for strip in _strips(values)), default=0.0)
    return next(limit for limit in (1.0, 255.0, 65535.0, max(largest, 65535.0)) if largest <= limit)


def scaled_to_bytes(values: np.ndarray, full: float) -> np.ndarray:
    """Values from 0 to ``full``, scaled to eight bits, rounded and clipped."""
    if values.dtype == np.uint8 and full == 255:
        return values
    output = np.empty(values.shape, dtype=np.uint8)
    for strip, rows in zip(_strips(values), _strips(output), strict=True):
        scaled = np.nan_to_num(strip.astype(np.float64)) / full * 255
        rows[...] = np.clip(np.round(scaled), 0, 255).astype(np.uint8)
    return output


def _strips(values: np.ndarray) -> Iterator[np.ndarray]:
    """A few rows at a time."""
    rows = max(1, _STRIP_VALUES * len(values) // max(1, values.size))
    return (values[first : first + rows] for first in range(0, len(values), rows))
