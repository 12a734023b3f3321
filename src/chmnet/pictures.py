"""Pictures in: any file or PIL image becomes an upright RGB picture, or one clear sentence why not."""

import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from chmnet.errors import InputError
from chmnet.geometry import Size

MAX_PIXELS = 150_000_000
"""Larger pictures are refused: decoding one would take more than a gigabyte."""


def open_picture(path: str | Path) -> Image.Image:
    """Read a picture file as a person sees it: upright (EXIF), RGB, transparent parts white, first frame.

    Raises:
        InputError: the file is missing, no picture, broken or too large.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a picture file")
    if not path.is_file():
        raise InputError(f"there is no picture {path}")
    return read_picture(path, str(path), MAX_PIXELS)


def read_picture(
    file: Path | BytesIO, name: str, max_pixels: int = MAX_PIXELS, formats: tuple[str, ...] | None = None
) -> Image.Image:
    """As :func:`open_picture`, from a path or a file in memory.

    Args:
        file: what to read.
        name: what messages call it.
        max_pixels: larger pictures are refused before they are decoded.
        formats: Pillow's names of the formats to try; ``None``: all.

    Raises:
        InputError: no picture, broken or too large.
    """
    try:
        with warnings.catch_warnings():
            # Pillow warns of large pictures; we have a limit of our own.
            warnings.simplefilter("ignore")
            with Image.open(file, formats=formats) as image:
                width, height = image.size
                if width * height > max_pixels:
                    raise InputError(f"{name} has {width}×{height} pixels, more than can be read; make it smaller")
                image.load()
                return to_rgb(image)
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
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits a pixel: Pillow would cut off, not scale
        return Image.fromarray(_to_bytes(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _to_bytes(values: np.ndarray) -> np.ndarray:
    """Grey values of more than eight bits, scaled to eight."""
    values = np.nan_to_num(values.astype(np.float64))
    largest = values.max(initial=0.0)
    full = next(limit for limit in (1.0, 255.0, 65535.0, max(largest, 65535.0)) if largest <= limit)
    return np.asarray(np.clip(np.round(values / full * 255), 0, 255), dtype=np.uint8)


def to_tensor(picture: Image.Image, size: Size) -> Float[Tensor, "1 3 h w"]:
    """A picture resized to (height, width) with Pillow's bilinear filter, as RGB from 0 to 1."""
    height, width = size
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)[None].float() / 255
