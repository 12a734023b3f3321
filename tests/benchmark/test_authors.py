"""The baseline is the same network: with a model's weights it gives the model's results."""

from typing import Any

import pytest
import torch
from torch import nn

from chmnet.benchmark import Baseline, BaselineHead
from chmnet.benchmark.plain_backbone import PlainBackbone
from chmnet.config import BackboneConfig, ModelConfig
from chmnet.errors import InputError
from chmnet.nn.backbones import EfficientNetLite0, ResNet
from chmnet.nn.chmnet import CHMNet, MatchingHead
from tests.flat import flat_config


def scramble(module: nn.Module) -> None:
    """Batch statistics and weights that are not the identity; votes of both signs."""
    for name, tensor in module.state_dict().items():
        if name.endswith(("running_var", "bn1.weight", "bn2.weight")):
            tensor.uniform_(0.5, 1.5)
        elif name.endswith(("running_mean", "bias")):
            tensor.normal_(std=0.1)
        elif name in ("head.first.weight", "head.last.weight"):
            tensor.normal_(std=0.5)


HEADS: list[dict[str, Any]] = [
    {},
    {"rectify": "after-resize", "output": "softplus", "mutual_filter": True},
    {"dimensions": "4d-4d", "channels": 3},
    {"channels": 3},
    {"first_sharing": "full", "last_sharing": "iso", "scale_window": 1, "scales": (0.5, 1.0)},
    {"keep_top": 3, "channel_reduction": 0},
    {"correlation_power": 1.5},
    {"last_layer": False, "upsample": 3},
    {"matching": "none", "mutual_filter": True},
    {"matching": "regularised-hough"},
    {"matching": "consensus", "consensus_channels": (2, 1)},
]


@pytest.mark.parametrize("changes", HEADS, ids=lambda changes: ", ".join(map(str, changes)) or "paper")
@torch.no_grad()
def test_head_gives_the_same_numbers(changes: dict[str, Any]) -> None:
    head = MatchingHead(flat_config("paper", **changes), 16)
    for name, parameter in head.named_parameters():
        if not name.startswith("projections"):
            parameter.add_(torch.randn_like(parameter).abs() * 0.01)
    source, target = torch.randn(2, 16, 4, 5), torch.randn(2, 16, 3, 4)
    torch.testing.assert_close(BaselineHead(head)(source, target), head(source, target), rtol=1e-4, atol=1e-6)


def test_head_gives_the_same_gradients() -> None:
    head = MatchingHead(ModelConfig.preset("reference"), 8).double()
    baseline = BaselineHead(head)
    source, target = (torch.randn(1, 8, 4, 4, dtype=torch.float64) for _ in range(2))
    gradients = [
        torch.autograd.grad(one(source, target).sum(), list(one.parameters())) for one in (head, baseline)
    ]
    assert len(gradients[0]) == len(gradients[1]) == 7
    for expected, actual in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected.view_as(actual), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("branches", ["shared", "separate"])
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "efficientnet-lite0"])
@torch.no_grad()
def test_network_gives_the_same_numbers(name: str, branches: str) -> None:
    config = ModelConfig.preset("reference", backbone=BackboneConfig(name, branches=branches))
    model = CHMNet(config).eval()
    scramble(model)
    source, target = torch.rand(1, 3, 48, 40), torch.rand(1, 3, 33, 64)
    baseline = Baseline(model)
    expected = model(source, target)
    torch.testing.assert_close(baseline(source, target), expected, rtol=1e-4, atol=1e-6)
    keypoints = torch.rand(1, 5, 2)
    torch.testing.assert_close(baseline.transfer(expected, keypoints), model.transfer(expected, keypoints))


@pytest.mark.parametrize(
    "backbone",
    [
        ResNet("resnet18", ("layer1", "layer4")),
        ResNet("resnet50", stride_on="conv1"),
        ResNet("resnet34", ("layer2",), stride_on="conv1"),
        EfficientNetLite0(("blocks.10.expand", "blocks.15")),
    ],
    ids=["several layers", "stride on conv1", "basic blocks", "lite"],
)
@torch.no_grad()
def test_plain_backbones(backbone: ResNet | EfficientNetLite0) -> None:
    backbone.eval()
    scramble(backbone)
    images = torch.rand(2, 3, 50, 67)
    expected = backbone(images)
    atol = 1e-5 * float(expected.abs().max())
    torch.testing.assert_close(PlainBackbone(backbone)(images), expected, rtol=1e-4, atol=atol)


@torch.no_grad()
def test_weights_are_copies() -> None:
    """What becomes of the model later does not change its baseline."""
    model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18"))).eval()
    baseline, images = Baseline(model), torch.rand(1, 3, 32, 32)
    before = baseline(images, images)
    for parameter in model.parameters():
        parameter.zero_()
    torch.testing.assert_close(baseline(images, images), before, rtol=0, atol=0)


def test_unknown_branch() -> None:
    model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18"))).eval()
    with pytest.raises(InputError, match="branch must be source or target, got 'left'"):
        Baseline(model).features(torch.rand(1, 3, 32, 32), "left")


@pytest.mark.parametrize(
    "changes",
    [{"matching": {"scale_borders": "present"}}, {"correlation": {"rotations": [0.0, 90.0]}}],
    ids=["scale borders", "rotations"],
)
def test_what_the_authors_do_not_have_is_refused(changes: dict[str, dict[str, object]]) -> None:
    head = MatchingHead(ModelConfig.preset("paper", **changes), in_channels=8)
    with pytest.raises(InputError, match="the authors' way has no"):
        BaselineHead(head)
