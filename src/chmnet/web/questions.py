"""Questions about a result that need more than its points: dense flow, the warped picture."""

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from chmnet.geometry import grid_points, normalised_to_pixels
from chmnet.matcher import MatchResult
from chmnet.nn.transfer import dense_flow, soft_argmax
from chmnet.ops.correlation import exchange


def flow(result: MatchResult) -> dict[str, np.ndarray]:
    """Arrays of the flow file: displacement of every point of the source, and both sizes."""
    size = result.source_size
    grid = grid_points(size, like=result.positions)
    moved = grid + dense_flow(result.positions, size)[0]
    displacement = normalised_to_pixels(moved, result.target_size) - normalised_to_pixels(grid, size)
    return {
        "flow": displacement.float().numpy(),
        "source_size": np.asarray(result.source_size),
        "target_size": np.asarray(result.target_size),
    }


def warp(result: MatchResult, picture: Image.Image, side: int) -> Image.Image:
    """The source picture in the frame of the target, within a square."""
    height, width = result.target_size
    scale = min(1.0, side / max(height, width))
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    back = soft_argmax(exchange(result.correlation), result.config)
    at = grid_points(size, like=back) + dense_flow(back, size)
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float()
    drawn = F.grid_sample(pixels, at.float(), padding_mode="border", align_corners=False)
    return Image.fromarray(drawn[0].permute(1, 2, 0).round().byte().numpy())
