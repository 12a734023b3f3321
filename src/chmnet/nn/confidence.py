"""How far matches can be trusted, from what the scores themselves show."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from chmnet.config import TransferConfig
from chmnet.geometry import Size, grid_points, normalised_to_grid
from chmnet.nn.transfer import match_probabilities, row_pieces, sample_positions, soft_argmax
from chmnet.ops.correlation import exchange

CYCLE_SIGMA = 1.5
"""Cells by which there-and-back may miss before confidence falls to exp(−1/2)."""

BORDER_DOUBT = 0.6
"""What a match at the very border loses of its confidence."""

NEIGHBOURHOOD = 5
"""Side, in cells, of the square whose mean displacement a match is compared with."""


def confidence_map(
    correlation: Float[Tensor, "b 1 hs ws ht wt"],
    config: TransferConfig,
    positions: Float[Tensor, "b hs ws 2"],
    back: Float[Tensor, "b ht wt 2"],
) -> Float[Tensor, "b hs ws"]:
    """How far the match of each source position can be trusted, 0 … 1.

    With a calibration, the share of such matches that were right where it was made; without one,
    :func:`match_confidence`. Either is lowered for matches at the border, see :func:`border_trust`.

    Args:
        correlation: score of every pair of grid positions.
        config: how scores become positions, and the calibration.
        positions: position map of the correlation.
        back: that of the exchanged correlation.
    """
    if config.calibration:
        trust = calibrated(match_evidence(correlation, config, positions, back), config.calibration)
    else:
        trust = match_confidence(correlation, config, positions, back)
    return trust * border_trust(positions, (correlation.shape[4], correlation.shape[5]))


def match_evidence(
    correlation: Float[Tensor, "b 1 hs ws ht wt"],
    config: TransferConfig,
    positions: Float[Tensor, "b hs ws 2"],
    back: Float[Tensor, "b ht wt 2"],
) -> Float[Tensor, "b hs ws 3"]:
    """What speaks against the match of each source position; 0, 0, 0 where nothing does.

    ``log(1 + m)`` with m the cells by which going there and back misses; the entropy of the match's probabilities
    as a share of the largest possible one, 0 … 1; ``log(1 + r)`` with r the cells by which its displacement
    differs from the mean of its neighbourhood's.

    Args:
        correlation: score of every pair of grid positions.
        config: how scores become positions.
        positions: position map of the correlation.
        back: that of the exchanged correlation.
    """
    size = (positions.shape[1], positions.shape[2])
    entropy = torch.cat([_entropy(match_probabilities(part, config)) for part in row_pieces(correlation[:, 0])], 1)
    moves = normalised_to_grid(positions, size) - normalised_to_grid(grid_points(size, like=positions), size)
    plane = rearrange(moves, "b h w k -> b k h w")
    mean = F.avg_pool2d(plane, NEIGHBOURHOOD, 1, NEIGHBOURHOOD // 2, count_include_pad=False)
    roughness = (plane - mean).square().sum(1).sqrt()
    return torch.stack([_miss(positions, back).log1p(), entropy.to(positions), roughness.log1p()], dim=-1)


def _entropy(probability: Float[Tensor, "b hs ws ht wt"]) -> Float[Tensor, "b hs ws"]:
    cells = probability.shape[-1] * probability.shape[-2]
    return torch.special.entr(probability).sum((-1, -2)) / math.log(max(2, cells))


def calibrated(evidence: Float[Tensor, "*places 3"], calibration: tuple[float, ...]) -> Float[Tensor, "*places"]:
    """The probability that a match is right, by a logistic function of what speaks against it.

    Args:
        evidence: from :func:`match_evidence`.
        calibration: the logit without any evidence, and what each kind takes away from it.

    Example:
        >>> calibrated(torch.tensor([[0.0, 0, 0], [2.0, 0, 0]]), (2.0, 1.0, 0.5, 0.5))
        tensor([0.8808, 0.5000])
    """
    first, *slopes = calibration
    return torch.sigmoid(first - evidence @ evidence.new_tensor(slopes))


def match_confidence(
    correlation: Float[Tensor, "b 1 hs ws ht wt"],
    config: TransferConfig = TransferConfig(),
    positions: Float[Tensor, "b hs ws 2"] | None = None,
    back: Float[Tensor, "b ht wt 2"] | None = None,
) -> Float[Tensor, "b hs ws"]:
    """How far each source position can be trusted, 0 … 1: does going there and back end where it began?

    With d the distance in cells between a source position and the image of its image, the confidence is
    ``exp(−d² / (2 · 1.5²))``: near 1 for matches that are each other's, near 0 for those that drift away.

    Args:
        correlation: score of every pair of grid positions.
        config: how scores become positions.
        positions: the position map of the correlation, where it is known already.
        back: that of the exchanged correlation, from the target to the source, likewise.
    """
    there = soft_argmax(correlation, config) if positions is None else positions
    back = soft_argmax(exchange(correlation), config) if back is None else back
    return torch.exp(-_miss(there, back).square() / (2 * CYCLE_SIGMA**2))


def _miss(there: Float[Tensor, "b hs ws 2"], back: Float[Tensor, "b ht wt 2"]) -> Float[Tensor, "b hs ws"]:
    """By how many cells going there and back misses."""
    size = (there.shape[1], there.shape[2])
    start = normalised_to_grid(grid_points(size, like=there), size)
    return (normalised_to_grid(sample_positions(back, there), size) - start).square().sum(-1).sqrt()


def border_trust(positions: Float[Tensor, "b hs ws 2"], size: Size) -> Float[Tensor, "b hs ws"]:
    """How far positions can be trusted for where they lie in the target: 0.4 at its border, 1 well inside.

    A point whose match lies beyond the border ends at the border, which may answer that it came from there: going
    there and back does not tell. With b the distance from the border in cells it is ``1 − 0.6 exp(−b² / 2)``.
    Along a grid of one cell there is no inside, and its border does not count.

    Args:
        positions: position map from :func:`soft_argmax`.
        size: (height, width) of the target grid.

    Example:
        >>> border_trust(torch.tensor([[[[-1.0, 0.0], [0.0, 0.0]]]]), (9, 9))[0, 0]
        tensor([0.4000, 0.9998])
    """
    cells = normalised_to_grid(positions.float(), size)
    last = cells.new_tensor([size[1] - 1, size[0] - 1])
    inside = torch.minimum(cells, last - cells).clamp(min=0)
    inside = torch.where(last > 0, inside, torch.inf).amin(-1)
    return (1 - BORDER_DOUBT * torch.exp(-inside.square() / 2)).to(positions.dtype)
