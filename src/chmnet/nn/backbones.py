"""Convolutional backbones, cut after the last layer that is used. They take RGB in 0 … 1, of any size.

Every feature map is brought to the stride-16 grid: ``ceil(height / 16) × ceil(width / 16)``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from chmnet.config import BackboneConfig
from chmnet.errors import ConfigError
from chmnet.geometry import Size
from chmnet.ops.correlation import normalise

STRIDE = 16


class Backbone(nn.Module, ABC):
    """What all backbones share: input normalisation, the feature recipe, freezing.

    Args:
        layers: names of the layers to join; several are scaled to length one each and concatenated.
        fine_layers: early layers for a fine branch, joined in the same way on a finer grid and packed into more
            channels of the stride-16 grid, behind the others.
        fine_factor: how much finer that grid is.
    """

    default_layers: ClassVar[tuple[str, ...]]
    normalised_by: ClassVar[dict[str, str]]
    """Which batch norm follows which convolution of the same module, by name."""
    mean: ClassVar[tuple[float, float, float]]
    deviation: ClassVar[tuple[float, float, float]]

    def __init__(self, layers: tuple[str, ...], fine_layers: tuple[str, ...] = (), fine_factor: int = 2) -> None:
        super().__init__()
        self.layers = layers or self.default_layers
        self.fine_layers, self.fine_factor = fine_layers, fine_factor
        self.frozen = False
        widths = self.layer_channels()
        for layer in self.used_layers:
            if layer not in widths:
                raise ConfigError(f"unknown layer {layer!r}; this backbone has {', '.join(widths)}")
        self.channels = sum(widths[layer] for layer in self.layers)
        """Of the stride-16 features, without what is packed behind them."""
        self.fine_channels = sum(widths[layer] for layer in fine_layers)

    @property
    def used_layers(self) -> tuple[str, ...]:
        """Names of all layers whose output is read."""
        return (*self.layers, *self.fine_layers)

    @property
    def out_channels(self) -> int:
        """Of all that comes out: features, and what is packed behind them."""
        return self.channels + self.fine_channels * self.fine_factor**2

    @abstractmethod
    def layer_channels(self) -> dict[str, int]:
        """Name and number of channels of every layer that a recipe may use."""

    @abstractmethod
    def is_unused(self, parameter: str) -> bool:
        """Whether a parameter of the whole, published network lies behind the layers that are used."""

    @abstractmethod
    def stages(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Run the network, yielding each named layer's output as it comes."""

    def forward(self, images: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b c hf wf"]:
        """Features of a batch of images (RGB, 0 … 1) on the stride-16 grid, packed fine ones behind them."""
        grid = feature_grid(images.shape)
        if images.device.type == "cpu":  # what PyTorch's convolutions compute in
            images = images.contiguous(memory_format=torch.channels_last)
        mean, deviation = (images.new_tensor(v).view(3, 1, 1) for v in (self.mean, self.deviation))
        found: dict[str, Tensor] = {}
        for name, output in self.stages((images - mean) / deviation):
            if name in self.used_layers:
                found[name] = output
            if len(found) == len(set(self.used_layers)):
                break  # nothing after the last used layer is computed
        features = _join([found[layer] for layer in self.layers], grid)
        if not self.fine_layers:
            return features
        finer = (self.fine_factor * grid[0], self.fine_factor * grid[1])
        fine = _join([found[layer] for layer in self.fine_layers], finer)
        return torch.cat([features, F.pixel_unshuffle(fine, self.fine_factor)], dim=1)

    def freeze(self) -> None:
        """Let nothing learn: no gradients, and batch statistics that stay as they are, also in training."""
        self.frozen = True
        self.requires_grad_(False)
        self.eval()

    def freeze_before(self, layer: str) -> None:
        """Let only ``layer`` and what comes after it learn.

        Args:
            layer: the start of a parameter's name up to a dot: ``layer3`` of a ResNet, ``blocks.3`` of
                EfficientNet-Lite0.

        Raises:
            ConfigError: the backbone has no such layer.
        """
        names = [name for name, _ in self.named_parameters()]
        first = next((number for number, name in enumerate(names) if name.startswith(f"{layer}.")), None)
        if first is None:
            raise ConfigError(
                f"there is no layer {layer!r} to start from; this backbone has {', '.join(self._parts())}"
            )
        for parameter in list(self.parameters())[:first]:
            parameter.requires_grad_(False)

    def _parts(self) -> list[str]:
        """Names that :meth:`freeze_before` knows: modules of the first level, or of a list of modules."""
        parts = []
        for name, module in self.named_children():
            inside = (
                [f"{name}.{number}" for number, _ in enumerate(module)]
                if isinstance(module, nn.ModuleList)
                else []
            )
            parts += inside or [name]
        return parts

    def train(self, mode: bool = True) -> "Backbone":
        """Switch between training and inference; a frozen backbone always infers."""
        super().train(mode and not self.frozen)
        return self


def feature_grid(size: tuple[int, ...]) -> Size:
    """(height, width) of the features of images of a size, or of a shape that ends in it.

    Example:
        >>> feature_grid((240, 250))
        (15, 16)
    """
    return math.ceil(size[-2] / STRIDE), math.ceil(size[-1] / STRIDE)


def _to_grid(features: Tensor, grid: tuple[int, ...]) -> Tensor:
    if features.shape[-2:] == grid:
        return features
    return F.interpolate(features, grid, mode="bilinear", align_corners=True)


def _join(features: list[Tensor], grid: Size) -> Tensor:
    """Feature maps on one grid; several are scaled to length one each."""
    if len(features) == 1:
        return _to_grid(features[0], grid)
    return torch.cat([normalise(_to_grid(feature, grid)) for feature in features], dim=1)


class ResidualBlock(nn.Module):
    """Basic (two 3×3) or bottleneck (1×1, 3×3, 1×1) block with torchvision's parameter names."""

    def __init__(self, inside: int, width: int, stride: int, bottleneck: bool, stride_on: str) -> None:
        super().__init__()
        outside = width * 4 if bottleneck else width
        if bottleneck:
            first, second = (stride, 1) if stride_on == "conv1" else (1, stride)
            self.conv1 = nn.Conv2d(inside, width, 1, first, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, second, 1, bias=False)
            self.conv3: nn.Conv2d | None = nn.Conv2d(width, outside, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(outside)
        else:
            self.conv1 = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.conv3 = None
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Add the block's change to its input."""
        change = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.conv3 is not None:
            change = self.bn3(self.conv3(F.relu(change)))
        return F.relu(change + (x if self.downsample is None else self.downsample(x)))


class ResNet(Backbone):
    """ResNet-18, 34, 50 or 101 with torchvision's parameter names, as deep as the recipe needs.

    Example:
        >>> ResNet("resnet18")(torch.rand(1, 3, 97, 161)).shape
        torch.Size([1, 256, 7, 11])
    """

    default_layers = ("layer3",)
    normalised_by: ClassVar[dict[str, str]] = {"conv1": "bn1", "conv2": "bn2", "conv3": "bn3", "0": "1"}
    mean = (0.485, 0.456, 0.406)
    deviation = (0.229, 0.224, 0.225)
    depths: ClassVar[dict[str, tuple[int, int, int, int]]] = {
        "resnet18": (2, 2, 2, 2),
        "resnet34": (3, 4, 6, 3),
        "resnet50": (3, 4, 6, 3),
        "resnet101": (3, 4, 23, 3),
    }

    def __init__(
        self,
        name: str = "resnet101",
        layers: tuple[str, ...] = (),
        stride_on: str = "conv2",
        fine_layers: tuple[str, ...] = (),
        fine_factor: int = 2,
    ) -> None:
        if name not in self.depths or stride_on not in ("conv1", "conv2"):
            raise ConfigError(f"a ResNet is one of {', '.join(self.depths)} with its stride on conv1 or conv2")
        self.bottleneck = name in ("resnet50", "resnet101")
        super().__init__(layers, fine_layers, fine_factor)
        self.name, self.stride_on = name, stride_on
        self.depth = max(int(layer.removeprefix("layer")) for layer in self.used_layers)
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inside = 64
        for stage, blocks in enumerate(self.depths[name][: self.depth], start=1):
            width, stride = 32 * 2**stage, 1 if stage == 1 else 2
            outside = self.layer_channels()[f"layer{stage}"]
            sequence = nn.Sequential()
            for block in range(blocks):
                sequence.append(
                    ResidualBlock(
                        inside if block == 0 else outside,
                        width,
                        stride if block == 0 else 1,
                        self.bottleneck,
                        stride_on,
                    )
                )
            self.add_module(f"layer{stage}", sequence)
            inside = outside

    def layer_channels(self) -> dict[str, int]:
        """``layer1`` to ``layer4``, at strides 4, 8, 16 and 32."""
        expansion = 4 if self.bottleneck else 1
        return {f"layer{stage}": 32 * 2**stage * expansion for stage in range(1, 5)}

    def is_unused(self, parameter: str) -> bool:
        """Later stages and the classifier."""
        later = [f"layer{stage}." for stage in range(self.depth + 1, 5)]
        return parameter.startswith(("fc.", *later))

    def stages(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Stem, then one stage after the other."""
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(1, self.depth + 1):
            x = self.get_submodule(f"layer{stage}")(x)
            yield f"layer{stage}", x


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project: the block of EfficientNet-Lite."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inside * expansion
        self.expand_conv = nn.Conv2d(inside, width, 1, bias=False) if expansion > 1 else None
        self.bn0 = _lite_norm(width) if expansion > 1 else None
        self.depthwise_conv = nn.Conv2d(width, width, kernel, stride, groups=width, bias=False)
        self.bn1 = _lite_norm(width)
        self.project_conv = nn.Conv2d(width, outside, 1, bias=False)
        self.bn2 = _lite_norm(outside)
        self.adds = stride == 1 and inside == outside

    def expand(self, x: Tensor) -> Tensor:
        """The widened input that the depth-wise convolution sees."""
        if self.expand_conv is None or self.bn0 is None:
            return x
        return F.relu6(_convolve(self.expand_conv, self.bn0, x))

    def project(self, expanded: Tensor, x: Tensor) -> Tensor:
        """The rest of the block, from its own expansion."""
        padded = _pad_same(expanded, self.depthwise_conv)
        filtered = F.relu6(_convolve(self.depthwise_conv, self.bn1, padded))
        output = _convolve(self.project_conv, self.bn2, filtered)
        return output + x if self.adds else output


class EfficientNetLite0(Backbone):
    """EfficientNet-Lite0. Layers: ``blocks.N`` (0 to 15) and its widened input, ``blocks.N.expand``.

    Example:
        >>> EfficientNetLite0(("blocks.10.expand", "blocks.15"))(torch.rand(1, 3, 64, 96)).shape
        torch.Size([1, 992, 4, 6])
    """

    default_layers = ("blocks.10",)
    normalised_by: ClassVar[dict[str, str]] = {
        "conv_stem": "bn0",
        "expand_conv": "bn0",
        "depthwise_conv": "bn1",
        "project_conv": "bn2",
    }
    mean = (127 / 255,) * 3
    deviation = (128 / 255,) * 3
    # (repeats, kernel, stride of the first, expansion, channels in, channels out)
    plan = (
        (1, 3, 1, 1, 32, 16),
        (2, 3, 2, 6, 16, 24),
        (2, 5, 2, 6, 24, 40),
        (3, 3, 2, 6, 40, 80),
        (3, 5, 1, 6, 80, 112),
        (4, 5, 2, 6, 112, 192),
        (1, 3, 1, 6, 192, 320),
    )

    def __init__(
        self, layers: tuple[str, ...] = (), fine_layers: tuple[str, ...] = (), fine_factor: int = 2
    ) -> None:
        super().__init__(layers, fine_layers, fine_factor)
        depth = 1 + max(int(layer.split(".")[1]) for layer in self.used_layers)
        self.conv_stem = nn.Conv2d(3, 32, 3, 2, bias=False)
        self.bn0 = _lite_norm(32)
        self.blocks = nn.ModuleList(
            InvertedResidual(inside, outside, kernel, stride, expansion)
            for inside, outside, kernel, stride, expansion in list(self._blocks())[:depth]
        )

    @classmethod
    def _blocks(cls) -> Iterator[tuple[int, int, int, int, int]]:
        """(channels in, channels out, kernel, stride, expansion) of each block."""
        for repeats, kernel, stride, expansion, inside, outside in cls.plan:
            yield inside, outside, kernel, stride, expansion
            for _ in range(repeats - 1):
                yield outside, outside, kernel, 1, expansion

    def layer_channels(self) -> dict[str, int]:
        """Every block and its expansion."""
        widths = {}
        for number, (inside, outside, _, _, expansion) in enumerate(self._blocks()):
            widths[f"blocks.{number}.expand"] = inside * expansion
            widths[f"blocks.{number}"] = outside
        return widths

    def is_unused(self, parameter: str) -> bool:
        """Later blocks and the classifier."""
        later = [f"blocks.{number}." for number in range(len(self.blocks), 16)]
        return parameter.startswith(("conv_head.", "bn1.", "fc.", *later))

    def stages(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Stem, then one block after the other, each announced before and after its projection."""
        x = F.relu6(_convolve(self.conv_stem, self.bn0, _pad_same(x, self.conv_stem)))
        for number, block in enumerate(self.blocks):
            assert isinstance(block, InvertedResidual)
            expanded = block.expand(x)
            yield f"blocks.{number}.expand", expanded
            x = block.project(expanded, x)
            yield f"blocks.{number}", x


def _convolve(convolution: nn.Conv2d, norm: nn.Module, x: Tensor) -> Tensor:
    """A convolution and the batch norm after it.

    In training a norm that keeps its statistics is a multiplication of the weights: the same numbers and gradients
    up to rounding, and the layer's output passes through memory once instead of twice.
    """
    if norm.training or not convolution.training or not isinstance(norm, nn.BatchNorm2d):
        output: Tensor = norm(convolution(x))
        return output
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    weight, bias = convolution.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale
    return F.conv2d(x, weight, bias, convolution.stride, convolution.padding, groups=convolution.groups)


def _lite_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _pad_same(x: Tensor, convolution: nn.Conv2d) -> Tensor:
    """TensorFlow's "same" padding: ``ceil(size / stride)`` out, the odd pixel at the right and bottom."""
    padding: list[int] = []
    sides = zip(x.shape[-2:], convolution.kernel_size, convolution.stride, strict=True)
    for size, kernel, stride in reversed(list(sides)):
        total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
        padding += [total // 2, total - total // 2]
    return F.pad(x, padding)


def build_backbone(config: BackboneConfig, fine_layers: tuple[str, ...] = (), fine_factor: int = 2) -> Backbone:
    """The backbone a configuration names, with random weights; see :class:`Backbone` for the fine layers."""
    if config.name == "efficientnet-lite0":
        return EfficientNetLite0(config.layers, fine_layers, fine_factor)
    return ResNet(config.name, config.layers, config.stride_on, fine_layers, fine_factor)
