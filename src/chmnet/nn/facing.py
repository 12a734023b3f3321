"""Which way a thing faces: a small network on the features that matching has anyway."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Facing(nn.Module):
    """Says of feature maps which way the thing faces, as two numbers from −1 to 1.

    The first: its front lies to the left (−1) … right (1) of its back; a mirror exchanges the two. The second: how
    far its left and right sides, as people name them, lie apart, and in which order; a mirror changes nothing of
    that, because the mirror image of a face is a face. Both are 0 of a thing that shows neither.

    At each position two small convolutions see what is there, and how much that position counts. The weights are
    fitted by :func:`chmnet.evaluation.facing.fit_facing`; before that the answer is 0, 0.

    Args:
        channels: of the features.
        width: of the layers.

    Example:
        >>> Facing(8, 4)(torch.rand(2, 8, 5, 5)).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.reduce = nn.Conv2d(channels, width, 1)
        self.surround = nn.Conv2d(width, width, 3, padding=2, dilation=2)
        self.answer = nn.Conv2d(width, 3, 3, padding=2, dilation=2)
        self.drop = nn.Dropout(0.3)
        self.length = channels**0.5  # of the vectors: their numbers are then about one
        for parameter in self.answer.parameters():
            nn.init.zeros_(parameter)
        self.requires_grad_(False)  # whoever trains a network does not train this

    def forward(self, features: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 2"]:
        """Two numbers for each feature map."""
        with torch.autocast(features.device.type, enabled=False):
            hidden = self.length * F.normalize(features.to(self.reduce.weight.dtype), dim=1)
            hidden = F.relu(self.reduce(self.drop(hidden)))
            hidden = hidden + F.relu(self.surround(self.drop(hidden)))
            seen = self.answer(hidden).flatten(2)
            return (seen[:, :2] * seen[:, 2:].softmax(-1)).sum(-1).tanh()
