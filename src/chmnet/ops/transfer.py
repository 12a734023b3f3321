"""From scores to positions: kernel soft-argmax, samplers; do they lead back, and do they lie at the border?

All points are normalised (see :mod:`chmnet.geometry`); a *position map* holds, for every point of the source
grid, where it lies in the target. Nothing here ever returns NaN for finite scores, whatever the keypoints.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from chmnet.config import TransferConfig
from chmnet.geometry import Size, grid_axis, grid_points, normalised_to_grid
from chmnet.ops.correlation import CHUNK_BYTES

REFERENCE_GRID = 30
"""Side of the grid for which the paper gives σ and τ."""

CYCLE_SIGMA = 1.5
"""Cells by which there-and-back may miss before confidence falls to exp(−1/2)."""

BORDER_DOUBT = 0.6
"""What a match at the very border loses of its confidence."""

_FAR = 100.0
"""Points beyond this are moved here: far outside every grid, and safe to square."""


class PositionMap(NamedTuple):
    """Where every position of one grid lies in the other picture, and how far that can be trusted."""

    positions: Float[Tensor, "h w 2"]
    """(x, y), normalised."""
    confidence: Float[Tensor, "h w"]
    """0 … 1."""


class Located(NamedTuple):
    """What one pass over all scores finds."""

    positions: Float[Tensor, "b hs ws 2"]
    """Expected target position of every source position."""
    entropy: Float[Tensor, "b hs ws"]
    """Of the match's probabilities, as a share of the largest possible one, 0 … 1."""


def soft_argmax(
    correlation: Float[Tensor, "b 1 hs ws ht wt"], config: TransferConfig = TransferConfig()
) -> Float[Tensor, "b hs ws 2"]:
    """Expected target position of every source position (kernel soft-argmax, equation 9).

    ``softmax(G^p · C / temperature)`` over the target, G a Gaussian around the best match p, and then the mean
    of the grid's coordinates under that distribution.

    Example:
        >>> identity = 50 * torch.eye(4).view(1, 1, 2, 2, 2, 2)
        >>> soft_argmax(identity)[0, 1, 0].tolist()  # bottom left stays bottom left
        [-1.0, 1.0]
    """
    scores = correlation[:, 0]
    return torch.cat(
        [_expected_positions(match_probabilities(part, config)) for part in _pieces(scores)], dim=1
    ).to(correlation.dtype)


def locate(correlation: Float[Tensor, "b 1 hs ws ht wt"], config: TransferConfig = TransferConfig()) -> Located:
    """:func:`soft_argmax` and the entropy of each match's probabilities, in one pass over the scores.

    Both are at least in single precision: half precision tells scores apart, but not places in a large picture.
    """
    dtype = torch.promote_types(correlation.dtype, torch.float32)
    positions, entropies = [], []
    for piece in _pieces(correlation[:, 0]):
        logits = _logits(piece, config)
        probability = logits.softmax(-1)
        cells = probability.shape[-1]
        # The best logit is 0, so log Σ exp(logits) = −log of the largest probability.
        entropy = -probability.amax(-1).log() - (probability * logits).sum(-1)
        entropies.append(entropy.clamp(min=0) / math.log(max(2, cells)))
        positions.append(_expected_positions(probability.unflatten(-1, piece.shape[-2:])))
    return Located(torch.cat(positions, 1).to(dtype), torch.cat(entropies, 1).to(dtype))


