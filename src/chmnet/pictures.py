"""Pictures in: a file, PIL image, array or tensor becomes an upright RGB picture, or one sentence why not."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.picture_files import MAX_PIXELS, decoding, read_picture, scaled_to_bytes, to_rgb

PictureLike = str | Path | Image.Image | np.ndarray | Tensor
"""What can be given as a picture; see :func:`to_picture`."""

__all__ = ["MAX_PIXELS", "PictureLike", "open_picture", "read_picture", "to_picture", "to_rgb", "to_tensor"]


def to_picture(picture: PictureLike) -> Image.Image:
    """Any kind of picture as an upright RGB image.

    Args:
        picture: one of

            * the path of a picture file, see :func:`open_picture`;
            * a PIL image, in any mode;
            * a NumPy array ``H W``, ``H W 1``, ``H W 3`` (RGB) or ``H W 4`` (RGB and opacity): uint8, uint16,
              bool, or floats from 0 to 1;
            * a tensor ``3 H W``, ``1 3 H W``, ``H W 3`` or ``H W`` (also 1 or 4 channels) with such values; where
              both of the first two forms fit, channels come first.

    Raises:
        InputError: it is none of these, or its values are out of range or not finite.

    Example:
        >>> to_picture(np.zeros((20, 30), dtype=np.uint8)).size, to_picture(torch.ones(3, 20, 30)).getpixel((0, 0))
        ((30, 20), (255, 255, 255))
    """
    if isinstance(picture, str | Path):
        return open_picture(picture)
    if isinstance(picture, Image.Image):
        if 0 in picture.size:  # Pillow can make such, and even resize them
            raise InputError(f"a picture must have at least one pixel, got {picture.width}×{picture.height}")
        with decoding("the picture"):
            return to_rgb(picture)
    if isinstance(picture, Tensor):
        picture = _tensor_to_array(picture)
    if isinstance(picture, np.ndarray):
        return _from_array(picture)
    raise InputError(
        f"a picture must be a path, a PIL image, a NumPy array or a tensor, got {type(picture).__name__}"
    )


def _tensor_to_array(tensor: Tensor) -> np.ndarray:
    shape = list(tensor.shape)
    if tensor.dim() == 4 and len(tensor) == 1:
        tensor = tensor[0]
    if tensor.dim() == 3 and (tensor.shape[0] == 3 or (tensor.shape[0] in (1, 4) and tensor.shape[2] != 3)):
        tensor = tensor.permute(1, 2, 0)
    if tensor.dim() not in (2, 3):
        raise InputError(f"a tensor must have the axes 3 H W, 1 3 H W, H W 3 or H W, got the shape {shape}")
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _from_array(values: np.ndarray) -> Image.Image:
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (3, 4)):
        hint = "; move its channels to the end" if values.ndim == 3 and values.shape[0] in (1, 3, 4) else ""
        raise InputError(
            f"an array must have the axes H W, H W 3 or H W 4, got the shape {list(values.shape)}{hint}"
        )
    if 0 in values.shape:
        raise InputError(f"a picture must have at least one pixel, got the shape {list(values.shape)}")
    full = {"u1": 255, "u2": 65535, "b1": 1}.get(values.dtype.str[1:])
    if values.dtype.kind == "f":
        full = 1
        lowest, highest = float(values.min()), float(values.max())
        if not (np.isfinite(lowest) and np.isfinite(highest)):
            raise InputError("a picture's values must be finite, got NaN or infinity")
        if lowest < -_TOLERANCE or highest > 1 + _TOLERANCE:
            raise InputError(
                f"floating-point pictures must have values from 0 to 1, got {lowest:g} to {highest:g}; "
                "divide by the largest possible value"
            )
    if full is None:
        raise InputError(
            f"an array must hold uint8, uint16, bool or floating-point values, got {values.dtype}; "
            "convert it, for example with .astype(np.uint8)"
        )
    image = Image.fromarray(np.ascontiguousarray(scaled_to_bytes(values, full)))
    return to_rgb(image)


_TOLERANCE = 1e-3
"""How far floats may lie outside of 0 … 1: resizing overshoots a little."""


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


def to_tensor(picture: Image.Image, size: Size) -> Float[Tensor, "1 3 h w"]:
    """A picture resized to (height, width) with Pillow's bilinear filter, as RGB from 0 to 1."""
    height, width = size
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)[None].float() / 255
