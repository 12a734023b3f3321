"""Feature maps at several scales."""

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from chmnet.geometry import Size


def resize_features(features: Float[Tensor, "b c h w"], size: Size) -> Float[Tensor, "b c H W"]:
    """Interpolate linearly, corners aligned."""
    return F.interpolate(features, size, mode="bilinear", align_corners=True)


def project_enlarged(
    features: Float[Tensor, "b c h w"], weight: Float[Tensor, "o c k l"], size: Size
) -> Float[Tensor, "b o H W"]:
    """``conv2d(resize_features(features, size), weight)`` with zero padding, for a ``size`` beyond the features'.

    A convolution is one matrix product for all of its taps, then a sum of shifted results. The product acts on
    channels and the resizing on positions, so the order of the two is free: here the product comes first, where
    there are fewer positions. The numbers are those of the convolution up to rounding.

    Example:
        >>> import torch
        >>> features, weight = torch.rand(1, 8, 3, 4), torch.rand(2, 8, 3, 3)
        >>> direct = F.conv2d(resize_features(features, (6, 8)), weight, padding=1)
        >>> torch.allclose(project_enlarged(features, weight, (6, 8)), direct, atol=1e-4)
        True
    """
    height, width = size
    row_taps, column_taps = weight.shape[2:]
    taps = rearrange(features, "b c h w -> b h w c") @ rearrange(weight, "o c k l -> (k l o) c").mT
    taps = resize_features(rearrange(taps, "b h w t -> b t h w"), size)
    taps = rearrange(taps, "b (k l o) h w -> b h w k l o", k=row_taps, l=column_taps)
    output = taps.new_zeros(len(taps), height, width, weight.shape[0])
    for row in range(row_taps):
        for column in range(column_taps):
            down, right = row - row_taps // 2, column - column_taps // 2
            rows, columns = _overlap(height, down), _overlap(width, right)
            here = output[:, rows, columns]
            here += taps[:, _moved(rows, down), _moved(columns, right), row, column]
    return rearrange(output, "b h w o -> b o h w")


def _overlap(length: int, shift: int) -> slice:
    """The places that are still inside after a shift."""
    return slice(max(0, -shift), max(0, min(length, length - shift)))


def _moved(places: slice, shift: int) -> slice:
    return slice(places.start + shift, max(places.start, places.stop) + shift)


def ready_to_project(weight: Float[Tensor, "o c k l"]) -> Float[Tensor, "o c k l"]:
    """The same weight laid out in memory as :func:`project_enlarged` reads it."""
    return weight.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)
