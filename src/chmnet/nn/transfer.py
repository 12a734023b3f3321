"""From a correlation to positions: kernel soft-argmax, keypoint transfer, dense flow.

All points are normalised (see :mod:`chmnet.geometry`); a *position map* holds, for every point of the source
grid, where it lies in the target. Nothing here ever returns NaN for finite scores, whatever the keypoints.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor

from chmnet.config import TransferConfig
from chmnet.geometry import Size, grid_axis, grid_points, normalised_to_grid
from chmnet.ops.correlation import CHUNK_BYTES

REFERENCE_GRID = 30
"""Side of the grid for which the paper gives σ and τ."""

_FAR = 100.0
"""Points beyond this are moved here: far outside every grid, and safe to square."""


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
    if torch.is_grad_enabled() and scores.requires_grad:
        return _expected_positions(scores, config)
    return torch.cat([_expected_positions(piece, config) for piece in row_pieces(scores)], dim=1)


def row_pieces(scores: Float[Tensor, "b hs ws ht wt"]) -> tuple[Tensor, ...]:
    """A few rows of the source at a time, so that copies of them stay small."""
    row_bytes = 4 * scores[:, :1].numel() * max(4, scores.element_size())
    return scores.split(max(1, CHUNK_BYTES // max(1, row_bytes)), dim=1)


def _expected_positions(
    correlation: Float[Tensor, "b hs ws ht wt"], config: TransferConfig
) -> Float[Tensor, "b hs ws 2"]:
    probability = match_probabilities(correlation, config)
    height, width = probability.shape[-2:]
    x = (probability.sum(-2) * grid_axis(width, like=probability)).sum(-1)
    y = (probability.sum(-1) * grid_axis(height, like=probability)).sum(-1)
    return torch.stack([x, y], dim=-1).to(correlation.dtype)


def match_probabilities(
    correlation: Float[Tensor, "b hs ws ht wt"], config: TransferConfig = TransferConfig()
) -> Float[Tensor, "b hs ws ht wt"]:
    """For each source position, how likely each target position is its match: what soft-argmax averages over."""
    scores = correlation.float() if correlation.dtype.itemsize < 4 else correlation
    height, width = scores.shape[-2:]
    if config.gaussian_sigma > 0:
        best = scores.flatten(-2).argmax(-1)
        rows = _bell(best // width, height, config, like=scores)
        columns = _bell(best % width, width, config, like=scores)
        scores = scores * rows[..., :, None] * columns[..., None, :]
    scores = scores.flatten(-2)
    # The best first becomes zero: no score, however large, overflows when divided by a low temperature.
    scores = (scores - scores.detach().amax(-1, keepdim=True)) / config.temperature
    return scores.softmax(-1).unflatten(-1, (height, width))


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
    weights = sampler_weights(keypoints.to(scores.dtype), (correlation.shape[2], correlation.shape[3]), config)
    item, row = (weights.detach().sum(1) > 0).nonzero(as_tuple=True)
    read = _expected_positions(scores[item, row][None, None], config)[0, 0]
    positions = read.new_zeros(*scores.shape[:2], 2).index_put((item, row), read)
    return weights @ positions


def dense_flow(positions: Float[Tensor, "b hs ws 2"], size: Size) -> Float[Tensor, "b h w 2"]:
    """Displacement (x, y) of every point of a regular source grid of any ``size``, in normalised coordinates.

    Args:
        positions: position map from :func:`soft_argmax`.
        size: (height, width) of the wanted grid; positions are interpolated, corners aligned.
    """
    grid = grid_points(size, like=positions)
    return sample_positions(positions, grid.expand(len(positions), -1, -1, -1)) - grid


def sample_positions(
    positions: Float[Tensor, "b hs ws 2"], at: Float[Tensor, "b h w 2"]
) -> Float[Tensor, "b h w 2"]:
    """Read a position map bilinearly; ``grid_sample`` has our convention: −1 … 1 from first to last grid point."""
    maps = rearrange(positions, "b h w k -> b k h w")
    sampled = F.grid_sample(maps, at, mode="bilinear", padding_mode="border", align_corners=True)
    return rearrange(sampled, "b k h w -> b h w k")


def match_scores(
    correlation: Float[Tensor, "b 1 hs ws ht wt"],
    source: Float[Tensor, "b n 2"],
    target: Float[Tensor, "b n 2"],
) -> Float[Tensor, "b n"]:
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
    x, y = normalised_to_grid(points.double(), size).unbind(-1)
    return y.round().long().clamp(0, height - 1) * width + x.round().long().clamp(0, width - 1)
