"""Correlations of which only the best matches are kept, a few rows at a time: none is ever whole in memory.

What :func:`chmnet.ops.correlation.keep_top_matches` keeps of a correlation is found block by block, and held as a
list of matches. Rows of the correlation, brought to another grid, are made from the list when they are wanted.
"""

import ctypes
import math
import sys

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor

from chmnet.geometry import Size
from chmnet.ops.correlation import CHUNK_BYTES, cosine_correlation, resize_correlation


class KeptMatches:
    """The best matches of two feature maps: of each source position, and of each target position.

    Args:
        source: one feature map.
        target: the other.
        count: matches kept of each position.
        rectify: ReLU on the cosines first.

    Example:
        >>> from chmnet.ops.correlation import keep_top_matches
        >>> source, target = torch.rand(1, 8, 3, 4), torch.rand(1, 8, 2, 5)
        >>> dense = keep_top_matches(cosine_correlation(source, target), 2)
        >>> torch.allclose(KeptMatches(source, target, 2).rows((3, 4), (2, 5), 1, 3), dense[:, :, 1:3], atol=1e-6)
        True
    """

    def __init__(
        self,
        source: Float[Tensor, "b c hs ws"],
        target: Float[Tensor, "b c ht wt"],
        count: int,
        rectify: bool = False,
    ) -> None:
        self.source_size: Size = (source.shape[2], source.shape[3])
        self.target_size: Size = (target.shape[2], target.shape[3])
        forward, backward = _best(source, target, count, rectify), _best(target, source, count, rectify)
        places = torch.cat([_places(forward[1]), _places(backward[1])[[0, 2, 1]]], dim=1)
        order = places[1].argsort()
        self.item, self.position, self.match = places[:, order]
        self.value = torch.cat([forward[0].flatten(), backward[0].flatten()])[order]
        """Batch item, source and target position of each match, in the order of the source; some come twice."""
        self.batch = len(source)

    def rows(self, source_size: Size, target_size: Size, low: int, high: int) -> Float[Tensor, "b 1 rows W HT WT"]:
        """Rows ``low`` to ``high`` − 1 of the correlation, interpolated to other grids."""
        height, width = self.source_size
        weights = _line_weights(height, source_size[0], self.value)[low:high]
        read = weights.any(0).nonzero()[:, 0]
        first, last = int(read[0]), int(read[-1]) + 1
        begin, end = torch.searchsorted(self.position, self.position.new_tensor([first * width, last * width]))
        here = slice(int(begin), int(end))
        cells = math.prod(self.target_size)
        matrix = self.value.new_zeros(self.batch, (last - first) * width, cells)
        matrix[self.item[here], self.position[here] - first * width, self.match[here]] = self.value[here]
        if source_size[0] != height:
            lines = weights[:, first:last] @ matrix.view(self.batch, last - first, width * cells)
        else:
            lines = matrix
        rows = lines.view(self.batch, 1, high - low, width, *self.target_size)
        return resize_correlation(rows, (high - low, source_size[1]), target_size)


def _best(
    source: Float[Tensor, "b c hs ws"], target: Float[Tensor, "b c ht wt"], count: int, rectify: bool
) -> tuple[Float[Tensor, "b positions k"], Int64[Tensor, "b positions k"]]:
    """Cosine and position of the best targets of each source position."""
    cells = math.prod(target.shape[2:])
    rows = max(1, CHUNK_BYTES // (4 * len(source) * cells * source.shape[3] * source.element_size()))
    values, indices = [], []
    for piece in source.split(rows, dim=2):
        best = (
            cosine_correlation(piece, target)[:, 0].flatten(3).flatten(1, 2).topk(min(count, cells), sorted=False)
        )
        values.append(best.values.relu() if rectify else best.values)
        indices.append(best.indices)
    return torch.cat(values, 1), torch.cat(indices, 1)


def _places(best: Int64[Tensor, "b positions k"]) -> Int64[Tensor, "3 matches"]:
    """Item, position and the other side's position of every match."""
    items = torch.arange(best.shape[0], device=best.device)[:, None, None].expand_as(best)
    positions = torch.arange(best.shape[1], device=best.device)[:, None].expand_as(best)
    return torch.stack([items.flatten(), positions.flatten(), best.flatten()])


def _line_weights(length: int, wanted: int, like: Tensor) -> Float[Tensor, "wanted length"]:
    """What interpolation along one axis, corners aligned, reads of each position."""
    identity = torch.eye(length, dtype=like.dtype, device=like.device)
    lines = F.interpolate(identity[None], wanted, mode="linear", align_corners=True)[0]
    return rearrange(lines, "length wanted -> wanted length")


def release_memory() -> None:
    """Give memory that was freed back to the system: C libraries keep pieces of it, hundreds of megabytes."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries than GNU's have none
        if trim is not None:
            trim(0)
