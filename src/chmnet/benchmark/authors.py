"""The baseline: the network as the authors wrote it, with the weights of a model.

A backbone for each image, run step by step with batch norm on its own; every scale pair's correlation computed,
interpolated and copied by itself; votes by the convolution of the paper's appendix B, gradients from autograd.
The methods are those of :class:`chmnet.nn.chmnet.CHMNet`, so that the same stopwatch measures both.
"""

import math
from collections.abc import Iterator
from itertools import product

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.nn.backbones import STRIDE, Backbone, EfficientNetLite0, ResNet
from chmnet.nn.chmnet import CHMNet, MatchingHead, Pyramid
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
        scores = self.convolve(correlation, (self.weight / self.count)[..., self.index])
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
        self.config, self.scales, self.over_scales = head.config, head.scales, head.over_scales
        self.projections = nn.ParameterList(
            _copy(parameter) for name, parameter in head.named_parameters() if name.startswith("projections.")
        )
        self.first, self.last = plain_vote(head.first), plain_vote(head.last)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Match features ``b c h w``: ``b 1 HS WS HT WT``."""
        return self.match(*map(self.pyramid, (source, target)))

    def pyramid(self, features: Tensor) -> Pyramid:
        """Resize, then project, one scale after the other."""
        levels = []
        for number, scale in enumerate(self.scales):
            size = [max(1, round(side * scale)) for side in features.shape[-2:]]
            level = F.interpolate(features, size, mode="bilinear", align_corners=True)
            levels.append(F.conv2d(level, self.projections[number], padding=1) if self.projections else level)
        return Pyramid(levels, (features.shape[2], features.shape[3]))

    def correlate(self, source: Pyramid, target: Pyramid) -> Tensor:
        """Every scale pair by itself: normalise both, multiply, interpolate, clamp; then all stacked."""
        pairs = [
            self._correlate_pair(s, t, source.size, target.size) for s in source.levels for t in target.levels
        ]
        return rearrange(torch.stack(pairs, dim=2), "b c (ss st) ... -> b c ss st ...", ss=len(source.levels))

    def _correlate_pair(self, source: Tensor, target: Tensor, source_size: Size, target_size: Size) -> Tensor:
        source, target = F.normalize(source, dim=1), F.normalize(target, dim=1)
        scores = torch.bmm(source.flatten(2).transpose(1, 2), target.flatten(2))
        scores = scores.unflatten(2, target.shape[2:]).unflatten(1, source.shape[2:]).unsqueeze(1)
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
        return AppendixBVote(layer)
    if isinstance(layer, NeighbourhoodConsensus):
        return AppendixBConsensus(layer)
    return layer  # nothing learned, nothing convolved


def _copy(parameter: Tensor) -> nn.Parameter:
    return nn.Parameter(parameter.detach().clone(memory_format=torch.contiguous_format))


def _add_bias(scores: Tensor, bias: Tensor) -> Tensor:
    return scores + bias.view(-1, *[1] * (scores.dim() - 2))


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


class PlainBackbone:
    """The same features as a backbone in inference, computed step by step from a copy of its weights.

    Args:
        backbone: the network whose weights are copied.
        device: of the copy; ``None``: the backbone's; ``"meta"`` to count without computing.

    Example:
        >>> backbone, images = ResNet("resnet18").eval(), torch.rand(1, 3, 40, 56)
        >>> torch.allclose(PlainBackbone(backbone)(images), backbone(images), rtol=1e-4, atol=1e-5)
        True
    """

    def __init__(self, backbone: Backbone, device: str | None = None) -> None:
        self.layers, self.mean, self.deviation = backbone.layers, backbone.mean, backbone.deviation
        self.weights = {
            name: tensor.to(device or tensor.device, copy=True, memory_format=torch.contiguous_format)
            for name, tensor in backbone.state_dict().items()
        }
        self.lite = isinstance(backbone, EfficientNetLite0)
        self.epsilon = 1e-3 if self.lite else 1e-5
        if isinstance(backbone, ResNet):
            self.strided_convolution = backbone.stride_on if backbone.bottleneck else "conv1"

    def __call__(self, images: Tensor) -> Tensor:
        """Features of images ``b 3 h w`` (RGB, 0 … 1) on the stride-16 grid."""
        grid = [math.ceil(side / STRIDE) for side in images.shape[-2:]]
        mean, deviation = (images.new_tensor(values).view(3, 1, 1) for values in (self.mean, self.deviation))
        found: dict[str, Tensor] = {}
        x = (images - mean) / deviation
        for name, output in self._lite(x) if self.lite else self._residual(x):
            if name in self.layers:
                found[name] = output
            if len(found) == len(set(self.layers)):
                break
        for name, output in found.items():
            if list(output.shape[-2:]) != grid:
                found[name] = F.interpolate(output, grid, mode="bilinear", align_corners=True)
        features = [found[layer] for layer in self.layers]
        return torch.cat([F.normalize(one, dim=1) for one in features], 1) if len(features) > 1 else features[0]

    def _convolve(self, x: Tensor, convolution: str, norm: str, stride: int = 1) -> Tensor:
        """Convolution, then batch norm with the statistics of training."""
        weight = self.weights[f"{convolution}.weight"]
        kernel, groups = weight.shape[-1], x.shape[1] // weight.shape[1]
        if self.lite:
            x = F.pad(x, _same_padding(x, kernel, stride))
        x = F.conv2d(x, weight, None, stride, 0 if self.lite else kernel // 2, groups=groups)
        parts = ("running_mean", "running_var", "weight", "bias")
        mean, variance, scale, shift = (self.weights[f"{norm}.{part}"] for part in parts)
        return F.batch_norm(x, mean, variance, scale, shift, training=False, eps=self.epsilon)

    def _residual(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        x = F.max_pool2d(F.relu(self._convolve(x, "conv1", "bn1", 2)), 3, 2, 1)
        for stage in range(1, 5):
            block = 0
            while f"layer{stage}.{block}.conv1.weight" in self.weights:
                x = self._residual_block(x, f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1)
                block += 1
            yield f"layer{stage}", x

    def _residual_block(self, x: Tensor, name: str, stride: int) -> Tensor:
        change = x
        for number in (1, 2, 3):
            if f"{name}.conv{number}.weight" in self.weights:
                step = stride if self.strided_convolution == f"conv{number}" else 1
                change = F.relu(change) if number > 1 else change
                change = self._convolve(change, f"{name}.conv{number}", f"{name}.bn{number}", step)
        if f"{name}.downsample.0.weight" in self.weights:
            x = self._convolve(x, f"{name}.downsample.0", f"{name}.downsample.1", stride)
        return F.relu(change + x)

    def _lite(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        x = F.relu6(self._convolve(x, "conv_stem", "bn0", 2))
        strides = [
            stride if block == 0 else 1
            for repeats, _, stride, *_ in EfficientNetLite0.plan
            for block in range(repeats)
        ]
        for number, stride in enumerate(strides):
            name, expanded = f"blocks.{number}", x
            if f"{name}.expand_conv.weight" in self.weights:
                expanded = F.relu6(self._convolve(x, f"{name}.expand_conv", f"{name}.bn0"))
            yield f"{name}.expand", expanded
            filtered = F.relu6(self._convolve(expanded, f"{name}.depthwise_conv", f"{name}.bn1", stride))
            output = self._convolve(filtered, f"{name}.project_conv", f"{name}.bn2")
            x = output + x if stride == 1 and output.shape == x.shape else output
            yield name, x


def _same_padding(x: Tensor, kernel: int, stride: int) -> list[int]:
    """TensorFlow's "same": what is missing for ``ceil(size / stride)`` outputs, the odd pixel at the end."""
    padding: list[int] = []
    for size in (x.shape[3], x.shape[2]):
        total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
        padding += [total // 2, total - total // 2]
    return padding
