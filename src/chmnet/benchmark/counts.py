"""Parameters and multiply-adds of a model, counted without running it."""

import math

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from chmnet.benchmark.plain_backbone import PlainBackbone
from chmnet.geometry import Size
from chmnet.nn.backbones import feature_grid
from chmnet.nn.chmnet import CHMNet, MatchingHead
from chmnet.nn.hough import HoughMatching
from chmnet.nn.turned import TurningVote
from chmnet.nn.voting import NeighbourhoodConsensus
from chmnet.ops.correlation import level_size

BACKBONE, PYRAMID, CORRELATION, FIRST_VOTE = "backbone", "pyramid", "correlation", "first vote"
BEST_SCALES, LAST_VOTE, FILTER, TRANSFER = "best scales, resizing", "last vote", "filter", "transfer"
STAGES = (BACKBONE, PYRAMID, CORRELATION, FIRST_VOTE, BEST_SCALES, LAST_VOTE, FILTER, TRANSFER)
"""The stages of a pair, in the order in which they run."""


def count_parameters(model: CHMNet) -> dict[str, int]:
    """Learned numbers of a model: all, and those of its parts.

    ``votes`` are the weights of the matching layers without their biases, the paper's "# params in CHM"; the
    backbone counts twice where source and target have one each.

    Example:
        >>> from chmnet.config import BackboneConfig, ModelConfig
        >>> count_parameters(CHMNet(ModelConfig(backbone=BackboneConfig("resnet18"))))
        {'total': 3225429, 'backbone': 2782784, 'projections': 442368, 'votes': 275}
    """
    backbones = [model.backbone, *([model.target_backbone] if model.target_backbone is not None else [])]
    return {
        "total": _numbers(model),
        "backbone": sum(_numbers(backbone) for backbone in backbones),
        "projections": _numbers(model.head.projections),
        "votes": sum(
            parameter.numel()
            for layer in model.head.votes()
            for name, parameter in layer.named_parameters()
            if not name.startswith("bias")
        ),
    }


def _numbers(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def count_multiply_adds(model: CHMNet, source_size: Size, target_size: Size | None = None) -> dict[str, int]:
    """Multiply-adds of each stage for one pair, and their ``total``.

    Convolutions, matrix products and votes count; interpolation, activations, maxima, the filter and the transfer
    do not. Taps on the zero padding of positions count, as is usual; scale pairs out of reach do not: of a window
    of 3 over 3 scales, 49 of 81 are in reach.

    Args:
        model: any model; its weights do not matter.
        source_size: (height, width) of the source image in pixels.
        target_size: of the target; the same if ``None``.

    Example:
        >>> from chmnet.config import BackboneConfig, ModelConfig
        >>> model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18")))
        >>> counts = count_multiply_adds(model, (240, 240))
        >>> counts["first vote"], counts["last vote"]
        (1550390625, 506250000)
    """
    sizes = (source_size, target_size or source_size)
    counts = dict.fromkeys(STAGES, 0)
    of_size = {size: _backbone_multiply_adds(model, size) for size in set(sizes)}  # equal sizes are counted once
    counts[BACKBONE] = of_size[sizes[0]] + len(model.head.rotations) * of_size[sizes[1]]
    counts.update(count_head_multiply_adds(model.head, model.backbone.channels, *map(feature_grid, sizes)))
    counts["total"] = sum(counts.values())
    return counts


def _backbone_multiply_adds(model: CHMNet, size: Size) -> int:
    with FlopCounterMode(display=False) as counter:  # additions and multiplications apart
        PlainBackbone(model.backbone, device="meta")(torch.empty(1, 3, *size, device="meta"))
    return int(counter.get_total_flops()) // 2


def count_head_multiply_adds(
    head: MatchingHead, in_channels: int, source_grid: Size, target_grid: Size
) -> dict[str, int]:
    """Multiply-adds of the stages after the backbone, from the sizes of the two feature grids."""
    config = head.config
    channels = in_channels // config.correlation.reduction if config.correlation.reduction else in_channels
    source_cells, target_cells = (
        [math.prod(level_size(grid, scale)) for scale in head.scales] for grid in (source_grid, target_grid)
    )
    projected = 9 * in_channels * channels if config.correlation.reduction else 0
    turns = len(head.rotations)  # each is another target
    matches = turns * math.prod(source_grid) * math.prod(target_grid)
    counts = {
        PYRAMID: projected * (sum(source_cells) + turns * sum(target_cells)),
        CORRELATION: turns * channels * sum(source_cells) * sum(target_cells),
        FIRST_VOTE: _vote_multiply_adds(head.first, matches, len(head.scales)),
        LAST_VOTE: _vote_multiply_adds(head.last, matches * config.output.upsample**4, 1),
    }
    if head.fine is not None:
        weights = sum(part.weight.numel() for part in head.fine.modules() if isinstance(part, nn.Conv2d))
        cells = config.output.upsample**2 * (math.prod(source_grid) + math.prod(target_grid))
        finer = matches * config.output.upsample**4
        counts[PYRAMID] += weights * cells
        counts[CORRELATION] += (channels + config.fine.channels) * finer
        counts[LAST_VOTE] += _vote_multiply_adds(head.fine.vote, finer, 1)
    return counts


def _vote_multiply_adds(layer: nn.Module, matches: int, scales: int) -> int:
    if isinstance(layer, HoughMatching):
        taps = (layer.groups.index >= 0).double().sum((-4, -3, -2, -1))  # of each pair of scale and rotation steps
        if isinstance(layer, TurningVote):
            taps = taps.sum((-2, -1))  # it hears all turns of its window
        for window in taps.shape:
            reached = [max(0, scales - abs(tap - window // 2)) for tap in range(window)]
            taps = torch.tensor(reached, dtype=taps.dtype) @ taps  # each axis in turn
        return int(taps) * layer.in_channels * layer.out_channels * matches
    if isinstance(layer, NeighbourhoodConsensus):
        return 2 * sum(weight.numel() for weight in layer.weights) * matches  # in both directions
    return 0


def scale_pairs_in_reach(scales: int, window: int) -> int:
    """How many (output scale pair, kernel tap over scales) there are whose input scale pair exists.

    Example:
        >>> scale_pairs_in_reach(scales=3, window=3)  # of 9 · 9
        49
    """
    reach = window // 2
    one_image = sum(abs(one - other) <= reach for one in range(scales) for other in range(scales))
    return one_image**2
