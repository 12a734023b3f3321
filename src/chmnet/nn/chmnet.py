"""The network: features → correlation over scales → vote → best scales → finer grid → vote → correlation."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from chmnet.config import ConsensusConfig, HoughConfig, MatchingConfig, ModelConfig, RegularisedHoughConfig
from chmnet.errors import ConfigError, InputError
from chmnet.geometry import Size
from chmnet.nn.backbones import build_backbone
from chmnet.nn.facing import Facing
from chmnet.nn.fine import FineBranch
from chmnet.nn.foreground import Foreground
from chmnet.nn.hough import HoughMatching
from chmnet.nn.turned import TurningVote, turned_images, turned_target, with_neighbours
from chmnet.nn.voting import NeighbourhoodConsensus, RegularisedHoughMatching
from chmnet.ops.correlation import (
    cosine_correlation,
    keep_top_matches,
    level_size,
    mutual_nearest_neighbour_filter,
    resize_correlation,
    resize_features,
)
from chmnet.ops.transfer import transfer_keypoints


class Pyramid(NamedTuple):
    """Features of a batch of images at several scales."""

    levels: list[Tensor]
    """``b c h_i w_i`` for each scale; then those of turned views; with a fine branch its level comes last."""
    size: Size
    """(height, width) of the feature grid itself, to which correlations of all scales are brought."""


class MatchingHead(nn.Module):
    """Everything after the backbone: two feature maps in, one 4D correlation out. Exact and differentiable.

    :class:`chmnet.nn.inference.InferenceHead` computes the same numbers faster, without gradients.

    Args:
        config: the network's configuration.
        in_channels: channels of the features.
        backend: who computes the votes of Hough layers; see :func:`chmnet.ops.conv_nd`.
        fine_channels: channels of the early layers for a fine branch, packed behind the features.

    Example:
        >>> head = MatchingHead(ModelConfig(), in_channels=8)
        >>> head(torch.rand(1, 8, 4, 5), torch.rand(1, 8, 3, 4)).shape
        torch.Size([1, 1, 8, 10, 6, 8])
    """

    def __init__(
        self, config: ModelConfig, in_channels: int, backend: str = "auto", fine_channels: int = 0
    ) -> None:
        super().__init__()
        self.config, self.in_channels = config, in_channels
        self.scales = config.correlation.scales
        self.rotations = config.correlation.rotations
        self.over_scales = len(self.scales) > 1
        self.projections = nn.ModuleList()
        width = in_channels
        if config.correlation.reduction:
            width = in_channels // config.correlation.reduction
            if width < 1:
                raise ConfigError(
                    f"reduction = {config.correlation.reduction} leaves nothing of {in_channels} channels; "
                    f"use at most {in_channels}, or 0 for no reduction"
                )
            self.projections.extend(nn.Conv2d(in_channels, width, 3, padding=1, bias=False) for _ in self.scales)
        self.width = width
        self.first, self.last = self._build_votes(config.matching, backend)
        self.fine = FineBranch(config, width, fine_channels, backend) if config.fine.layers else None

    def _build_votes(self, matching: MatchingConfig, backend: str) -> tuple[nn.Module, nn.Module]:
        if isinstance(matching, HoughConfig):
            scale = matching.scale_window if self.over_scales else None
            window, channels = matching.spatial_window, matching.channels
            options: dict[str, Any] = {
                "backend": backend,
                "taps": matching.taps,
                "scale_borders": matching.scale_borders,
            }
            first = HoughMatching(window, scale, matching.first_sharing, 1, channels, **options)
            if matching.rotation_window > 1:
                turns = matching.rotation_window
                first = TurningVote(window, scale, matching.first_sharing, turns, out_channels=channels, **options)
            first.reset_parameters()  # drawn a second time, as in version 0.1: a seed gives the same network
            if not matching.last_layer:
                return first, nn.Identity()
            last = HoughMatching(
                window, None, matching.last_sharing, channels, 1, backend=backend, taps=matching.taps
            )
            last.reset_parameters()
            return first, last
        if isinstance(matching, RegularisedHoughConfig):
            return RegularisedHoughMatching(), RegularisedHoughMatching() if matching.last_layer else nn.Identity()
        if isinstance(matching, ConsensusConfig):
            return NeighbourhoodConsensus(matching.channels, matching.spatial_window), nn.Identity()
        return nn.Identity(), nn.Identity()

    def forward(
        self, source: Float[Tensor, "b c hs ws"], target: Float[Tensor, "b d ht wt"]
    ) -> Float[Tensor, "b 1 HS WS HT WT"]:
        """Match two batches of feature maps, on grids ``upsample`` times finer than theirs.

        Votes are sums of many numbers: under autocast the head keeps the precision of its weights.
        """
        return self.match(self.pyramid(source), self.pyramid(target))[0]

    def pyramid(self, features: Float[Tensor, "b c h w"]) -> Pyramid:
        """The features at each scale, with their channels reduced: all that matching needs of an image."""
        with torch.autocast(features.device.type, enabled=False):
            if (parameter := next(self.parameters(), None)) is not None:
                features = features.to(parameter.dtype)
            view, packed = features.tensor_split([self.in_channels], dim=1)
            views = [view] if self.fine is not None else features.split(self.in_channels, dim=1)
            size = (features.shape[2], features.shape[3])
            levels = [
                self.level(view, number, level_size(size, scale))
                for view in views
                for number, scale in enumerate(self.scales)
            ]
            if self.fine is not None:
                levels.append(self.fine.level(levels[self.nearest], packed))
        return Pyramid(levels, size)

    @property
    def nearest(self) -> int:
        """Number of the scale that is nearest to the features' own."""
        return min(range(len(self.scales)), key=lambda number: abs(self.scales[number] - 1))

    def level(self, features: Float[Tensor, "b c h w"], number: int, size: Size) -> Float[Tensor, "b d H W"]:
        """The features at one scale."""
        resized = resize_features(features, size)
        return self.projections[number](resized) if self.projections else resized

    def match(
        self, source: Pyramid, target: Pyramid, scales: bool = False, filtered: bool = True
    ) -> tuple[Float[Tensor, "b 1 HS WS HT WT"], Int64[Tensor, "b hs ws ht wt"] | None]:
        """Match two images whose pyramids are known.

        Args:
            source: features of the source images.
            target: features of the target images.
            scales: also tell which pair of scales won each match of the feature grids: the pair of the source's
                scale i and the target's j has the number ``i · scales + j``. Heads of one scale have none.
            filtered: apply the mutual filter, where the configuration has one.
        """
        with torch.autocast(source.levels[0].device.type, enabled=False):
            winners: list[Tensor] | None = [] if scales and self.over_scales else None
            if len(self.rotations) > 1:
                scores = self.match_turned(source, target, winners)
            else:
                # No name for the votes here: they are gone as soon as the finer grid is made.
                scores = self.score(
                    resize_correlation(
                        self.vote_over_scales(self.correlate(source, target), winners),
                        self.fine_size(source.size),
                        self.fine_size(target.size),
                    ),
                    self.fine_levels(source, target),
                )
            if filtered and self.config.output.mutual_filter:
                scores = mutual_nearest_neighbour_filter(scores)
        return scores, winners[0] if winners else None

    def match_turned(
        self, source: Pyramid, target: Pyramid, winners: list[Tensor] | None
    ) -> Float[Tensor, "b 1 HS WS HT WT"]:
        """The scores of each match in the turned target in which it is best; winners are those of the first."""
        number = len(self.scales)
        views = [
            Pyramid(target.levels[first : first + number], target.size)
            for first in range(0, len(target.levels), number)
        ]
        if len(views) != len(self.rotations):
            raise InputError(f"features of {len(views)} turned views, not of {len(self.rotations)}: of a source?")
        correlations = [self.correlate(source, view) for view in views]
        matching, best = self.config.matching, None
        window = matching.rotation_window if isinstance(matching, HoughConfig) else 1
        for place, degrees in enumerate(self.rotations):
            votes = self.vote_over_scales(with_neighbours(correlations, self.rotations, place, window), winners)
            sizes = self.fine_size(source.size), self.fine_size(target.size)
            scores = turned_target(self.score(resize_correlation(votes, *sizes)), -degrees)
            best = scores if best is None else torch.maximum(best, scores)
        assert best is not None
        return best

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

    def likeness(self, source: Pyramid, target: Pyramid) -> Float[Tensor, "b hs ws ht wt"]:
        """Cosine of all features of two images at their own scale, before any vote."""
        return cosine_correlation(source.levels[self.nearest], target.levels[self.nearest])[:, 0]

    def _correlate_pair(
        self, source: Tensor, target: Tensor, source_size: Size, target_size: Size
    ) -> Float[Tensor, "b 1 hs ws ht wt"]:
        config = self.config.correlation
        scores = cosine_correlation(source, target)
        if config.rectify == "before-resize":
            scores = scores.relu()
        if config.keep_top:
            scores = keep_top_matches(scores, config.keep_top)
        scores = resize_correlation(scores, source_size, target_size).relu()
        return scores if config.power == 1 else scores.pow(config.power)

    def vote_over_scales(
        self,
        correlation: Float[Tensor, "b n ss st hs ws ht wt"],
        winners: list[Tensor] | None = None,
        rows: slice | None = None,
    ) -> Float[Tensor, "b c rows ws ht wt"]:
        """First vote, then the best scale pair of each match. The sigmoid comes last: it keeps the order.

        Args:
            correlation: of all scale pairs; n channels where turns hear their neighbours.
            winners: takes the number of the winning pair of each match, if it is asked for.
            rows: of the source to compute, by a vote made for inference; ``None``: all.
        """
        kind = self.config.matching.kind
        if isinstance(self.config.matching, HoughConfig) and correlation.shape[1] == 1:
            beside = self.config.matching.rotation_window // 2  # one turn alone has no neighbours
            correlation = F.pad(correlation, [0, 0] * (correlation.dim() - 2) + [beside, beside])
        if self.over_scales:
            votes = voted(self.first, correlation, rows)
            if winners is not None:
                winners.append(votes.amax(1).flatten(1, 2).argmax(1))
            scores = votes.amax((2, 3))
        else:
            scores = correlation[:, :, 0, 0]
            if kind == "consensus":
                scores = mutual_nearest_neighbour_filter(scores)
            scores = voted(self.first, scores, rows)
            if kind == "consensus":
                scores = mutual_nearest_neighbour_filter(scores)
        # Only learned votes are logits; the others' scores are similarities already.
        return scores.sigmoid() if kind == "hough" else scores

    def fine_size(self, size: Size) -> Size:
        """(height, width) of the grid that a feature grid is matched on."""
        return self.config.output.upsample * size[0], self.config.output.upsample * size[1]

    def reach(self, height: int) -> int:
        """How many rows around its own a position of the last vote reads, on a grid of so many."""
        matching = self.config.matching
        if isinstance(matching, HoughConfig) and matching.last_layer:
            return matching.spatial_window // 2
        return height if isinstance(matching, RegularisedHoughConfig) and matching.last_layer else 0

    def votes(self) -> tuple[nn.Module, ...]:
        """The layers that vote: the first, the last, and that of a fine branch, if there is one."""
        return (self.first, self.last) if self.fine is None else (self.first, self.last, self.fine.vote)

    def fine_levels(self, source: Pyramid, target: Pyramid) -> tuple[Tensor, Tensor] | None:
        """What the fine branch reads of both images, if there is one."""
        return None if self.fine is None else (source.levels[-1], target.levels[-1])

    def score(
        self,
        scores: Float[Tensor, "b c HS WS HT WT"],
        levels: tuple[Tensor, Tensor] | None = None,
        rows: slice | None = None,
    ) -> Float[Tensor, "b 1 rows WS HT WT"]:
        """The last vote, that of the fine branch, and the activation.

        Args:
            scores: on the finer grid, or on some rows of the source's.
            levels: see :meth:`fine_levels`; of the source the same rows.
            rows: those to compute, by a vote made for inference; ``None``: all.
        """
        scores = voted(self.last, scores, rows)
        if self.fine is not None and levels is not None:
            fine = self.fine(*levels)
            scores = scores + (fine if rows is None else fine[:, :, rows])
        if self.config.output.activation == "softplus":
            scores = F.softplus(scores)
        # The filter is for scores that are not negative; a vote against is no match at all.
        return scores.relu() if self.config.output.mutual_filter else scores


