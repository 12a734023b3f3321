"""The specification of n-dimensional convolution: readable, slow, any number of dimensions.

``y[b, o, p] = bias[o] + sum over i, d of weight[o, i, d] * x[b, i, p + d - k // 2]``, zero outside ``x``.
"""

from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor


def conv_nd(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve by adding up one shifted copy of the input for each tap of the kernel.

    Args:
        x: ``[b, c_in, d1, …, dN]``.
        weight: ``[c_out, c_in, k1, …, kN]`` with odd ``k``.
        bias: ``[c_out]`` or nothing.

    Returns:
        ``[b, c_out, d1, …, dN]``; autograd follows from the operations used.

    Example:
        >>> box = torch.ones(1, 1, 3)
        >>> conv_nd(torch.tensor([[[1.0, 2.0, 4.0]]]), box).tolist()
        [[[3.0, 7.0, 6.0]]]
    """
    sizes, taps = x.shape[2:], weight.shape[2:]
    margins = [k // 2 for k in taps]
    padded = F.pad(x, [margin for margin in reversed(margins) for _ in range(2)])
    output = x.new_zeros(x.shape[0], weight.shape[0], *sizes)
    for tap in product(*map(range, taps)):
        window, values = padded, weight
        for start, size in zip(tap, sizes, strict=True):
            window = window.narrow(-len(sizes), start, size).movedim(-len(sizes), -1)
            values = values[:, :, start]
        output = output + torch.einsum("bi...,oi->bo...", window, values)
    if bias is not None:
        output = output + bias.view(-1, *[1] * len(sizes))
    return output
