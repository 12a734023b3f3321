"""Where a keypoint lies by what several examples say together: their scores are added, then read once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from chmnet.config import TransferConfig
from chmnet.geometry import grid_points
from chmnet.ops.transfer import sample_positions, sampler_weights, soft_argmax
from chmnet.pictures import View
from chmnet.result import MatchResult


class ScoreMaps(NamedTuple):
    """How well each position of a target fits each keypoint of an example."""

    scores: Float[Tensor, "n h w"]
    view: View
    """What was seen of the target."""
    config: TransferConfig
    """How scores are read."""

    def of(self, rows: np.ndarray) -> "ScoreMaps":
        """The maps of some keypoints, or of all in another order."""
        return self._replace(scores=self.scores[torch.from_numpy(rows)])


def score_maps(result: MatchResult, points: Float[np.ndarray, "n 2"]) -> ScoreMaps:
    """The scores of points of the source, in pixels; of what is NaN they mean nothing."""
    at = torch.from_numpy(result.source.from_picture(points, inside=True)).to(result.scores)[None]
    scores = result.scores[0, 0]
    weights = sampler_weights(at, (scores.shape[0], scores.shape[1]), result.config)[0]
    return ScoreMaps(
        (weights @ scores.flatten(2).flatten(0, 1)).unflatten(-1, scores.shape[2:]).cpu(),
        result.target,
        result.config,
    )


def join_maps(
    maps: Sequence[ScoreMaps], weights: Float64[np.ndarray, "k n"], rows: Bool[np.ndarray, " n"]
) -> Float64[np.ndarray, "n 2"]:
    """Keypoints in pixels of the target, where the weighted sum of the examples' scores says.

    Args:
        maps: of each example, in the same order of keypoints; their views may differ.
        weights: of each example and keypoint.
        rows: which keypoints to read; the others are NaN.

    Example:
        >>> view, scores = View.of(np.zeros((90, 90), dtype=np.uint8)), torch.zeros(2, 1, 3, 3)
        >>> scores[0, 0, 1, 0], scores[0, 0, 1, 2], scores[1, 0, 1, 2] = 0.5, 0.4, 0.3
        >>> maps = [ScoreMaps(each, view, TransferConfig(temperature=0.01)) for each in scores]
        >>> each = np.array([True])
        >>> [join_maps(maps, np.array([[1.0], [other]]), each).round().tolist() for other in (0.0, 1.0)]
        [[[0.0, 45.0]], [[90.0, 45.0]]]
    """
    first, joined = maps[0], np.full((len(rows), 2), np.nan)
    height, width = first.scores.shape[1:]
    grid = grid_points((height, width), like=torch.zeros(1, dtype=torch.float64))
    places, total = first.view.to_picture(grid), torch.zeros(int(rows.sum()), height, width)
    for each, weight in zip(maps, weights, strict=True):
        at, scores = each.view.from_picture(places), each.of(rows).scores.float()
        read = sample_positions(rearrange(scores, "n h w -> 1 h w n"), at[None].float())[0]
        seen = (at.abs() <= 1 + 1e-6).all(-1, keepdim=True)
        read = torch.where(seen, read, scores.amin((1, 2)))  # 0 may be a high score
        total += rearrange(read * torch.from_numpy(weight[rows]).float(), "h w n -> n h w")
    positions = soft_argmax(total[None, None, :, None], first.config)[0, :, 0]
    joined[rows] = first.view.to_picture(positions.double().numpy(), inside=True)
    return joined
