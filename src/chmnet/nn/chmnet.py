"""The network: features → correlation over scales → vote → best scales → finer grid → vote → correlation."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from chmnet.config import ModelConfig
from chmnet.errors import ConfigError, InputError
from chmnet.geometry import Size
from chmnet.nn.backbones import build_backbone, feature_grid
from chmnet.nn.fine import FineBranch
from chmnet.nn.hough import ExpandedVote, HoughMatching
from chmnet.nn.transfer import transfer_keypoints
from chmnet.nn.voting import NeighbourhoodConsensus, RegularisedHoughMatching
from chmnet.ops.correlation import (
    CHUNK_BYTES,
    cosine_correlation,
    filter_in_place,
    keep_top_matches,
    mutual_nearest_neighbour_filter,
    resize_correlation,
)
from chmnet.ops.features import project_enlarged, resize_features

BACKBONE_BYTES = 600
"""Memory for each pixel of an image while its features are computed: what the largest backbone needs."""

OTHER_BYTES = 13 * 2**20
"""What libraries and threads need for themselves."""

VOTE_COPIES = 5
"""How often the correlation over scales is in memory while it is made and voted on."""

PIECE_COPIES = 6
"""How often a piece of the finer grid is in memory: while it is made, before the vote, inside it, and after."""

FINE_COPIES = 4
"""How much more often with a fine branch: its correlation, the power of it, and its votes."""


class Pyramid(NamedTuple):
    """Features of a batch of images at several scales."""

    levels: list[Tensor]
    """``b c h_i w_i`` for each scale; with a fine branch its level comes last."""
    size: Size
    """(height, width) of the feature grid itself, to which correlations of all scales are brought."""


class MatchingHead(nn.Module):
    """Everything after the backbone: two feature maps in, one 4D correlation out.

    Args:
        config: the network's configuration.
        in_channels: channels of the features.
        fine_channels: channels of the early layers for a fine branch, packed behind the features.

    Example:
        >>> head = MatchingHead(ModelConfig(), in_channels=8)
        >>> head(torch.rand(1, 8, 4, 5), torch.rand(1, 8, 3, 4)).shape
        torch.Size([1, 1, 8, 10, 6, 8])
    """

    def __init__(self, config: ModelConfig, in_channels: int, fine_channels: int = 0) -> None:
        super().__init__()
        self.config, self.in_channels = config, in_channels
        self.over_scales = config.dimensions == "6d-4d" and config.matching != "consensus"
        self.scales = config.scales if self.over_scales else (1.0,)
        self.projections = nn.ModuleList()
        width = in_channels
        if config.channel_reduction:
            width = in_channels // config.channel_reduction
            if width < 1:
                raise ConfigError(
                    f"channel_reduction = {config.channel_reduction} leaves nothing of {in_channels} channels; "
                    f"use at most {in_channels}, or 0 for no reduction"
                )
            self.projections.extend(nn.Conv2d(in_channels, width, 3, padding=1, bias=False) for _ in self.scales)
        self.first = self._first_vote()
        self.last = self._last_vote()
        self.fine = FineBranch(config, width, fine_channels) if config.fine.layers else None

    def _first_vote(self) -> nn.Module:
        config = self.config
        if config.matching == "hough":
            layer = HoughMatching(
                config.spatial_window,
                config.scale_window if self.over_scales else None,
                config.first_sharing,
                out_channels=config.channels,
                backend=config.backend,
            )
            layer.reset_parameters(scaled=config.initialisation == "scaled" or self.over_scales)
            return layer
        if config.matching == "regularised-hough":
            return RegularisedHoughMatching()
        if config.matching == "consensus":
            return NeighbourhoodConsensus(config.consensus_channels, config.spatial_window)
        return nn.Identity()

    def _last_vote(self) -> nn.Module:
        config = self.config
        if config.matching == "hough" and config.last_layer:
            layer = HoughMatching(
                config.spatial_window,
                None,
                config.last_sharing,
                in_channels=config.channels,
                backend=config.backend,
            )
            layer.reset_parameters(scaled=config.initialisation == "scaled")
            return layer
        if config.matching == "regularised-hough" and config.last_layer:
            return RegularisedHoughMatching()
        return nn.Identity()

    def forward(
        self, source: Float[Tensor, "b c hs ws"], target: Float[Tensor, "b c ht wt"]
    ) -> Float[Tensor, "b 1 HS WS HT WT"]:
        """Match two batches of feature maps, on grids ``upsample`` times finer than theirs.

        Votes are sums of many numbers: under autocast the head keeps the precision of its weights.
        """
        if source.shape != target.shape or self._to_the_letter():
            return self.match(self.pyramid(source), self.pyramid(target))
        levels, size = self.pyramid(torch.cat([source, target]))  # weights are read once
        pairs = [level.tensor_split([len(source)]) for level in levels]
        return self.match(Pyramid([pair[0] for pair in pairs], size), Pyramid([pair[1] for pair in pairs], size))

    def _to_the_letter(self) -> bool:
        """Whether to compute step by step as the paper says: for gradients, and to repeat its rounding."""
        return torch.is_grad_enabled() or self.config.backend == "folded"

    def pyramid(self, features: Float[Tensor, "b c h w"]) -> Pyramid:
        """The features at each scale, with their channels reduced: all that matching needs of an image."""
        with torch.autocast(features.device.type, enabled=False):
            if (parameter := next(self.parameters(), None)) is not None:
                features = features.to(parameter.dtype)
            features, packed = features.tensor_split([self.in_channels], dim=1)
            levels = []
            for number, scale in enumerate(self.scales):
                size = (max(1, round(features.shape[2] * scale)), max(1, round(features.shape[3] * scale)))
                if not self.projections:
                    levels.append(resize_features(features, size))
                    continue
                projection = self.projections[number]
                assert isinstance(projection, nn.Conv2d)
                if scale > 1 and not self._to_the_letter():
                    levels.append(project_enlarged(features, projection.weight, size))
                else:
                    levels.append(projection(resize_features(features, size)))
            if self.fine is not None:
                nearest = min(range(len(levels)), key=lambda number: abs(self.scales[number] - 1))
                levels.append(self.fine.level(levels[nearest], packed))
        return Pyramid(levels, (features.shape[2], features.shape[3]))

    def match(
        self, source: Pyramid, target: Pyramid, chunk_bytes: int = CHUNK_BYTES, filtered: bool = True
    ) -> Float[Tensor, "b 1 HS WS HT WT"]:
        """Match two images whose pyramids are known.

        Args:
            source: features of the source images.
            target: features of the target images.
            chunk_bytes: without gradients the finer grid is worked on in pieces about this large.
            filtered: apply the mutual filter, where the configuration has one.
        """
        filtered = filtered and self.config.mutual_filter
        with torch.autocast(source.levels[0].device.type, enabled=False):
            # No name for the votes here: they are gone as soon as the finer grid is made.
            return self._refine(
                self.vote_over_scales(self.correlate(source, target)), source, target, chunk_bytes, filtered
            )

    def match_with_scales(
        self, source: Pyramid, target: Pyramid, chunk_bytes: int = CHUNK_BYTES
    ) -> tuple[Float[Tensor, "b 1 HS WS HT WT"], Int64[Tensor, "b hs ws ht wt"]]:
        """As :meth:`match`, and which pair of scales won each match of the feature grids.

        The pair of the source's scale i and the target's j has the number ``i · scales + j``.

        Raises:
            InputError: the head votes over one scale only.
        """
        if not self.over_scales:
            raise InputError("this head works on one scale; heads with dimensions 6d-4d vote over several")
        with torch.autocast(source.levels[0].device.type, enabled=False):
            votes = self.first(self.correlate(source, target))
            winners = votes.amax(1).flatten(1, 2).argmax(1)
            scores = self._activate(votes.amax((2, 3)))
            del votes  # the largest of all: gone before the finer grid is made
            refined = self._refine(scores, source, target, chunk_bytes, self.config.mutual_filter)
            return refined, winners

    def _refine(
        self,
        scores: Float[Tensor, "b c hs ws ht wt"],
        source: Pyramid,
        target: Pyramid,
        chunk_bytes: int,
        filtered: bool,
    ) -> Float[Tensor, "b 1 HS WS HT WT"]:
        """The finer grid, its vote and the filter."""
        fine_source, fine_target = self.fine_size(source.size), self.fine_size(target.size)
        levels = None if self.fine is None else (source.levels[-1], target.levels[-1])
        scores = resize_correlation(scores, fine_source, target.size)
        if torch.is_grad_enabled():
            scores = self._score(resize_correlation(scores, fine_source, fine_target), levels)
            return mutual_nearest_neighbour_filter(scores) if filtered else scores
        scores = self._score_in_chunks(scores, fine_target, chunk_bytes, levels)
        return filter_in_place(scores, chunk_bytes) if filtered else scores

    def fine_size(self, size: Size) -> Size:
        """(height, width) of the grid that a feature grid is matched on."""
        return self.config.upsample * size[0], self.config.upsample * size[1]

    def _score(
        self, scores: Float[Tensor, "b c HS WS HT WT"], levels: tuple[Tensor, Tensor] | None
    ) -> Float[Tensor, "b 1 HS WS HT WT"]:
        """The last vote, that of the fine branch, and the activation."""
        scores = self.last(scores)
        if self.fine is not None and levels is not None:
            scores = scores + self.fine(*levels)
        if self.config.output == "softplus":
            scores = F.softplus(scores)
        # The filter is for scores that are not negative; a vote against is no match at all.
        return scores.relu() if self.config.mutual_filter else scores

    def reach(self, height: int) -> int:
        """How many rows around its own a position of the last vote hears, on a grid of so many."""
        if isinstance(self.last, HoughMatching | ExpandedVote):
            return self.config.spatial_window // 2
        return 0 if isinstance(self.last, nn.Identity) else height  # a global vote hears all

    def _score_in_chunks(
        self,
        coarse: Float[Tensor, "b c HS WS ht wt"],
        target_size: Size,
        chunk_bytes: int,
        levels: tuple[Tensor, Tensor] | None,
    ) -> Float[Tensor, "b 1 HS WS HT WT"]:
        """Refine the target grid and vote, a few rows of the source at a time, with what the vote reaches around.

        The numbers are those of one piece: a vote sums in the same order wherever the borders of a piece lie.
        """
        batch, _, height, width = coarse.shape[:4]
        reach = self.reach(height)
        row_bytes = self.piece_copies() * batch * width * math.prod(target_size) * coarse.element_size()
        rows = max(1, chunk_bytes // max(1, row_bytes) - 2 * reach)
        if rows >= height or reach >= height:
            return self._score(resize_correlation(coarse, (height, width), target_size), levels)
        output = coarse.new_empty(batch, 1, height, width, *target_size)
        for first in range(0, height, rows):
            last = min(first + rows, height)
            low, high = max(first - reach, 0), min(last + reach, height)
            piece = resize_correlation(coarse[:, :, low:high], (high - low, width), target_size)
            rows_of_levels = None if levels is None else (levels[0][:, :, low:high], levels[1])
            output[:, :, first:last] = self._score(piece, rows_of_levels)[:, :, first - low : last - low]
        return output

    def piece_copies(self) -> int:
        """How often the positions of a piece of the finer grid are in memory while it is voted on."""
        return PIECE_COPIES * self.config.channels + (0 if self.fine is None else FINE_COPIES)

    def correlate(self, source: Pyramid, target: Pyramid) -> Float[Tensor, "b 1 ss st hs ws ht wt"]:
        """Correlation of all scale pairs (equations 6 and 7), without scales one pair."""
        number = len(self.scales)  # behind them may be the fine branch's level
        rows = [
            torch.stack(
                [self._correlate_pair(s, t, source.size, target.size) for t in target.levels[:number]], dim=2
            )
            for s in source.levels[:number]
        ]
        return torch.stack(rows, dim=2)

    def _correlate_pair(
        self, source: Tensor, target: Tensor, source_size: Size, target_size: Size
    ) -> Float[Tensor, "b 1 hs ws ht wt"]:
        scores = cosine_correlation(source, target)
        if self.config.rectify == "before-resize":
            scores = scores.relu()
        if self.config.keep_top:
            scores = keep_top_matches(scores, self.config.keep_top)
        scores = resize_correlation(scores, source_size, target_size).relu()
        return scores if self.config.correlation_power == 1 else scores.pow(self.config.correlation_power)

    def vote_over_scales(
        self, correlation: Float[Tensor, "b 1 ss st hs ws ht wt"]
    ) -> Float[Tensor, "b c hs ws ht wt"]:
        """First vote, then the best scale pair of each match. The sigmoid comes last: it keeps the order."""
        if not self.over_scales:
            scores = rearrange(correlation, "b c 1 1 ... -> b c ...")
            if self.config.matching == "consensus":
                scores = mutual_nearest_neighbour_filter(scores)
            scores = self.first(scores)
            if self.config.matching == "consensus":
                scores = mutual_nearest_neighbour_filter(scores)
        else:
            scores = self.first(correlation).amax((2, 3))
        return self._activate(scores)

    def _activate(self, scores: Float[Tensor, "b c hs ws ht wt"]) -> Float[Tensor, "b c hs ws ht wt"]:
        # Only learned votes are logits; the others' scores are similarities already.
        return scores.sigmoid() if self.config.matching == "hough" else scores


class CHMNet(nn.Module):
    """Convolutional Hough matching network: two images in, the correlation of their positions out.

    Args:
        config: see :class:`chmnet.config.ModelConfig`, or the name of a preset.

    Weights are random; :func:`chmnet.load_model` loads trained ones.

    Example:
        >>> from chmnet.config import BackboneConfig
        >>> model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18"))).eval()
        >>> cat, dog = torch.rand(1, 3, 64, 96), torch.rand(1, 3, 80, 64)
        >>> model(cat, dog).shape
        torch.Size([1, 1, 8, 12, 10, 8])
    """

    def __init__(self, config: ModelConfig | str = "paper") -> None:
        super().__init__()
        if isinstance(config, str):
            config = ModelConfig.preset(config)
        self.config = config
        fine = (config.fine.layers, config.upsample)
        self.backbone = build_backbone(config.backbone, *fine)
        separate = config.backbone.branches == "separate"
        self.target_backbone = build_backbone(config.backbone, *fine) if separate else None
        self.head = MatchingHead(config, self.backbone.channels, self.backbone.fine_channels)

    def features(self, images: Tensor, branch: str = "source") -> Float[Tensor, "b c h w"]:
        """Features of images ``b 3 h w`` (RGB, 0 … 1), on the stride-16 grid.

        Args:
            images: any height and width.
            branch: ``"source"`` or ``"target"``; only separate branches tell them apart.
        """
        _check_images(images)
        if branch not in ("source", "target"):
            raise InputError(f"branch must be source or target, got {branch!r}")
        if branch == "target" and self.target_backbone is not None:
            return self.target_backbone(images)
        return self.backbone(images)

    def forward(self, source: Tensor, target: Tensor) -> Float[Tensor, "b 1 hs ws ht wt"]:
        """Match two batches of images ``b 3 h w``; the two may differ in size."""
        self._check_batches(source, target)
        if self.target_backbone is None and source.shape == target.shape and not self.training:
            both = self.features(torch.cat([source, target]))
            return self.head(both[: len(source)], both[len(source) :])
        return self.head(self.features(source), self.features(target, branch="target"))

    def match_within(self, source: Tensor, target: Tensor, memory_mb: float) -> Float[Tensor, "b 1 hs ws ht wt"]:
        """As :meth:`forward` without gradients, in pieces that need no more than so many megabytes.

        What counts is memory beside the network and the images; the result, which must fit too, is part of it.

        Args:
            source: ``b 3 h w``.
            target: ``b 3 h w``, of the same or another size.
            memory_mb: the limit.

        Raises:
            InputError: even one image after the other, row by row, would need more; the message says how much.
        """
        self._check_batches(source, target)
        sides = (source.shape[2], source.shape[3]), (target.shape[2], target.shape[3])
        chunk_bytes = self.chunk_bytes(*sides, memory_mb, len(source))
        sizes = [side for images in (source, target) for side in self.head.fine_size(feature_grid(images.shape))]
        output = source.new_empty(len(source), 1, *sizes)
        with torch.no_grad():
            for item in range(len(source)):
                here = self.head.pyramid(self.features(source[item : item + 1]))
                there = self.head.pyramid(self.features(target[item : item + 1], branch="target"))
                output[item] = self.head.match(here, there, chunk_bytes)[0]
        return output

    def chunk_bytes(self, source_size: Size, target_size: Size, memory_mb: float, batch: int = 1) -> int:
        """What a memory limit leaves for the pieces of the finer grid, images of these sizes being matched.

        Raises:
            InputError: the limit is too low; the message says how much is needed.
        """
        if not (math.isfinite(memory_mb) and memory_mb > 0):
            raise InputError(f"memory_mb must be a positive, finite number of megabytes, got {memory_mb}")
        pixels = max(math.prod(size) for size in (source_size, target_size))
        coarse_cells, fine_cells = 1, 1
        for size in (source_size, target_size):
            grid = feature_grid(size)
            coarse_cells, fine_cells = (
                coarse_cells * math.prod(grid),
                fine_cells * math.prod(self.head.fine_size(grid)),
            )
        number_bytes = next(self.parameters()).element_size()
        channels = self.config.channels
        if self.config.matching == "consensus":
            channels = 2 * max(self.config.consensus_channels)
        levels = len(self.head.scales) ** 2 * channels
        first = VOTE_COPIES * levels * coarse_cells * number_bytes
        results = (batch + 1) * fine_cells * number_bytes  # all, and the one at hand
        fixed = OTHER_BYTES + pixels * BACKBONE_BYTES + max(first, results)
        rows = self.head.fine_size(feature_grid(source_size))[0]
        piece = min(rows, 1 + 2 * self.head.reach(rows))
        least = self.head.piece_copies() * fine_cells * number_bytes * piece // rows
        limit = int(memory_mb * 2**20)
        if fixed + least > limit:
            raise InputError(
                f"matching needs about {math.ceil((fixed + least) / 2**20)} MB beside the network, "
                f"more than the limit of {memory_mb:g}; raise the limit, or use smaller images or batches"
            )
        return min(limit - fixed, CHUNK_BYTES)

    def _check_batches(self, source: Tensor, target: Tensor) -> None:
        _check_images(source)
        _check_images(target)
        if source.shape[0] != target.shape[0]:
            raise InputError(
                f"source and target must be batches of one length, got {source.shape[0]} and {target.shape[0]}"
            )

    def transfer(
        self, correlation: Float[Tensor, "b 1 hs ws ht wt"], keypoints: Float[Tensor, "b n 2"]
    ) -> Float[Tensor, "b n 2"]:
        """Move normalised source keypoints to the target with the configured transfer."""
        return transfer_keypoints(correlation, keypoints, self.config.transfer)


def _check_images(images: Tensor) -> None:
    if images.dim() != 4 or images.shape[1] != 3 or 0 in images.shape[2:]:
        raise InputError(f"images must have the axes b 3 h w, RGB from 0 to 1, got {list(images.shape)}")
    if not images.is_floating_point():
        raise InputError(f"images must be floating-point, RGB from 0 to 1, got {images.dtype}; divide by 255")
