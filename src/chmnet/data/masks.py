"""Segmentation pictures: which pixels of an image belong to the object."""

from pathlib import Path

import numpy as np
from jaxtyping import Bool
from PIL import Image

from chmnet.errors import InputError


def open_mask(path: str | Path) -> Bool[np.ndarray, "h w"]:
    """Where a segmentation picture is not zero; in a picture with a palette, its numbers count, not its colours.

    Raises:
        InputError: the file is missing or no picture.
    """
    try:
        with Image.open(path) as image:
            values = np.asarray(image)
    except FileNotFoundError:
        raise InputError(f"there is no mask {path}") from None
    except Exception as error:  # decoders raise many kinds of errors on broken files
        raise InputError(f"{path} cannot be read as a mask: {type(error).__name__}") from None
    return values != 0 if values.ndim == 2 else (values[..., :3] != 0).any(axis=-1)
