"""Feature maps at several scales, and correlation tensors: cosine, resizing, mutual neighbours, sparsification.

Axes: features ``b c h w``, correlations ``b c hs ws ht wt`` (s source, t target).
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from chmnet.errors import InputError
from chmnet.geometry import Size

CHUNK_BYTES = 32 * 2**20
"""Without gradients, large correlations are worked on in pieces about this large."""


def cosine_correlation(
    source: Float[Tensor, "b c hs ws"], target: Float[Tensor, "b c ht wt"]
) -> Float[Tensor, "b 1 hs ws ht wt"]:
    """Cosine of the angle between every source and every target feature: equation 6 without its ReLU.

    A feature of length zero has cosine 0 to everything.

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [0.0, 2.0]]).view(1, 2, 1, 2)
        >>> cosine_correlation(features, features).view(2, 2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    if source.dtype.itemsize < 4:  # dot products of half-precision features overflow
        return cosine_correlation(source.float(), target.float()).to(source.dtype)
    source_rows, target_columns = rearrange(source, "b c hs ws -> b (hs ws) c"), target.flatten(2)
    lengths = source_rows.norm(dim=2, keepdim=True) * target_columns.norm(dim=1, keepdim=True)
    lengths = lengths.clamp(min=torch.finfo(lengths.dtype).tiny)  # where a length is zero, so is the product
    cosine = source_rows @ target_columns / lengths
    return cosine.unflatten(2, target.shape[2:]).unflatten(1, source.shape[2:]).unsqueeze(1)


def normalise(features: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Scale every feature vector to length one; a vector of zeros stays zero."""
    lengths = features.norm(dim=1, keepdim=True)
    return features / torch.where(lengths > 0, lengths, 1.0)


def exchange(correlation: Float[Tensor, "b c hs ws ht wt"]) -> Float[Tensor, "b c ht wt hs ws"]:
    """The same correlation with source and target exchanged."""
    return rearrange(correlation, "b c hs ws ht wt -> b c ht wt hs ws")


def resize_correlation(
    correlation: Float[Tensor, "b c hs ws ht wt"], source_size: Size, target_size: Size
) -> Float[Tensor, "b c HS WS HT WT"]:
    """Interpolate linearly along all four positions, corners aligned (ζ in the paper).

    The four-dimensional interpolation is separable: first the source plane, with the target positions as
    channels (innermost in memory, so nothing is copied), then the target plane.

    Args:
        correlation: any 4D correlation.
        source_size: wanted (height, width) of the source grid.
        target_size: wanted (height, width) of the target grid.

    Example:
        >>> resize_correlation(torch.rand(1, 1, 3, 4, 5, 6), (6, 8), (5, 6)).shape
        torch.Size([1, 1, 6, 8, 5, 6])
    """
    _, channels, *source_shape, height, width = correlation.shape
    if source_size != tuple(source_shape):
        planes = rearrange(correlation, "b c hs ws ht wt -> (b c) (ht wt) hs ws")
        planes = F.interpolate(planes, source_size, mode="bilinear", align_corners=True)
        correlation = rearrange(planes, "(b c) (ht wt) hs ws -> b c hs ws ht wt", c=channels, ht=height)
    if target_size != (height, width):
        planes = rearrange(correlation, "b c hs ws ht wt -> (b c) (hs ws) ht wt")
        planes = F.interpolate(planes, target_size, mode="bilinear", align_corners=True)
        correlation = rearrange(planes, "(b c) (hs ws) ht wt -> b c hs ws ht wt", c=channels, hs=source_size[0])
    return correlation


def mutual_nearest_neighbour_filter(
    correlation: Float[Tensor, "b c hs ws ht wt"],
) -> Float[Tensor, "b c hs ws ht wt"]:
    """Weaken matches that are not each other's best: ``c · c/max over source · c/max over target``.

    Soft mutual nearest neighbours of Rocco et al. (NeurIPS 2018), meant for scores that are not negative.

    Example:
        >>> scores = torch.tensor([[1.0, 0.5], [0.0, 0.8]]).view(1, 1, 1, 2, 1, 2)
        >>> mutual_nearest_neighbour_filter(scores).view(2, 2)
        tensor([[1.0000, 0.1562],
                [0.0000, 0.8000]])
    """
    best_target, best_source = _best_scores(correlation)
    return correlation * ((correlation / best_target) * (correlation / best_source))


def filter_in_place(
    correlation: Float[Tensor, "b c hs ws ht wt"], chunk_bytes: int = CHUNK_BYTES
) -> Float[Tensor, "b c hs ws ht wt"]:
    """:func:`mutual_nearest_neighbour_filter` that overwrites its argument, a few rows at a time: no gradients."""
    best_target, best_source = _best_scores(correlation)
    row_bytes = 3 * correlation[:, :, :1].numel() * correlation.element_size()
    rows = max(1, chunk_bytes // max(1, row_bytes))
    for first in range(0, correlation.shape[2], rows):
        piece = correlation[:, :, first : first + rows]
        values = piece.float() if piece.dtype == torch.float16 else piece  # products would be lost
        values = values * ((values / best_target[:, :, first : first + rows]) * (values / best_source))
        piece.copy_(values)
    return correlation


def _best_scores(correlation: Tensor) -> tuple[Tensor, Tensor]:
    """The best score over the target and over the source, with axes of size one for them; never zero."""
    tiny = 1e-30 if correlation.dtype != torch.float16 else 1e-7
    best_target = correlation.flatten(-2).max(-1).values[..., None, None]
    best_source = correlation.flatten(-4, -3).max(-3).values[:, :, None, None]
    # Where a whole row is zero its scores are zero too: dividing by anything but zero keeps them so.
    return (
        torch.where(best_target == 0, tiny, best_target),
        torch.where(best_source == 0, tiny, best_source),
    )


def keep_top_matches(
    correlation: Float[Tensor, "b c hs ws ht wt"], count: int
) -> Float[Tensor, "b c hs ws ht wt"]:
    """Set to zero all but the ``count`` best matches of each position: the paper's sparse variant (K).

    A match stays when it is among the best of its source position or among the best of its target position,
    so that exchanging the images changes nothing.

    Example:
        >>> scores = torch.tensor([[0.9, 0.5], [0.8, 0.1]]).view(1, 1, 1, 2, 1, 2)
        >>> keep_top_matches(scores, 1).view(2, 2).tolist()  # doctest: +ELLIPSIS
        [[0.89..., 0.5], [0.8..., 0.0]]
    """
    if count < 1:
        raise InputError(f"the number of matches to keep must be at least 1, got {count}")
    source_shape, target_shape = correlation.shape[2:4], correlation.shape[4:6]
    matrix = correlation.flatten(4).flatten(2, 3)
    kept = torch.zeros_like(matrix, dtype=torch.bool)
    for axis in (-1, -2):
        best = matrix.topk(min(count, matrix.shape[axis]), dim=axis).indices
        kept.scatter_(axis, best, torch.ones_like(best, dtype=torch.bool))
    return (matrix * kept).unflatten(3, target_shape).unflatten(2, source_shape)


# ---------------------------------------------------------------- feature maps


def level_size(size: Size, scale: float) -> Size:
    """(height, width) of a feature map at one of the scales: never less than one.

    Example:
        >>> level_size((15, 20), 0.5), level_size((1, 1), 0.3)
        ((8, 10), (1, 1))
    """
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


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
