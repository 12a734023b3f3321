"""The baseline: the network as the authors wrote it, with the weights of a model.

A backbone for each image, run step by step with batch norm on its own; every scale pair's correlation computed,
interpolated and copied by itself; votes by the convolution of the paper's appendix B, gradients from autograd.
The methods are those of :class:`chmnet.nn.chmnet.CHMNet`, so that the same stopwatch measures both.
"""

import copy
from itertools import product

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from chmnet.benchmark.plain_backbone import PlainBackbone
from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.nn.chmnet import CHMNet, MatchingHead, Pyramid
from chmnet.nn.fine import FineBranch
from chmnet.nn.hough import HoughMatching
from chmnet.nn.voting import NeighbourhoodConsensus
from chmnet.ops.correlation import exchange, keep_top_matches
from chmnet.ops.transfer import transfer_keypoints

DESCRIPTION = "eager, unfolded, pseudo-siamese backbone with appendix-B votes and straightforward correlation"


def conv_4d(x: Tensor, weight: Tensor) -> Tensor:
    """``[b, i, h, w, y, x]`` and ``[o, i, k, k, k, k]`` to ``[b, o, h, w, y, x]``.

    The kernel is cut into k 3D kernels; each is one ``conv3d`` over the tensor with batch and first dimension
    folded together, and the k results are shifted and added.
    """
    batch, taps = x.shape[0], weight.shape[2]
    folded = rearrange(x, "b i h ... -> (b h) i ...").contiguous()
    output = x.new_zeros(batch, weight.shape[0], *x.shape[2:])
    for tap in range(taps):
        part = F.conv3d(folded, weight[:, :, tap], padding=taps // 2)
        here, there = _overlap(x.shape[2], tap - taps // 2)
        output[:, :, here] += rearrange(part, "(b h) o ... -> b o h ...", b=batch)[:, :, there]
    return output


def conv_6d(x: Tensor, weight: Tensor) -> Tensor:
    """``[b, i, s, t, …4D]`` and ``[o, i, ks, kt, …4D]`` to ``[b, o, s, t, …4D]``.

    The 4D form over every scale pair, with all slices of the kernel's scale window as output channels, which are
    then added up at the scale pairs they belong to.
    """
    batch, _, sources, targets = x.shape[:4]
    outputs, _, source_taps, target_taps = weight.shape[:4]
    folded, kernels = (
        rearrange(x, "b i s t ... -> (b s t) i ..."),
        rearrange(weight, "o i p q ... -> (o p q) i ..."),
    )
    lengths = {"b": batch, "s": sources, "o": outputs, "p": source_taps}
    slices = rearrange(conv_4d(folded, kernels), "(b s t) (o p q) ... -> b o s t p q ...", **lengths)
    output = x.new_zeros(batch, outputs, *x.shape[2:])
    for p, q in product(range(source_taps), range(target_taps)):
        source_here, source_there = _overlap(sources, p - source_taps // 2)
        target_here, target_there = _overlap(targets, q - target_taps // 2)
        output[:, :, source_here, target_here] += slices[:, :, source_there, target_there, p, q]
    return output


def _overlap(size: int, shift: int) -> tuple[slice, slice]:
    """The places of an axis that have a neighbour ``shift`` further, and those neighbours."""
    first, last = max(-shift, 0), min(size - shift, size)
    return slice(first, last), slice(first + shift, last + shift)


class AppendixBVote(nn.Module):
    """A Hough layer whose dense kernel is built anew for each call and convolved as in appendix B."""

    index: Tensor
    count: Tensor

    def __init__(self, layer: HoughMatching) -> None:
        super().__init__()
        self.convolve = conv_4d if layer.scale is None else conv_6d
        self.register_buffer("index", layer.index.clone())
        self.register_buffer("count", layer.count.clone())
        self.weight = _copy(layer.weight)
        self.bias = None if layer.bias is None else _copy(layer.bias)

    def forward(self, correlation: Tensor) -> Tensor:
        """Vote: same axes and size out."""
        weights = F.pad(self.weight / self.count, (0, 1))  # the last one is 0: what −1, no tap, stands for
        scores = self.convolve(correlation, weights[..., self.index])
        return scores if self.bias is None else _add_bias(scores, self.bias)


class AppendixBConsensus(nn.Module):
    """Neighbourhood consensus by appendix B."""

    def __init__(self, layer: NeighbourhoodConsensus) -> None:
        super().__init__()
        self.weights = nn.ParameterList(_copy(weight) for weight in layer.weights)
        self.biases = nn.ParameterList(_copy(bias) for bias in layer.biases)

    def forward(self, correlation: Tensor) -> Tensor:
        """Filter in both directions and add."""
        return self._filter(correlation) + exchange(self._filter(exchange(correlation)))

    def _filter(self, x: Tensor) -> Tensor:
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = F.relu(_add_bias(conv_4d(x, weight), bias))
        return x


class PlainFineBranch(nn.Module):
    """A fine branch, which the authors do not have, step by step in their way."""

    def __init__(self, branch: FineBranch) -> None:
        super().__init__()
        self.factor, self.power = branch.factor, branch.power
        self.lateral, self.refine = _copy(branch.lateral.weight), _copy(branch.refine.weight)
        self.share, self.vote = _copy(branch.share), plain_vote(branch.vote)
        self.mix = copy.deepcopy(branch.mix)

    def level(self, coarse: Tensor, packed: Tensor) -> Tensor:
        """Features of the finer grid from the coarse level and packed early layers, both ``b c h w``."""
        size = [self.factor * side for side in packed.shape[-2:]]
        enlarged = F.interpolate(coarse, size, mode="bilinear", align_corners=True)
        enlarged = F.conv2d(enlarged, self.refine, padding=1, groups=len(self.refine))
        early = F.conv2d(F.pixel_shuffle(packed, self.factor), self.lateral, padding=1)
        joined = torch.cat([F.normalize(enlarged, dim=1), self.share * F.normalize(early, dim=1)], 1)
        return joined if self.mix is None else self.mix(joined)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Votes of two fine levels: ``b 1 HS WS HT WT``."""
        scores: Tensor = self.vote(_cosines(source, target).clamp(min=0).pow(self.power))
        return scores


class BaselineHead(nn.Module):
    """Everything after the backbone, with a copy of a head's weights.

    Args:
        head: the head whose configuration and weights are taken.

    Example:
        >>> from chmnet.config import ModelConfig
        >>> head = MatchingHead(ModelConfig.preset("reference"), in_channels=8)
        >>> source, target = torch.rand(1, 8, 3, 4), torch.rand(1, 8, 4, 3)
        >>> torch.allclose(BaselineHead(head)(source, target), head(source, target), rtol=1e-4)
        True
    """

    def __init__(self, head: MatchingHead) -> None:
        super().__init__()
        if len(head.rotations) > 1:
            raise InputError("the authors' way has no scale_borders but zero, and no turned targets")
        self.config, self.scales, self.over_scales = head.config, head.scales, head.over_scales
        self.projections = nn.ParameterList(
            _copy(parameter) for name, parameter in head.named_parameters() if name.startswith("projections.")
        )
        self.first, self.last = plain_vote(head.first), plain_vote(head.last)
        self.in_channels = head.in_channels
        self.fine = None if head.fine is None else PlainFineBranch(head.fine)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Match features ``b c h w``: ``b 1 HS WS HT WT``."""
        return self.match(*map(self.pyramid, (source, target)))

    def pyramid(self, features: Tensor) -> Pyramid:
        """Resize, then project, one scale after the other."""
        features, packed = features.tensor_split([self.in_channels], dim=1)
        levels = []
        for number, scale in enumerate(self.scales):
            size = [max(1, round(side * scale)) for side in features.shape[-2:]]
            level = F.interpolate(features, size, mode="bilinear", align_corners=True)
            levels.append(F.conv2d(level, self.projections[number], padding=1) if self.projections else level)
        if self.fine is not None:
            nearest = min(range(len(levels)), key=lambda number: abs(self.scales[number] - 1))
            levels.append(self.fine.level(levels[nearest], packed))
        return Pyramid(levels, (features.shape[2], features.shape[3]))

    def correlate(self, source: Pyramid, target: Pyramid) -> Tensor:
        """Every scale pair by itself: normalise both, multiply, interpolate, clamp; then all stacked."""
        number = len(self.scales)
        levels = product(source.levels[:number], target.levels[:number])
        pairs = [self._correlate_pair(s, t, source.size, target.size) for s, t in levels]
        return rearrange(torch.stack(pairs, dim=2), "b c (ss st) ... -> b c ss st ...", ss=number)

    def _correlate_pair(self, source: Tensor, target: Tensor, source_size: Size, target_size: Size) -> Tensor:
        scores = _cosines(source, target)
        if self.config.correlation.rectify == "before-resize":
            scores = scores.clamp(min=0)
        if self.config.correlation.keep_top:
            scores = keep_top_matches(scores, self.config.correlation.keep_top)
        scores = _resize(scores, source_size, target_size).clamp(min=0)
        power = self.config.correlation.power
        return scores if power == 1 else scores.pow(power)

    def vote_over_scales(self, correlation: Tensor) -> Tensor:
        """Vote, sigmoid, then the best scale pair, in the authors' order."""
        consensus = self.config.matching.kind == "consensus"
        scores = correlation if self.over_scales else correlation[:, :, 0, 0]
        scores = self.first(_mutual_filter(scores) if consensus else scores)
        scores = scores.sigmoid() if self.config.matching.kind == "hough" else scores
        scores = _mutual_filter(scores) if consensus else scores
        return scores.amax((2, 3)) if self.over_scales else scores

    def match(self, source: Pyramid, target: Pyramid) -> Tensor:
        """Match two images whose pyramids are known."""
        scores = self.vote_over_scales(self.correlate(source, target))
        factor = self.config.output.upsample
        source_size, target_size = (
            (factor * height, factor * width) for height, width in (source.size, target.size)
        )
        scores = self.last(_resize(scores, source_size, target_size))
        if self.fine is not None:
            scores = scores + self.fine(source.levels[-1], target.levels[-1])
        if self.config.output.activation == "softplus":
            scores = F.softplus(scores)
        return _mutual_filter(scores.clamp(min=0)) if self.config.output.mutual_filter else scores


class Baseline(nn.Module):
    """The whole network in the authors' way, with a copy of a model's weights, for inference.

    Args:
        model: the model whose configuration and weights are taken. One backbone for both images becomes two
            with the same weights.

    Example:
        >>> from chmnet.config import BackboneConfig, ModelConfig
        >>> model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18"))).eval()
        >>> Baseline(model)(torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 48)).shape
        torch.Size([1, 1, 4, 4, 4, 6])
    """

    def __init__(self, model: CHMNet) -> None:
        super().__init__()
        self.config = model.config
        self.branches = {
            "source": PlainBackbone(model.backbone),
            "target": PlainBackbone(model.backbone if model.target_backbone is None else model.target_backbone),
        }
        self.head = BaselineHead(model.head)

    def features(self, images: Tensor, branch: str = "source") -> Tensor:
        """Features of images ``b 3 h w``; ``branch`` is ``"source"`` or ``"target"``."""
        if branch not in self.branches:
            raise InputError(f"branch must be source or target, got {branch!r}")
        return self.branches[branch](images)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Match two batches of images: ``b 1 hs ws ht wt``."""
        return self.head(self.features(source, "source"), self.features(target, "target"))

    def transfer(self, correlation: Tensor, keypoints: Tensor) -> Tensor:
        """Move normalised source keypoints ``b n 2`` to the target."""
        return transfer_keypoints(correlation, keypoints, self.config.transfer)


def plain_vote(layer: nn.Module) -> nn.Module:
    """A vote with the same weights, convolved as in appendix B."""
    if isinstance(layer, HoughMatching):
        if layer.scale_borders != "zero" or layer.rotation is not None:
            raise InputError("the authors' way has no scale_borders but zero, and no turned targets")
        return AppendixBVote(layer)
    if isinstance(layer, NeighbourhoodConsensus):
        return AppendixBConsensus(layer)
    return layer  # nothing learned, nothing convolved


def _copy(parameter: Tensor) -> nn.Parameter:
    return nn.Parameter(parameter.detach().clone(memory_format=torch.contiguous_format))


def _add_bias(scores: Tensor, bias: Tensor) -> Tensor:
    return scores + bias.view(-1, *[1] * (scores.dim() - 2))


def _cosines(source: Tensor, target: Tensor) -> Tensor:
    source, target = F.normalize(source, dim=1), F.normalize(target, dim=1)
    scores = torch.bmm(source.flatten(2).transpose(1, 2), target.flatten(2))
    return scores.unflatten(2, target.shape[2:]).unflatten(1, source.shape[2:]).unsqueeze(1)


def _resize(scores: Tensor, source_size: Size, target_size: Size) -> Tensor:
    """4D interpolation as two bilinear ones, each over a contiguous copy."""
    channels, target_height = scores.shape[1], scores.shape[4]
    planes = rearrange(scores, "b c hs ws ht wt -> (b c) (ht wt) hs ws").contiguous()
    planes = F.interpolate(planes, source_size, mode="bilinear", align_corners=True)
    planes = rearrange(planes, "b (ht wt) hs ws -> b (hs ws) ht wt", ht=target_height).contiguous()
    planes = F.interpolate(planes, target_size, mode="bilinear", align_corners=True)
    return rearrange(planes, "(b c) (hs ws) ht wt -> b c hs ws ht wt", c=channels, hs=source_size[0])


def _mutual_filter(scores: Tensor) -> Tensor:
    """Soft mutual nearest neighbours over the matrix of all matches."""
    matrix = scores.flatten(4).flatten(2, 3)
    best_source, best_target = (matrix.max(dim=dim, keepdim=True).values for dim in (2, 3))
    best_source, best_target = (torch.where(best == 0, 1e-30, best) for best in (best_source, best_target))
    return (matrix * ((matrix / best_source) * (matrix / best_target))).view(scores.shape)
