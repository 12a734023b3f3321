"""Which way a thing faces: a small network on the features that matching has anyway."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Facing(nn.Module):
    """Says of feature maps which way the thing faces: −1 left … 1 right; 0: towards us, away, or neither.

    At each position two small convolutions see which way what is there faces, and how much that position counts.
    The weights are fitted by :func:`chmnet.evaluation.facing.fit_facing`; they start at zero, and it says 0.

    Args:
        channels: of the features.
        width: of the layers.

    Example:
        >>> Facing(8, 4)(torch.rand(2, 8, 5, 5)).tolist()
        [0.0, 0.0]
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, width, 1)
        self.surround = nn.Conv2d(width, width, 3, padding=2, dilation=2)
        self.answer = nn.Conv2d(width, 2, 3, padding=2, dilation=2)
        self.drop = nn.Dropout(0.3)
        self.scale = channels**0.5  # a vector of length one has small channels
        for parameter in self.answer.parameters():
            nn.init.zeros_(parameter)

    def forward(self, features: Float[Tensor, "b c h w"]) -> Float[Tensor, " b"]:
        """One number for each feature map."""
        with torch.autocast(features.device.type, enabled=False):
            hidden = self.scale * F.normalize(features.to(self.reduce.weight.dtype), dim=1)
            hidden = F.relu(self.reduce(self.drop(hidden)))
            hidden = hidden + F.relu(self.surround(self.drop(hidden)))
            way, weight = self.answer(hidden).flatten(2).unbind(1)
            return (way * weight.softmax(-1)).sum(-1).tanh()
