"""The pair that is measured: two images of noise. Time and memory do not depend on what is seen."""

from typing import NamedTuple

import torch
from torch import Tensor

from chmnet.benchmark.baseline import Baseline
from chmnet.geometry import Size
from chmnet.nn.chmnet import CHMNet

KEYPOINTS = 20
"""Points that a pair transfers."""

Network = CHMNet | Baseline


class ImagePair(NamedTuple):
    """Two images ``1 3 h w`` and normalised keypoints ``1 n 2`` of the first."""

    source: Tensor
    target: Tensor
    keypoints: Tensor


def random_pair(size: Size) -> ImagePair:
    """Two different images of (height, width) ``size``, always the same two.

    Example:
        >>> random_pair((32, 48)).target.shape
        torch.Size([1, 3, 32, 48])
    """
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.rand(1, 3, *size, generator=generator) for _ in range(2))
    return ImagePair(source, target, 2 * torch.rand(1, KEYPOINTS, 2, generator=generator) - 1)


def match_pair(network: Network, pair: ImagePair) -> Tensor:
    """From images to transferred keypoints ``1 n 2``."""
    with torch.inference_mode():
        return network.transfer(network(pair.source, pair.target), pair.keypoints)