def voted(layer: nn.Module, scores: Tensor, rows: slice | None) -> Tensor:
    """What a layer makes of scores; of some rows of the source, if they are given."""
    votes: Tensor = layer(scores) if rows is None else layer(scores, rows)
    return votes


class CHMNet(nn.Module):
    """Convolutional Hough matching network: two images in, the correlation of their positions out.

    Args:
        config: see :class:`chmnet.config.ModelConfig`, or the name of a preset.
        backend: who computes the votes: ``auto``, ``native``, ``folded`` or ``reference``; see
            :func:`chmnet.ops.conv_nd`. ``folded`` adds up in the order of the authors' code.

    Weights are random; :func:`chmnet.load_model` loads trained ones.

    Example:
        >>> from chmnet.config import BackboneConfig
        >>> model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18"))).eval()
        >>> cat, dog = torch.rand(1, 3, 64, 96), torch.rand(1, 3, 80, 64)
        >>> model(cat, dog).shape
        torch.Size([1, 1, 8, 12, 10, 8])
    """

    def __init__(self, config: ModelConfig | str = "paper", backend: str = "auto") -> None:
        super().__init__()
        if isinstance(config, str):
            config = ModelConfig.preset(config)
        self.config = config
        fine = (config.fine.layers, config.output.upsample)
        self.backbone = build_backbone(config.backbone, *fine)
        separate = config.backbone.branches == "separate"
        self.target_backbone = build_backbone(config.backbone, *fine) if separate else None
        self.head = MatchingHead(config, self.backbone.channels, backend, self.backbone.fine_channels)
        self.foreground = Foreground(self.backbone.channels) if config.foreground else None
        self.facing = Facing(self.head.width, config.facing) if config.facing else None

    def features(self, images: Tensor, branch: str = "source") -> Float[Tensor, "b c h w"]:
        """Features of images ``b 3 h w`` (RGB, 0 … 1), on the stride-16 grid, those of early layers packed behind.

        Those of turned targets stand behind those of the target itself.

        Args:
            images: any height and width.
            branch: ``"source"`` or ``"target"``; only separate branches, or rotations, tell them apart.
        """
        check_images(images)
        if branch not in ("source", "target"):
            raise InputError(f"branch must be source or target, got {branch!r}")
        if branch == "source":
            return self.backbone(images)
        backbone = self.target_backbone or self.backbone
        views = (turned_images(images, degrees) if degrees else images for degrees in self.head.rotations)
        return torch.cat([backbone(view) for view in views], dim=1)

    @property
    def sides_alike(self) -> bool:
        """Whether features of an image are the same as source and as target."""
        return self.target_backbone is None and len(self.head.rotations) == 1

    def forward(self, source: Tensor, target: Tensor) -> Float[Tensor, "b 1 hs ws ht wt"]:
        """Match two batches of images ``b 3 h w``; the two may differ in size."""
        check_images(source)
        check_images(target)
        if source.shape[0] != target.shape[0]:
            raise InputError(
                f"source and target must be batches of one length, got {source.shape[0]} and {target.shape[0]}"
            )
        if self.sides_alike and source.shape == target.shape and not self.training:
            both = self.features(torch.cat([source, target]))
            return self.head(both[: len(source)], both[len(source) :])
        return self.head(self.features(source), self.features(target, branch="target"))

    def transfer(
        self, correlation: Float[Tensor, "b 1 hs ws ht wt"], keypoints: Float[Tensor, "b n 2"]
    ) -> Float[Tensor, "b n 2"]:
        """Move normalised source keypoints to the target with the configured transfer."""
        return transfer_keypoints(correlation, keypoints, self.config.transfer)


def check_images(images: Tensor) -> None:
    """Refuse what is no batch of images.

    Raises:
        InputError: other axes, or whole numbers.
    """
    if images.dim() != 4 or images.shape[1] != 3 or 0 in images.shape[2:]:
        raise InputError(f"images must have the axes b 3 h w, RGB from 0 to 1, got {list(images.shape)}")
    if not images.is_floating_point():
        raise InputError(f"images must be floating-point, RGB from 0 to 1, got {images.dtype}; divide by 255")
