"""Backbones step by step, as the authors run them: batch norm on its own, weights in PyTorch's usual format."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from chmnet.nn.backbones import STRIDE, Backbone, EfficientNetLite0, ResNet


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
        self.fine_layers, self.fine_factor = backbone.fine_layers, backbone.fine_factor
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
            if name in (*self.layers, *self.fine_layers):
                found[name] = output
            if len(found) == len({*self.layers, *self.fine_layers}):
                break
        features = _join([found[layer] for layer in self.layers], grid)
        if not self.fine_layers:
            return features
        fine = _join([found[layer] for layer in self.fine_layers], [self.fine_factor * side for side in grid])
        return torch.cat([features, F.pixel_unshuffle(fine, self.fine_factor)], 1)

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


def _join(features: list[Tensor], grid: list[int]) -> Tensor:
    """Feature maps brought to one grid; several are scaled to length one each."""
    resized = [
        feature
        if list(feature.shape[-2:]) == grid
        else F.interpolate(feature, grid, mode="bilinear", align_corners=True)
        for feature in features
    ]
    return resized[0] if len(resized) == 1 else torch.cat([F.normalize(one, dim=1) for one in resized], 1)


def _same_padding(x: Tensor, kernel: int, stride: int) -> list[int]:
    """TensorFlow's "same": what is missing for ``ceil(size / stride)`` outputs, the odd pixel at the end."""
    padding: list[int] = []
    for size in (x.shape[3], x.shape[2]):
        total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
        padding += [total // 2, total - total // 2]
    return padding
