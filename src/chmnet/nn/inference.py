"""The network for inference only: re-ordered arithmetic, the same numbers up to rounding, no gradients.

PyTorch's private convolutions, which compute activation and sum as well, are used here and nowhere else.
"""

import copy
import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from chmnet.config import HoughConfig
from chmnet.geometry import Size
from chmnet.nn.backbones import Backbone, ResidualBlock
from chmnet.nn.chmnet import CHMNet, MatchingHead, Pyramid
from chmnet.nn.fine import FineBranch
from chmnet.nn.hough import HoughMatching, vote
from chmnet.ops.conv_nd import choose_backend, conv_rows
from chmnet.ops.correlation import (
    CHUNK_BYTES,
    filter_in_place,
    project_enlarged,
    ready_to_project,
    resize_correlation,
)
from chmnet.ops.pivot import POSITIONS, conv_pivot, split_pivot
from chmnet.ops.sparse import KeptMatches, release_memory

PIECE_COPIES = 6
"""How often a piece of the finer grid is in memory: while it is made, before the vote, inside it, and after."""

BLOCK_COPIES = 4
"""How often the rows of a correlation of kept matches are in memory while they are voted on."""

HALF_FROM = 2**27
"""From so many scores on, those of kept matches are stored in half precision: 207 million at 960 pixels, where
single precision takes 830 MB. They are computed, and read, in single precision."""

FINE_COPIES = 4
"""How much more often with a fine branch: its correlation, the power of it, and its votes."""


def for_inference(model: CHMNet) -> "InferenceNetwork":
    """A network for inference only, which gives the scores of ``model`` in evaluation mode, faster.

    What does not change shares its memory with ``model``, which stays as it is: after training it further, make
    this anew.

    Example:
        >>> from chmnet.config import BackboneConfig, ModelConfig
        >>> model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18"))).eval()
        >>> ready = for_inference(model)
        >>> any(isinstance(part, nn.BatchNorm2d) for part in ready.modules())
        False
        >>> pair = torch.rand(2, 1, 3, 32, 32).unbind()
        >>> torch.allclose(ready(*pair), model(*pair), rtol=1e-4, atol=1e-6)
        True
    """
    return InferenceNetwork(model)


class InferenceNetwork(CHMNet):
    """A :class:`CHMNet` whose parts are those below; see :func:`for_inference`."""

    head: "InferenceHead"

    def __init__(self, model: CHMNet) -> None:
        nn.Module.__init__(self)
        self.config = model.config
        self.backbone = _fast_backbone(model.backbone)
        self.target_backbone = None if model.target_backbone is None else _fast_backbone(model.target_backbone)
        self.head = InferenceHead(model.head)
        self.foreground = copy.deepcopy(model.foreground)
        self.facing = copy.deepcopy(model.facing)
        for part in self.modules():  # the same numbers, but parameters of its own: what is done to one stays there
            for name, parameter in part._parameters.items():
                if parameter is not None:
                    part._parameters[name] = nn.Parameter(parameter.detach(), requires_grad=False)
        self.eval()


