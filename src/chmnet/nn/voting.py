"""The other matching modules of the paper's comparisons: a global Hough vote, neighbourhood consensus."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from chmnet.errors import InputError
from chmnet.ops import conv_nd
from chmnet.ops.correlation import exchange


class RegularisedHoughMatching(nn.Module):
    """Regularised Hough matching (RHM; section 3.1): all matches vote for one global offset.

    ``v(h) = Σ c(x, x′) k(‖(x′ − x) − h‖)`` over every pair of positions (and scales), then each match is
    weighted by the vote of its own offset, ``c · v(x′ − x)``. The kernel is a discretised Gaussian; votes are
    divided by the largest. Nothing is learned.

    Args:
        sigma: standard deviation of the kernel over positions, in cells; 0 is a Dirac delta.
        scale_sigma: the same over scale steps.

    Example:
        >>> RegularisedHoughMatching()(torch.rand(1, 1, 3, 3, 4, 4, 5, 5)).shape
        torch.Size([1, 1, 3, 3, 4, 4, 5, 5])
    """

    def __init__(self, sigma: float = 1.0, scale_sigma: float = 0.5) -> None:
        super().__init__()
        self.sigma, self.scale_sigma = sigma, scale_sigma

    def forward(self, correlation: Tensor) -> Tensor:
        """Weight every match by the vote for its offset; ``b c hs ws ht wt`` or with ``ss st``."""
        if correlation.dim() not in (6, 8):
            raise InputError(
                "correlation must have the axes b c hs ws ht wt or b c ss st hs ws ht wt, "
                f"got shape {list(correlation.shape)}"
            )
        if correlation.dim() == 6:
            return self._vote(rearrange(correlation, "b c ... -> b c 1 1 ..."))[:, :, 0, 0]
        return self._vote(correlation)

    def _vote(self, correlation: Float[Tensor, "b c ss st hs ws ht wt"]) -> Tensor:
        source_scales, target_scales, *positions = correlation.shape[2:]
        sides = [(source_scales, target_scales), tuple(positions[0::2]), tuple(positions[1::2])]
        bins = [source + target - 1 for source, target in sides]
        index = self._offset_index(sides, bins, correlation.device)
        votes = correlation.new_zeros(*correlation.shape[:2], math.prod(bins))
        votes = votes.index_add(2, index.flatten(), correlation.flatten(2))
        votes = self._smooth(votes.unflatten(2, bins)).flatten(2)
        votes = votes / votes.amax(2, keepdim=True).clamp(min=torch.finfo(votes.dtype).tiny)
        return correlation * votes.index_select(2, index.flatten()).unflatten(2, index.shape)

    @staticmethod
    def _offset_index(sides: list[tuple[int, ...]], bins: list[int], device: torch.device) -> Tensor:
        """For each match the number of its offset bin, shaped ``ss st hs ws ht wt``."""
        scale, row, column = (
            torch.arange(target, device=device) - torch.arange(source, device=device)[:, None] + source - 1
            for source, target in sides
        )
        index = scale[:, :, None, None, None, None] * bins[1] + row[None, None, :, None, :, None]
        return index * bins[2] + column[None, None, None, :, None, :]

    def _smooth(self, votes: Float[Tensor, "b c scale row column"]) -> Tensor:
        """Blur the Hough space separately over scale offsets and over both position offsets."""
        for axis, sigma in ((2, self.scale_sigma), (3, self.sigma), (4, self.sigma)):
            if sigma > 0:
                kernel = _gaussian(sigma, like=votes)
                lines = votes.movedim(axis, -1)
                blurred = F.conv1d(lines.reshape(-1, 1, lines.shape[-1]), kernel, padding=kernel.shape[-1] // 2)
                votes = blurred.view(lines.shape).movedim(-1, axis)
        return votes


def _gaussian(sigma: float, like: Tensor) -> Float[Tensor, "1 1 taps"]:
    reach = max(1, math.ceil(3 * sigma))
    steps = torch.arange(-reach, reach + 1, dtype=like.dtype, device=like.device)
    weights = torch.exp(-steps.square() / (2 * sigma**2))
    return (weights / weights.sum()).view(1, 1, -1)


class NeighbourhoodConsensus(nn.Module):
    """4D convolutions with several full kernels each, the same in both directions (Rocco et al., 2018).

    ``f(c) + f(cᵀ)ᵀ`` where f is a stack of convolutions with ReLU.

    Args:
        channels: output channels of each layer; the last is 1.
        spatial: odd side of every kernel.

    Example:
        >>> NeighbourhoodConsensus((2, 1), spatial=3)(torch.rand(1, 1, 4, 4, 5, 5)).shape
        torch.Size([1, 1, 4, 4, 5, 5])
    """

    def __init__(self, channels: tuple[int, ...] = (16, 16, 1), spatial: int = 5) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inside, outside in zip((1, *channels[:-1]), channels, strict=True):
            bound = 2 / (inside * spatial**4)  # a layer's weights sum to about 1: scores keep their size
            shape = (outside, inside, *[spatial] * 4)
            # Votes in favour, as in the Hough layers: with mixed signs a narrow stack often starts all zero.
            self.weights.append(nn.Parameter(torch.empty(shape).uniform_(0, bound)))
            self.biases.append(nn.Parameter(torch.zeros(outside)))

    def forward(self, correlation: Float[Tensor, "b 1 hs ws ht wt"]) -> Float[Tensor, "b 1 hs ws ht wt"]:
        """Filter the correlation in both directions and add."""
        return self._filter(correlation) + exchange(self._filter(exchange(correlation)))

    def _filter(self, x: Tensor) -> Tensor:
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = F.relu(conv_nd(x, weight, bias))
        return x
