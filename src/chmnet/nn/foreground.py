"""Which positions show a thing rather than its background: a linear probe, and the matches worth showing by it."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from chmnet.geometry import grid_points
from chmnet.ops.transfer import sample_positions

THING_THRESHOLD = 0.5
"""Positions of at least this probability lie on a thing."""
THING_SHARE = 0.6
"""In a picture where nothing looks much like a thing: positions of at least this share of the best."""


class Foreground(nn.Module):
    """The probability that each position of a feature map lies on a thing: ``sigmoid(w · f / |f| + b)``.

    Its numbers are buffers: they are fitted after training, by
    :func:`chmnet.evaluation.foreground.fit_foreground`. Until then every position gets one half.

    Args:
        channels: of the features.

    Example:
        >>> probe = Foreground(2)
        >>> probe.weight.copy_(torch.tensor([4.0, -4.0])).tolist()
        [4.0, -4.0]
        >>> probe(torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0]]).view(1, 2, 1, 3))
        tensor([[[0.9820, 0.0180, 0.5000]]])
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(channels))
        self.register_buffer("bias", torch.zeros(1))

    def forward(self, features: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
        """Look at each position by itself, and not at what is packed behind the features."""
        with torch.autocast(features.device.type, enabled=False):
            directions = F.normalize(features[:, : len(self.weight)].to(self.weight.dtype), dim=1)
            return torch.sigmoid(torch.einsum("bchw,c->bhw", directions, self.weight) + self.bias)


def on_thing(
    foreground: Float[Tensor, "1 h w"] | None, positions: Float[Tensor, "hs ws 2"]
) -> tuple[Float[Tensor, "hs ws"], float]:
    """The probability that positions lie on a thing, and from which on they are taken to.

    Args:
        foreground: of the picture that the positions lie in; ``None``: nobody knows, and all of them do.
        positions: normalised.

    Example:
        >>> on_thing(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[0.5, 0.0]]]))
        (tensor([[0.7500]]), 0.5)
    """
    if foreground is None:
        return torch.ones_like(positions[..., 0]), 0.0
    values = sample_positions(foreground[..., None].to(positions), positions[None])[0, ..., 0]
    return values, from_which_on(foreground)


def from_which_on(foreground: Float[Tensor, "1 h w"] | None) -> float:
    """The probability from which on positions are taken to lie on a thing.

    Example:
        >>> from_which_on(torch.tensor([[[0.2, 0.9]]])), round(from_which_on(torch.tensor([[[0.2, 0.1]]])), 2)
        (0.5, 0.12)
    """
    return 0.0 if foreground is None else min(THING_THRESHOLD, THING_SHARE * float(foreground.max()))


def best_matches(
    confidence: Float[Tensor, "hs ws"],
    positions: Float[Tensor, "hs ws 2"],
    foreground: tuple[Float[Tensor, "1 h w"] | None, Float[Tensor, "1 ht wt"] | None],
    seen: Bool[Tensor, " cells"],
) -> tuple[Int64[Tensor, " n"], Float[Tensor, " n"]]:
    """Positions of the source whose matches are worth showing, numbered row by row, and how much, the best first.

    That is the confidence times the probabilities that the match starts and ends on a thing. Matches that start
    or end on the background are left out; if all do, the best one stays.

    Args:
        confidence: of the match of each position of the source.
        positions: where they lie in the target, normalised.
        foreground: of source and target; ``None``: nobody knows, and all positions lie on a thing.
        seen: which positions of the source may be shown at all.

    Example:
        >>> picture = torch.tensor([[[0.1, 0.9, 0.8]]])
        >>> there = torch.tensor([[[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]])  # each position stays where it is
        >>> best_matches(torch.tensor([[0.9, 0.5, 0.8]]), there, (picture, picture), torch.ones(3).bool())
        (tensor([2, 1]), tensor([0.5120, 0.4050]))
    """
    grid = grid_points((positions.shape[0], positions.shape[1]), like=positions)
    sides = on_thing(foreground[0], grid), on_thing(foreground[1], positions)
    strength = (confidence * sides[0][0] * sides[1][0]).flatten()
    shown = seen & ((sides[0][0] >= sides[0][1]) & (sides[1][0] >= sides[1][1])).flatten()
    order = strength.argsort(descending=True, stable=True)
    chosen = order[shown[order]] if bool(shown.any()) else order[seen[order]][:1]
    return chosen, strength[chosen]