def _pieces(scores: Float[Tensor, "b hs ws ht wt"]) -> tuple[Tensor, ...]:
    """A few rows of the source at a time, so that copies of them stay small; all at once where gradients flow."""
    if scores.requires_grad:
        return (scores,)
    row_bytes = 4 * scores[:, :1].numel() * max(4, scores.element_size())
    return scores.split(max(1, CHUNK_BYTES // max(1, row_bytes)), dim=1)


def _expected_positions(probability: Float[Tensor, "b hs ws ht wt"]) -> Float[Tensor, "b hs ws 2"]:
    height, width = probability.shape[-2:]
    x = (probability.sum(-2) * grid_axis(width, like=probability)).sum(-1)
    y = (probability.sum(-1) * grid_axis(height, like=probability)).sum(-1)
    return torch.stack([x, y], dim=-1)


def match_probabilities(
    correlation: Float[Tensor, "b hs ws ht wt"], config: TransferConfig = TransferConfig()
) -> Float[Tensor, "b hs ws ht wt"]:
    """For each source position, how likely each target position is its match: what soft-argmax averages over."""
    return _logits(correlation, config).softmax(-1).unflatten(-1, correlation.shape[-2:])


def _logits(correlation: Float[Tensor, "b hs ws ht wt"], config: TransferConfig) -> Float[Tensor, "b hs ws cells"]:
    scores = correlation.float() if correlation.dtype.itemsize < 4 else correlation
    height, width = scores.shape[-2:]
    if config.gaussian_sigma > 0:
        best = scores.flatten(-2).argmax(-1)
        rows = _bell(best // width, height, config, like=scores)
        columns = _bell(best % width, width, config, like=scores)
        scores = scores * rows[..., :, None] * columns[..., None, :]
    scores = scores.flatten(-2)
    # The best first becomes zero: no score, however large, overflows when divided by a low temperature.
    return (scores - scores.detach().amax(-1, keepdim=True)) / config.temperature


def _bell(centre: Tensor, length: int, config: TransferConfig, like: Tensor) -> Float[Tensor, "b hs ws length"]:
    """One-dimensional Gaussian around each centre, in cells."""
    sigma = config.gaussian_sigma
    if config.scale_with_grid:
        sigma *= length / REFERENCE_GRID
    steps = torch.arange(length, dtype=like.dtype, device=like.device) - centre[..., None]
    return torch.exp(-(steps / sigma).square() / 2)


def sample_grid(
    values: Float[Tensor, "b h w k"],
    keypoints: Float[Tensor, "b n 2"],
    config: TransferConfig = TransferConfig(),
) -> Float[Tensor, "b n k"]:
    """Read a map at keypoints: the soft sampler (equation 11), or the nearest grid point.

    Weights are ``max(0, τ − distance)``, divided by their sum. Where no grid point lies within τ (outside the
    picture, or on coarse grids with a fixed τ) the nearest one is taken. A keypoint that is not a number counts
    as the centre of the picture.
    """
    if values.dtype.itemsize < 4:
        return sample_grid(values.float(), keypoints.float(), config).to(values.dtype)
    weights = sampler_weights(keypoints.to(values.dtype), (values.shape[1], values.shape[2]), config)
    return weights @ rearrange(values, "b h w k -> b (h w) k")


def sampler_weights(
    keypoints: Float[Tensor, "b n 2"], size: Size, config: TransferConfig = TransferConfig()
) -> Float[Tensor, "b n cells"]:
    """How much each point of a grid of ``size`` counts for each keypoint; see :func:`sample_grid`."""
    keypoints = keypoints.nan_to_num(nan=0.0, posinf=_FAR, neginf=-_FAR).clamp(-_FAR, _FAR)
    height, width = size
    dx = keypoints[..., :1] - grid_axis(width, like=keypoints)
    dy = keypoints[..., 1:] - grid_axis(height, like=keypoints)
    nearest = dy.abs().argmin(-1) * width + dx.abs().argmin(-1)
    weights = F.one_hot(nearest, height * width).to(keypoints.dtype)
    if config.sampler == "soft":
        if config.scale_with_grid:  # distances as they would be on the paper's grid
            dx = dx * ((width - 1) / (REFERENCE_GRID - 1))
            dy = dy * ((height - 1) / (REFERENCE_GRID - 1))
        squared = (dy.square()[..., :, None] + dx.square()[..., None, :]).flatten(-2)
        # The small number is the authors': it rounds off the tip of the cone.
        cone = (config.sampler_threshold - (squared + 1e-5).sqrt()).clamp(min=0)
        total = cone.sum(-1, keepdim=True)
        weights = torch.where(total > 0, cone / total.clamp(min=1e-12), weights)
    return weights


def heat_at(
    correlation: Float[Tensor, "1 1 hs ws ht wt"],
    keypoint: Float[Tensor, "1 1 2"],
    config: TransferConfig = TransferConfig(),
) -> Float[Tensor, "ht wt"]:
    """How likely each position of the target is the match of one normalised point of the source; the sum is 1.

    Example:
        >>> heat_at(50 * torch.eye(4).view(1, 1, 2, 2, 2, 2), torch.tensor([[[-1.0, 1.0]]])).argmax()
        tensor(2)
    """
    weights = sampler_weights(keypoint, (correlation.shape[2], correlation.shape[3]), config)[0, 0]
    cells = weights.nonzero()[:, 0]
    likely = match_probabilities(correlation[:, 0].flatten(1, 2)[:, cells, None], config)[0, :, 0]
    return (weights[cells, None, None].to(likely.dtype) * likely).sum(0)


def transfer_keypoints(
    correlation: Float[Tensor, "b 1 hs ws ht wt"],
    keypoints: Float[Tensor, "b n 2"],
    config: TransferConfig = TransferConfig(),
) -> Float[Tensor, "b n 2"]:
    """Where each source keypoint lies in the target, both in normalised coordinates."""
    return sample_grid(soft_argmax(correlation, config), keypoints, config)


def transfer_by_rows(
    correlation: Float[Tensor, "b 1 hs ws ht wt"],
    keypoints: Float[Tensor, "b n 2"],
    config: TransferConfig = TransferConfig(),
) -> Float[Tensor, "b n 2"]:
    """As :func:`transfer_keypoints`, computing only what the keypoints read: for training, where they are few.

    Example:
        >>> scores, points = torch.rand(1, 1, 6, 6, 5, 5), torch.rand(1, 3, 2)
        >>> torch.allclose(transfer_by_rows(scores, points), transfer_keypoints(scores, points), atol=1e-6)
        True
    """
    scores = correlation[:, 0].flatten(1, 2)
    precise = scores.float() if scores.dtype.itemsize < 4 else scores
    weights = sampler_weights(keypoints.to(precise.dtype), (correlation.shape[2], correlation.shape[3]), config)
    item, row = (weights.detach().sum(1) > 0).nonzero(as_tuple=True)
    read = _expected_positions(match_probabilities(precise[item, row][None, None], config))[0, 0]
    positions = read.new_zeros(*scores.shape[:2], 2).index_put((item, row), read)
    return (weights @ positions).to(correlation.dtype)


def sample_positions(
    positions: Float[Tensor, "b hs ws k"], at: Float[Tensor, "b h w 2"]
) -> Float[Tensor, "b h w k"]:
    """Read a map bilinearly; ``grid_sample`` has our convention: −1 … 1 from first to last grid point."""
    maps = rearrange(positions, "b h w k -> b k h w")
    sampled = F.grid_sample(maps, at, mode="bilinear", padding_mode="border", align_corners=True)
    return rearrange(sampled, "b k h w -> b h w k")


def match_scores(
    correlation: Shaped[Tensor, "b 1 hs ws ht wt"],
    source: Float[Tensor, "b n 2"],
    target: Float[Tensor, "b n 2"],
) -> Shaped[Tensor, "b n"]:
    """Score of each match of two normalised points: the correlation at the nearest pair of grid positions."""
    height, width = correlation.shape[2:4]
    rows = nearest_cell(source, (height, width))
    columns = nearest_cell(target, (correlation.shape[4], correlation.shape[5]))
    matrix = correlation[:, 0].flatten(3).flatten(1, 2)
    items = torch.arange(len(matrix), device=matrix.device)[:, None]
    return matrix[items, rows, columns]


def nearest_cell(points: Float[Tensor, "b n 2"], size: Size) -> Int64[Tensor, "b n"]:
    """Number of the grid point nearest to each point, row by row."""
    height, width = size
    x, y = normalised_to_grid(points.cpu().double(), size).unbind(-1)  # Apple's devices have no float64
    return (y.round().long().clamp(0, height - 1) * width + x.round().long().clamp(0, width - 1)).to(points.device)


def cycle_consistency(
    there: Float[Tensor, "b hs ws 2"], back: Float[Tensor, "b ht wt 2"]
) -> Float[Tensor, "b hs ws"]:
    """How far each source position can be trusted, 0 … 1: does going there and back end where it began?

    With d the distance in cells between a source position and the image of its image, it is
    ``exp(−d² / (2 · 1.5²))``: near 1 for matches that are each other's, near 0 for those that drift away.

    Args:
        there: position map of the scores.
        back: that of the exchanged scores, from the target to the source.
    """
    return torch.exp(-cells_missed(there, back).square() / (2 * CYCLE_SIGMA**2))


def cells_missed(there: Float[Tensor, "b hs ws 2"], back: Float[Tensor, "b ht wt 2"]) -> Float[Tensor, "b hs ws"]:
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
