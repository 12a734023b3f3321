"""Fast, exact n-dimensional convolution made of PyTorch's own convolutions.

Up to three dimensions PyTorch convolves by itself. Dimensions along which the kernel has one tap only are more of
the batch. From four dimensions on:

1. The last four dimensions are one ``conv3d`` over the last three, with the k shifts along the first of the
   four as k output channels, and then k shifted additions. (Appendix B of the paper convolves k times instead;
   ``conv2d`` with k² shifts as channels moves k times more data.)
2. A dimension before those that is short, such as the scales of a 6D correlation, is folded into the
   channels: the kernel becomes a banded matrix between input and output positions.
3. A long one is a sum over its k taps.

The four-dimensional core has a backward pass of its own: autograd through shifted slices would spend most of
the time filling buffers with zeros. It works in chunks, so that memory stays bounded.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_BYTES = 64 * 2**20
"""Largest intermediate tensor of the four-dimensional core."""

_PLAIN = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def conv_nd(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve; see :func:`chmnet.ops.conv_nd` for arguments, result and an example."""
    dimensions = x.dim() - 2
    if dimensions <= 3:
        return _PLAIN[dimensions](x, weight, bias, padding=[k // 2 for k in weight.shape[2:]])
    if single := [axis for axis in range(2, x.dim()) if weight.shape[axis] == 1][: dimensions - 1]:
        return _as_batch(x, weight, bias, single)
    if dimensions == 4:
        return _Convolution4d.apply(x, weight, bias)
    size, taps = x.shape[2], weight.shape[2]
    # As channels a dimension costs size² products, as a sum over taps about size·taps, in taps separate runs.
    if size < 2 * taps:
        return _fold_first_dimension(x, weight, bias)
    return _sum_over_first_dimension(x, weight, bias)


def _as_batch(x: Tensor, weight: Tensor, bias: Tensor | None, single: list[int]) -> Tensor:
    """Convolve without the dimensions along which the kernel has one tap."""
    behind_batch = list(range(1, 1 + len(single)))
    moved = x.movedim(single, behind_batch)
    output = conv_nd(moved.flatten(0, len(single)), weight.squeeze(single), bias)
    return output.unflatten(0, moved.shape[: 1 + len(single)]).movedim(behind_batch, single)


def _fold_first_dimension(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Turn the first dimension into channels and its taps into a banded matrix."""
    size, taps = x.shape[2], weight.shape[2]
    banded = torch.stack(
        [
            # Row `position`: which tap reads each input position; out of reach is a zero kernel.
            F.pad(weight, [0, 0] * (weight.dim() - 3) + [size, size]).narrow(2, size + taps // 2 - position, size)
            for position in range(size)
        ],
        dim=1,
    )
    output = conv_nd(
        rearrange(x, "b c d ... -> b (c d) ..."),
        rearrange(banded, "o p c d ... -> (o p) (c d) ..."),
        None if bias is None else bias.repeat_interleave(size),
    )
    return rearrange(output, "b (o p) ... -> b o p ...", p=size)


def _sum_over_first_dimension(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Add up one convolution of the remaining dimensions for each tap of the first."""
    size, taps = x.shape[2], weight.shape[2]
    margin = taps // 2
    padded = F.pad(x, [0, 0] * (x.dim() - 3) + [margin, margin])
    output = None
    for tap in range(taps):
        slab = rearrange(padded.narrow(2, tap, size), "b c d ... -> (b d) c ...")
        part = conv_nd(slab, weight.select(2, tap), bias if tap == 0 else None)
        output = part if output is None else output + part
    assert output is not None
    return rearrange(output, "(b d) o ... -> b o d ...", d=size)


class _Convolution4d(torch.autograd.Function):
    """Four-dimensional convolution and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _convolve_4d(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        turned = weight.flip(2, 3, 4, 5).transpose(0, 1)
        return (
            _convolve_4d(gradient, turned, None) if wants_x else None,
            _weight_gradient_4d(x, gradient, weight.shape) if wants_weight else None,
            gradient.sum((0, 2, 3, 4, 5)) if wants_bias else None,
        )


def _convolve_4d(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Convolve the last three dimensions once, all shifts of the first as channels; then add the shifts."""
    taps = weight.shape[2]
    channels_out = weight.shape[0]
    kernel = rearrange(weight, "o i k ... -> (o k) i ...")
    output = x.new_zeros(x.shape[0], channels_out, *x.shape[2:])
    for items, rows in _chunks(x, weight.shape):
        part = _rows(x, items, rows)
        shifts = F.conv3d(part, kernel, padding=[k // 2 for k in weight.shape[3:]])
        shifts = rearrange(shifts, "(b d) (o k) ... -> k b o d ...", d=rows.stop - rows.start, k=taps)
        for tap in range(taps):
            reach = tap - taps // 2  # output row r reads input row r + reach
            first = max(rows.start - reach, 0)
            last = min(rows.stop - reach, x.shape[2])
            if first < last:
                inside = slice(first + reach - rows.start, last + reach - rows.start)
                output[items, :, first:last] += shifts[tap, :, :, inside]
    if bias is not None:
        output += bias.view(-1, 1, 1, 1, 1)
    return output


def _weight_gradient_4d(x: Tensor, gradient: Tensor, shape: torch.Size) -> Tensor:
    """Gradient of the kernel: that of the one ``conv3d``, fed with the gradient shifted for each tap."""
    channels_out, channels_in, taps, *rest = shape
    margin = taps // 2
    padded = F.pad(gradient, [0, 0] * 3 + [margin, margin])
    total = x.new_zeros(channels_out * taps, channels_in, *rest)
    for items, rows in _chunks(x, shape):
        count = rows.stop - rows.start
        shifted = torch.stack(
            [padded[items].narrow(2, rows.start + 2 * margin - tap, count).transpose(1, 2) for tap in range(taps)],
            dim=3,
        )
        total += torch.ops.aten.convolution_backward(
            rearrange(shifted, "b d o k ... -> (b d) (o k) ..."),
            _rows(x, items, rows),
            total,
            None,  # no bias
            [1, 1, 1],  # stride
            [k // 2 for k in rest],  # padding
            [1, 1, 1],  # dilation
            False,  # not transposed
            [0, 0, 0],  # output padding
            1,  # groups
            [False, True, False],  # of input, weight and bias only the weight's
        )[1]
    return rearrange(total, "(o k) i ... -> o i k ...", k=taps)


def _rows(x: Tensor, items: slice, rows: slice) -> Tensor:
    """Batch items and rows of the first dimension as one batch of three-dimensional tensors."""
    return rearrange(x[items, :, rows], "b c d ... -> (b d) c ...")


def _chunks(x: Tensor, kernel: torch.Size) -> Iterator[tuple[slice, slice]]:
    """Cut batch and rows so that no intermediate tensor of a chunk is larger than ``CHUNK_BYTES``."""
    batch, channels_in, size = x.shape[:3]
    channels_out, _, taps, *rest = kernel
    # PyTorch's float32 convolution needs no copies of its own; for other dtypes it may unfold every tap.
    unfolded = channels_in if x.dtype == torch.float32 else channels_in * math.prod(rest)
    copies = max(channels_out * taps, unfolded)
    row_bytes = copies * x[0, 0, 0].numel() * x.element_size() if batch else 1
    rows = min(size, max(1, CHUNK_BYTES // row_bytes))
    items = max(1, CHUNK_BYTES // (row_bytes * rows))
    for item in range(0, batch, items):
        for row in range(0, size, rows):
            yield slice(item, min(item + items, batch)), slice(row, min(row + rows, size))
