"""Convolution by a center-pivot kernel: only taps whose source *or* target offset is the centre.

Such a kernel is the sum of one that moves in the source alone and one that moves in the target alone. With scales
or rotations, either both parts keep all pairs of them (``dense``), or each has those of its own side only.
"""

import torch
from torch import Tensor

from chmnet.errors import InputError
from chmnet.ops import native
from chmnet.ops.conv_nd import choose_backend, conv_nd

POSITIONS = 4
"""Axes of positions, ``hs ws ht wt``; before them stand pairs of axes ``ss st``, ``rs rt``."""


def split_pivot(kernel: Tensor, joint: bool = False) -> tuple[Tensor, Tensor]:
    """The two parts of a center-pivot kernel; the centre is in the source's part.

    Args:
        kernel: ``[c_out, c_in, [ss st] [rs rt] hs ws ht wt]``, zero wherever there is no tap.
        joint: the pivot is over scales and rotations too, not over positions alone.

    Returns:
        Kernels of as many axes, each with one tap along those of the other side.

    Example:
        >>> source, target = split_pivot(torch.rand(1, 1, 5, 5, 5, 5))
        >>> list(source.shape), list(target.shape)
        ([1, 1, 5, 5, 1, 1], [1, 1, 1, 1, 5, 5])
    """
    pairs = range(2, kernel.dim() - POSITIONS, 2) if joint else range(0)
    end = kernel.dim()
    source = _centre(kernel, [*(axis + 1 for axis in pairs), end - 2, end - 1])
    target = _centre(kernel, [*pairs, end - 4, end - 3])
    if joint or end == POSITIONS + 2:
        middle = tuple(size // 2 for size in target.shape[2:])
        keep = torch.ones(target.shape[2:], dtype=target.dtype, device=target.device)
        keep[middle] = 0
    else:  # every pair of scales has a centre over positions
        keep = torch.ones(target.shape[-2:], dtype=target.dtype, device=target.device)
        keep[keep.shape[0] // 2, keep.shape[1] // 2] = 0
    return source, target * keep


def _centre(kernel: Tensor, axes: list[int]) -> Tensor:
    """Only the middle tap along some axes."""
    for axis in axes:
        kernel = kernel.narrow(axis, kernel.shape[axis] // 2, 1)
    return kernel


def conv_pivot(
    x: Tensor,
    source: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    rows: slice | None = None,
    backend: str = "auto",
) -> Tensor:
    """Convolve with the sum of two kernels, one over the source's axes and one over the target's.

    With the ``folded`` back-end and 4D correlations, these are two two-dimensional convolutions. Compiled kernels
    vote in one pass where a 4D correlation has one channel and nobody wants gradients.

    Args:
        x: ``[b, c_in, [ss st] [rs rt] hs ws ht wt]``.
        source: a kernel with one tap along ``ht wt``; see :func:`split_pivot`.
        target: likewise along ``hs ws``.
        bias: ``[c_out]`` or nothing.
        rows: positions along ``hs`` that are wanted; all if ``None``.
        backend: see :func:`chmnet.ops.conv_nd`.

    Raises:
        InputError: a kernel has more taps than a center-pivot one, or the shapes do not fit together.

    Example:
        >>> kernel = torch.rand(2, 1, 5, 5, 5, 5)
        >>> conv_pivot(torch.rand(1, 1, 6, 7, 5, 4), *split_pivot(kernel)).shape
        torch.Size([1, 2, 6, 7, 5, 4])
    """
    for name, kernel, axes in (("source", source, (-2, -1)), ("target", target, (-4, -3))):
        if kernel.dim() >= POSITIONS + 2 and any(kernel.shape[axis] != 1 for axis in axes):
            raise InputError(f"the {name} kernel must have one tap on the other side, got {list(kernel.shape)}")
    if _in_one_pass(x, source, target, bias, backend):
        return native.conv_pivot(x, source, target, bias, rows)
    votes = conv_nd(x, source, bias, backend=backend) + conv_nd(x, target, backend=backend)
    return votes if rows is None else votes.narrow(-4, rows.start, rows.stop - rows.start)


def _in_one_pass(x: Tensor, source: Tensor, target: Tensor, bias: Tensor | None, backend: str) -> bool:
    """Whether the compiled form for one channel takes a call; all others are checked where they are computed."""
    tensors = [x, source, target] if bias is None else [x, source, target, bias]
    if x.dim() != POSITIONS + 2 or 0 in x.shape or x.shape[1] != 1:
        return False
    if any(kernel.dim() != x.dim() or kernel.shape[:2] != (1, 1) for kernel in (source, target)):
        return False
    if any(size % 2 == 0 for size in (*source.shape, *target.shape)) or (bias is not None and bias.shape != (1,)):
        return False
    if any(tensor.dtype != x.dtype or tensor.device != x.device for tensor in tensors):
        return False
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return False
    return choose_backend(x, source, backend) == "native" and target.layout == torch.strided
