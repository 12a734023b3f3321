"""Arrays and tensors as eight-bit pictures."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from chmnet.errors import InputError

_TOLERANCE = 1e-3
"""How far floats may lie outside of 0 … 1: resizing overshoots a little."""
_STRIP_VALUES = 2**22
"""Values that are converted at a time: what is in between stays small, however large the picture."""


def tensor_to_array(tensor: Any) -> np.ndarray:
    """A tensor ``3 H W``, ``1 3 H W``, ``H W 3`` or ``H W`` with its channels at the end.

    Raises:
        InputError: it has other axes, or holds its values in another way than one after the other.
    """
    shape = list(tensor.shape)
    if tensor.is_meta or str(tensor.layout) != "torch.strided" or tensor.is_quantized:
        raise InputError(
            "a picture must be an ordinary tensor that holds its values: not meta, sparse or quantised"
        )
    if tensor.dim() == 4 and len(tensor) == 1:
        tensor = tensor[0]
    if tensor.dim() == 3 and (tensor.shape[0] == 3 or (tensor.shape[0] in (1, 4) and tensor.shape[2] != 3)):
        tensor = tensor.permute(1, 2, 0)
    if tensor.dim() not in (2, 3):
        raise InputError(f"a tensor must have the axes 3 H W, 1 3 H W, H W 3 or H W, got the shape {shape}")
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor).numpy()


def array_to_bytes(values: np.ndarray) -> np.ndarray:
    """An array ``H W``, ``H W 1``, ``H W 3`` or ``H W 4`` as eight-bit values.

    Raises:
        InputError: its axes or type are others, or its values are out of range.
    """
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
    return np.ascontiguousarray(scaled_to_bytes(values, full))


def full_scale(values: np.ndarray) -> float:
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