class InferenceHead(MatchingHead):
    """A :class:`MatchingHead` that works on the finer grid in pieces, and overwrites what it no longer needs.

    Projections of enlarged features take their product before the enlargement, kernels are expanded once.
    """

    def __init__(self, head: MatchingHead) -> None:
        nn.Module.__init__(self)
        self.config, self.in_channels, self.width = head.config, head.in_channels, head.width
        self.scales, self.over_scales, self.rotations = head.scales, head.over_scales, head.rotations
        self.projections = nn.ModuleList()
        for projection, scale in zip(head.projections, head.scales, strict=False):  # or no projections
            assert isinstance(projection, nn.Conv2d)
            moved = _in_channels_last(projection)
            if scale > 1:
                moved.weight = nn.Parameter(ready_to_project(moved.weight), requires_grad=False)
            self.projections.append(moved)
        self.first, self.last = _fast_vote(head.first), _fast_vote(head.last)
        self.fine = None if head.fine is None else _fast_branch(head.fine)

    def forward(
        self, source: Float[Tensor, "b c hs ws"], target: Float[Tensor, "b d ht wt"]
    ) -> Float[Tensor, "b 1 HS WS HT WT"]:
        """As the exact head; both sides go through the projections together, where they have one size."""
        if source.shape != target.shape:
            return super().forward(source, target)
        levels, size = self.pyramid(torch.cat([source, target]))  # weights are read once
        pairs = [level.tensor_split([len(source)]) for level in levels]
        return self.match(Pyramid([pair[0] for pair in pairs], size), Pyramid([pair[1] for pair in pairs], size))[
            0
        ]

    def level(self, features: Float[Tensor, "b c h w"], number: int, size: Size) -> Float[Tensor, "b d H W"]:
        """The features at one scale."""
        if self.projections and self.scales[number] > 1:
            return project_enlarged(features, self.projections[number].get_parameter("weight"), size)
        return super().level(features, number, size)

    def match(
        self,
        source: Pyramid,
        target: Pyramid,
        scales: bool = False,
        filtered: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> tuple[Float[Tensor, "b 1 HS WS HT WT"], Int64[Tensor, "b hs ws ht wt"] | None]:
        """As the exact head; the finer grid is worked on in pieces of about ``chunk_bytes``."""
        with torch.autocast(source.levels[0].device.type, enabled=False):
            winners: list[Tensor] | None = [] if scales and self.over_scales else None
            fine_source, fine_target = self.fine_size(source.size), self.fine_size(target.size)
            half = self._in_half_precision(source, fine_source, fine_target)
            if half:  # memory counts
                release_memory()
            if len(self.rotations) > 1:
                coarse = None
                scores = self.match_turned(source, target, winners)
            else:
                # No name for the votes here: they are gone as soon as the finer grid is made.
                coarse = resize_correlation(
                    self.first_votes(source, target, winners, chunk_bytes), fine_source, target.size
                )
                if half:
                    release_memory()
                levels = self.fine_levels(source, target)
                scores = self._score_in_pieces(coarse, fine_target, chunk_bytes, levels, half)
            if filtered and self.config.output.mutual_filter:
                scores = filter_in_place(scores, chunk_bytes)
            if half:
                del coarse
                release_memory()
        return scores, winners[0] if winners else None

    def first_votes(
        self,
        source: Pyramid,
        target: Pyramid,
        winners: list[Tensor] | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Float[Tensor, "b c hs ws ht wt"]:
        """The first vote and the best scales, on the grids of the features.

        Where only the best matches are kept, the correlation of all scale pairs is made a few rows of the source
        at a time, with what the vote reaches around: the whole of it is never in memory.
        """
        correlation, matching = self.config.correlation, self.config.matching
        if not correlation.keep_top or not isinstance(matching, HoughConfig):
            return self.vote_over_scales(self.correlate(source, target), winners)
        number, (height, width) = len(self.scales), source.size
        rectify = correlation.rectify == "before-resize"
        kept = [
            KeptMatches(one, other, correlation.keep_top, rectify)
            for one in source.levels[:number]
            for other in target.levels[:number]
        ]
        reach = matching.spatial_window // 2
        cells = len(source.levels[0]) * width * math.prod(target.size)
        row_bytes = BLOCK_COPIES * number**2 * cells * source.levels[0].element_size()
        rows = max(2 * reach, chunk_bytes // row_bytes - 2 * reach)
        votes, best = [], []
        for first in range(0, height, rows):
            low, high = max(first - reach, 0), min(first + rows + reach, height)
            inside = slice(first - low, min(first + rows, height) - low)
            block = torch.stack([pair.rows(source.size, target.size, low, high) for pair in kept], dim=2).relu_()
            block = block if correlation.power == 1 else block.pow_(correlation.power)
            own: list[Tensor] | None = None if winners is None else []
            block = block.unflatten(2, (number, number))
            votes.append(self.vote_over_scales(block, own, inside))
            best.extend(own or [])
        if winners is not None:
            winners.append(torch.cat(best, 1))
        return torch.cat(votes, 2)

    def _score_in_pieces(
        self,
        coarse: Float[Tensor, "b c HS WS ht wt"],
        target_size: Size,
        chunk_bytes: int,
        levels: tuple[Tensor, Tensor] | None,
        half: bool = False,
    ) -> Float[Tensor, "b 1 HS WS HT WT"]:
        """Refine the target grid and vote, a few rows of the source at a time, with what the vote reaches around.

        The numbers are those of one piece: a vote sums in the same order wherever the borders of a piece lie.
        """
        batch, _, height, width = coarse.shape[:4]
        reach = self.reach(height)
        row_bytes = self.piece_copies() * batch * width * math.prod(target_size) * coarse.element_size()
        rows = max(1, chunk_bytes // max(1, row_bytes) - 2 * reach)
        if rows >= height or reach >= height:
            scores = self.score(resize_correlation(coarse, (height, width), target_size), levels)
            return scores.half() if half else scores
        output = coarse.new_empty(
            batch, 1, height, width, *target_size, dtype=torch.float16 if half else coarse.dtype
        )
        made, piece = 0, coarse.new_empty(batch, coarse.shape[1], 0, width, *target_size)
        for first in range(0, height, rows):
            last = min(first + rows, height)
            low, high = max(first - reach, 0), min(last + reach, height)
            piece = piece[:, :, piece.shape[2] - (made - low) :]  # rows that the piece before has refined already
            if made < high:
                more = resize_correlation(coarse[:, :, made:high], (high - made, width), target_size)
                piece, made = torch.cat([piece, more], dim=2), high
            fine_rows = None if levels is None else (levels[0][:, :, low:high], levels[1])
            inside = slice(first - low, last - low) if reach else None
            output[:, :, first:last] = self.score(piece, fine_rows, inside)
        return output

    def _in_half_precision(self, source: Pyramid, source_size: Size, target_size: Size) -> bool:
        """Whether scores are stored in half precision; see :data:`HALF_FROM`."""
        numbers = len(source.levels[0]) * math.prod(source_size) * math.prod(target_size)
        single = source.levels[0].dtype == torch.float32
        return bool(self.config.correlation.keep_top) and single and numbers >= HALF_FROM

    def piece_copies(self) -> int:
        """How often the positions of a piece of the finer grid are in memory while it is voted on."""
        matching = self.config.matching
        channels = matching.channels if isinstance(matching, HoughConfig) else 1
        return PIECE_COPIES * channels + (0 if self.fine is None else FINE_COPIES)


class ExpandedVote(nn.Module):
    """A :class:`HoughMatching` layer with its kernel expanded once and for all: for inference."""

    def __init__(self, layer: "HoughMatching | ExpandedVote") -> None:
        super().__init__()
        self.backend: str = layer.backend
        self.taps: str = layer.taps
        self.scale_borders: str = layer.scale_borders
        self.expanded = nn.Parameter(layer.kernel().detach(), requires_grad=False)
        self.bias: nn.Parameter | None = layer.bias

    def kernel(self) -> Tensor:
        """The dense kernel ``[c_out, c_in, *taps]``."""
        return self.expanded

    def forward(self, correlation: Tensor, rows: slice | None = None) -> Tensor:
        """Vote, as the layer does; for some rows of the source only, if they are given."""
        one_channel_4d = self.expanded.dim() == POSITIONS + 2 and self.expanded.shape[:2] == (1, 1)
        if self.taps != "dense" and one_channel_4d:  # center-pivot votes in 4D have a compiled form of their own
            parts = split_pivot(self.expanded, joint=self.taps == "center-pivot-joint")
            return conv_pivot(correlation, *parts, self.bias, rows=rows, backend=self.backend)
        # Compiled kernels leave out rows and columns of zeros.
        native = choose_backend(correlation, self.expanded, self.backend) == "native"
        taps = "dense" if native else self.taps
        if rows is not None and taps == "dense" and self.scale_borders == "zero":
            return conv_rows(correlation, self.expanded, self.bias, rows, backend=self.backend)
        votes = vote(correlation, self.expanded, self.bias, self.backend, taps, self.scale_borders)
        return votes if rows is None else votes.narrow(-4, rows.start, rows.stop - rows.start)


def _fast_vote(layer: nn.Module) -> nn.Module:
    return ExpandedVote(layer) if isinstance(layer, HoughMatching | ExpandedVote) else _copied(layer)


def _fast_branch(branch: FineBranch) -> FineBranch:
    """A fine branch with its kernel expanded and its weights in the memory format of its input."""
    fast = _copied(branch)
    assert isinstance(fast, FineBranch)
    fast.lateral, fast.refine = _in_channels_last(branch.lateral), _in_channels_last(branch.refine)
    fast.vote = _fast_vote(branch.vote)
    return fast


def _copied(module: nn.Module) -> nn.Module:
    """New modules around the same tensors."""
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, shared)


def _fast_backbone(backbone: Backbone) -> Backbone:
    """Batch norms folded into the convolutions before them, weights in the memory format that PyTorch computes in.

    The convolutions of ResNets compute ReLU and the addition of a block at once, where PyTorch can.
    """
    fast = _copied(backbone).eval()
    assert isinstance(fast, Backbone)
    _fold_batch_norms(fast)
    for part in list(fast.modules()):
        for name, child in part.named_children():
            if isinstance(child, nn.Conv2d):
                setattr(part, name, _in_channels_last(child))
    for part in list(fast.modules()):
        for name, child in part.named_children():
            if isinstance(child, ResidualBlock) and can_fuse(child.conv1.weight):
                setattr(part, name, FusedBlock(child))
    return fast


@lru_cache(maxsize=1)
def _fused_convolution_works() -> bool:
    """Whether this PyTorch has convolutions that compute activation and sum as well."""
    try:
        plain = torch.nn.utils.skip_init(nn.Conv2d, 1, 1, 1, device="cpu", dtype=torch.float32)
        one = torch.ones(1, 1, 1, 1, device="cpu", dtype=torch.float32)
        with torch.no_grad():
            FusedConvolution(plain).fused(one, one)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


def can_fuse(weight: Tensor) -> bool:
    """Whether convolutions with such weights can compute activation and sum as well."""
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and _fused_convolution_works()


class FusedConvolution(nn.Module):
    """A convolution that computes ReLU, and the sum with another tensor before it, in the same pass.

    The functions are those that ``torch.compile`` uses on CPUs. They also take weights packed in advance, but only
    for one size of image: for another they may be ten times slower.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        assert not isinstance(convolution.padding, str), "backbones pad by numbers"
        self.padding, self.stride = list(convolution.padding), list(convolution.stride)
        self.dilation, self.groups = list(convolution.dilation), convolution.groups
        self.weight = convolution.weight
        self.bias = convolution.bias

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """ReLU of the convolution, plus ``other`` if there is one."""
        if x.dtype == self.weight.dtype and can_fuse(self.weight):
            return self.fused(x, other)
        # Moved to another device or precision since, or under autocast.
        y = F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return F.relu(y if other is None else y + other)

    def fused(self, x: Tensor, other: Tensor | None) -> Tensor:
        """The same in one pass."""
        geometry = (self.padding, self.stride, self.dilation, self.groups)
        if other is None:
            return torch.ops.mkldnn._convolution_pointwise(x, self.weight, self.bias, *geometry, "relu", [], "")
        return torch.ops.mkldnn._convolution_pointwise.binary(
            x, other, self.weight, self.bias, *geometry, "add", 1.0, "relu", [], ""
        )


class FusedBlock(nn.Module):
    """A :class:`ResidualBlock` with its batch norms folded, made of fused convolutions."""

    def __init__(self, block: ResidualBlock) -> None:
        super().__init__()
        convolutions = [block.conv1, block.conv2] + ([] if block.conv3 is None else [block.conv3])
        self.convolutions = nn.ModuleList(FusedConvolution(convolution) for convolution in convolutions)
        self.downsample = None if block.downsample is None else block.downsample[0]

    def forward(self, x: Tensor) -> Tensor:
        """Add the block's change to its input."""
        *first, last = self.convolutions
        change = x
        for convolution in first:
            change = convolution(change)
        return last(change, x if self.downsample is None else self.downsample(x))


def _fold_batch_norms(backbone: Backbone) -> None:
    for part in backbone.modules():
        for convolution, norm in backbone.normalised_by.items():
            first, second = getattr(part, convolution, None), getattr(part, norm, None)
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                setattr(part, convolution, fuse_conv_bn_eval(first, second))
                setattr(part, norm, nn.Identity())


def _in_channels_last(convolution: nn.Conv2d) -> nn.Conv2d:
    """The same convolution with its weight in the memory format of its input, without gradients."""
    moved = copy.copy(convolution)
    weight = convolution.weight.detach().contiguous(memory_format=torch.channels_last)
    bias = None if convolution.bias is None else nn.Parameter(convolution.bias.detach(), requires_grad=False)
    moved._parameters = {"weight": nn.Parameter(weight, requires_grad=False), "bias": bias}
    return moved
