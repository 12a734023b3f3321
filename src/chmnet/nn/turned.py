"""Rotation as a dimension of the vote: the target is seen turned by several angles, and the best turn wins.

Neighbouring matches move alike only where both pictures are seen upright: of a thing that is turned by θ, what
lies at p beside a match in the source lies at p turned by θ in the target, and no kernel of ‖p′ − p‖ hears it. So
each turned target is matched in its own frame, with all votes, and scores are turned back to the target's own
grid, where positions mean the same for all turns. A vote across turns hears neighbours turned into its frame.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from chmnet.nn.hough import HoughMatching


class TurningVote(HoughMatching):
    """A vote over positions, scales and turns of the target.

    What comes in is the correlation with one turned target and with its neighbours among the turns, as channels
    in their order; what goes out are the votes of that one alone: the source is never turned.

    Args:
        spatial: odd side of the window over positions.
        scale: of the window over scales; ``None``: no such axes.
        sharing: see :class:`HoughMatching`, as for all other options.
        rotation: odd side of the window over turns of the target.
        options: channels that go out, and all other arguments of :class:`HoughMatching`.

    Example:
        >>> layer = TurningVote(5, None, "psi", rotation=3)
        >>> layer.weight.numel(), layer(torch.rand(1, 3, 4, 4, 4, 4)).shape
        (110, torch.Size([1, 1, 4, 4, 4, 4]))
    """

    def __init__(self, spatial: int, scale: int | None, sharing: str, rotation: int, **options: object) -> None:
        super().__init__(spatial, scale, sharing, rotation=(1, rotation), **options)  # type: ignore[arg-type]

    def kernel(self) -> Tensor:
        """The kernel with turns as channels: ``[c_out, rt, [ss st] hs ws ht wt]``."""
        return super().kernel().select(-6, 0).squeeze(1).movedim(-5, 1)


def turned(planes: Float[Tensor, "b c h w"], degrees: float) -> Float[Tensor, "b c h w"]:
    """Planes turned counter-clockwise about their middle within their own frame; 0 where they do not reach.

    In a frame that is no square, positions turn as if it were one. Quarter turns of squares are exact.

    Example:
        >>> turned(torch.arange(4.0).view(1, 1, 2, 2), 90)[0, 0].tolist()
        [[1.0, 3.0], [0.0, 2.0]]
    """
    height, width = planes.shape[2:]
    if degrees % 360 == 0:
        return planes
    if degrees % 90 == 0 and height == width:
        return torch.rot90(planes, int(degrees // 90) % 4, (2, 3))
    angle = torch.deg2rad(torch.tensor(float(degrees)))
    cosine, sine = torch.cos(angle), torch.sin(angle)
    matrix = torch.stack([cosine, -sine, 0 * sine, sine, cosine, 0 * sine]).view(1, 2, 3).to(planes)
    grid = F.affine_grid(matrix.expand(len(planes), 2, 3), list(planes.shape), align_corners=True)
    return F.grid_sample(planes, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


def turned_images(images: Float[Tensor, "b 3 h w"], degrees: float) -> Float[Tensor, "b 3 h w"]:
    """Images turned counter-clockwise within their frame; beyond them is their mean colour."""
    if degrees % 360 == 0:
        return images
    mean = images.mean((2, 3), keepdim=True)
    return turned(images - mean, degrees) + mean


def turned_target(scores: Float[Tensor, "b c *rest ht wt"], degrees: float) -> Float[Tensor, "b c *rest ht wt"]:
    """A correlation whose target is turned counter-clockwise; the lowest score where it does not reach."""
    if degrees % 360 == 0:
        return scores
    lowest = scores.amin()
    planes = turned(rearrange(scores - lowest, "b ... ht wt -> b (...) ht wt"), degrees)
    return planes.view(scores.shape) + lowest


def with_neighbours(correlations: list[Tensor], turns: tuple[float, ...], number: int, window: int) -> Tensor:
    """The correlation with one turned target and with those next to it, turned into its frame, as channels.

    Turns are neighbours at multiples of the smallest step between any two; 0 where there is none.

    Args:
        correlations: ``b 1 … ht wt`` of each turn.
        turns: degrees.
        number: of the turn in question.
        window: odd number of channels.
    """
    if window == 1:
        return correlations[number]
    differences = ((second - first) % 360 for first in turns for second in turns)
    step = min(min(each, 360 - each) for each in differences if each)
    places = {round(turn % 360, 3) % 360: place for place, turn in enumerate(turns)}
    channels = []
    for away in range(-(window // 2), window // 2 + 1):
        place = places.get(round((turns[number] + away * step) % 360, 3) % 360)
        there = torch.zeros_like(correlations[number]) if place is None else correlations[place]
        channels.append(turned_target(there, -away * step))
    return torch.cat(channels, dim=1)
