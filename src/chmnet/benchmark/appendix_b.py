"""The baseline: n-dimensional convolution as in appendix B of the paper, written plainly.

4D: the kernel is cut into k 3D kernels; each is one ``conv3d`` over the tensor with batch and first dimension
folded together, and the k results are shifted and added. 6D: the 4D form over every scale pair, with all slices
of the kernel's scale window as output channels, which are then added up at the scale pairs they belong to.
Gradients come from autograd.
"""

from itertools import product

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def conv_4d(x: Tensor, weight: Tensor) -> Tensor:
    """``[b, i, h, w, y, x]`` and ``[o, i, k, k, k, k]`` to ``[b, o, h, w, y, x]``."""
    batch, size, taps = x.shape[0], x.shape[2], weight.shape[2]
    folded = rearrange(x, "b i h ... -> (b h) i ...").contiguous()
    output = torch.zeros(batch, weight.shape[0], *x.shape[2:], dtype=x.dtype)
    for tap in range(taps):
        part = F.conv3d(folded, weight[:, :, tap], padding=taps // 2)
        part = rearrange(part, "(b h) o ... -> b o h ...", b=batch)
        reach = tap - taps // 2
        first, last = max(-reach, 0), min(size - reach, size)
        output[:, :, first:last] += part[:, :, first + reach : last + reach]
    return output


def conv_6d(x: Tensor, weight: Tensor) -> Tensor:
    """``[b, i, s, t, …4D]`` and ``[o, i, ks, kt, …4D]`` to ``[b, o, s, t, …4D]``."""
    batch, _, sources, targets = x.shape[:4]
    outputs, _, source_taps, target_taps = weight.shape[:4]
    slices = conv_4d(
        rearrange(x, "b i s t ... -> (b s t) i ..."), rearrange(weight, "o i p q ... -> (o p q) i ...")
    )
    slices = rearrange(
        slices, "(b s t) (o p q) ... -> b o s t p q ...", b=batch, s=sources, o=outputs, p=source_taps
    )
    output = torch.zeros(batch, outputs, *x.shape[2:], dtype=x.dtype)
    for p, q in product(range(source_taps), range(target_taps)):
        s_first, s_last = _reach(sources, p - source_taps // 2)
        t_first, t_last = _reach(targets, q - target_taps // 2)
        s_shift, t_shift = p - source_taps // 2, q - target_taps // 2
        output[:, :, s_first:s_last, t_first:t_last] += slices[
            :, :, s_first + s_shift : s_last + s_shift, t_first + t_shift : t_last + t_shift, p, q
        ]
    return output


def _reach(size: int, shift: int) -> tuple[int, int]:
    return max(-shift, 0), min(size - shift, size)
