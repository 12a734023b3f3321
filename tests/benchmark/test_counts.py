"""Counts against numbers computed by hand."""

import math

import pytest
import torch

from chmnet.benchmark import count_multiply_adds, count_parameters
from chmnet.benchmark.counts import STAGES, scale_pairs_in_reach
from chmnet.config import BackboneConfig, ModelConfig
from chmnet.nn.chmnet import CHMNet
from tests.flat import flat_config


def model_of(backbone: str = "resnet18", branches: str = "shared", **changes: object) -> CHMNet:
    with torch.device("meta"):
        return CHMNet(flat_config(backbone=BackboneConfig(backbone, branches=branches), **changes))


def basic_stage(cells: int, inside: int, width: int, downsample: bool) -> int:
    """Two blocks of two 3×3 convolutions, all but the first from width to width, and a 1×1 beside the first."""
    return cells * (9 * inside * width + 3 * 9 * width * width + (inside * width if downsample else 0))


def test_backbone_of_resnet18_by_hand() -> None:
    side = 64
    expected = (side // 2) ** 2 * 49 * 3 * 64
    expected += basic_stage((side // 4) ** 2, 64, 64, downsample=False)
    expected += basic_stage((side // 8) ** 2, 64, 128, downsample=True)
    expected += basic_stage((side // 16) ** 2, 128, 256, downsample=True)
    assert count_multiply_adds(model_of(), (side, side))["backbone"] == 2 * expected


def test_depthwise_convolutions_count_one_channel_each() -> None:
    model = model_of("efficientnet-lite0", channel_reduction=0)
    model.backbone.layers = ("blocks.0",)
    stem = 32 * 32 * 9 * 3 * 32
    depthwise, project = 32 * 32 * 9 * 32, 32 * 32 * 32 * 16
    assert count_multiply_adds(model, (64, 64))["backbone"] == 2 * (stem + depthwise + project)


def test_head_by_hand() -> None:
    counts = count_multiply_adds(model_of("resnet101"), (240, 240))
    cells = 11**2 + 15**2 + 21**2  # 15 times √½, 1, √2
    assert counts["pyramid"] == 2 * cells * 9 * 1024 * 256
    assert counts["correlation"] == 256 * cells**2
    assert counts["first vote"] == 49 * 5**4 * 15**4 == 1_550_390_625
    assert counts["last vote"] == 5**4 * 30**4 == 506_250_000
    assert counts["total"] == sum(counts[stage] for stage in STAGES)
    assert 19e9 < counts["total"] < 23e9  # the paper says 19.6 G


def test_sizes_may_differ() -> None:
    counts = count_multiply_adds(model_of(dimensions="4d-4d"), (32, 48), (64, 80))
    assert counts["correlation"] == 64 * (2 * 3) * (4 * 5)
    assert counts["first vote"] == 5**4 * (2 * 3) * (4 * 5)
    assert counts["last vote"] == 2**4 * counts["first vote"]


@pytest.mark.parametrize(
    ("changes", "first", "last"),
    [
        ({"channels": 4}, 4 * 49, 4 * 16),
        ({"spatial_window": 3, "scale_window": 1}, 9 * 3**4 / 5**4, 16 * 3**4 / 5**4),
        ({"scales": (0.5, 1.0)}, 16, 16),
        ({"last_layer": False}, 49, 0),
        ({"matching": "none"}, 0, 0),
        ({"matching": "regularised-hough"}, 0, 0),
        ({"matching": "consensus", "consensus_channels": (3, 1)}, 2 * (3 + 3), 0),
    ],
    ids=str,
)
def test_votes_of_other_configurations(changes: dict[str, object], first: float, last: float) -> None:
    """In units of 5⁴ taps over all pairs of feature cells."""
    counts = count_multiply_adds(model_of(**changes), (64, 64))
    unit = 5**4 * 4**4
    assert counts["first vote"] == pytest.approx(first * unit)
    assert counts["last vote"] == pytest.approx(last * unit)


@pytest.mark.parametrize(("scales", "window", "expected"), [(1, 3, 1), (2, 3, 16), (3, 1, 9), (3, 5, 81)])
def test_scale_pairs(scales: int, window: int, expected: int) -> None:
    assert scale_pairs_in_reach(scales, window) == expected


@pytest.mark.parametrize(("sharing", "votes"), [("psi", 275), ("iso", 60), ("full", 6250)])
def test_parameters_as_the_paper_counts_them(sharing: str, votes: int) -> None:
    counts = count_parameters(model_of(first_sharing=sharing, last_sharing=sharing))
    assert counts["votes"] == votes
    assert counts["projections"] == 3 * 9 * 256 * 64
    assert counts["total"] == counts["backbone"] + counts["projections"] + votes + 2  # a bias each


def test_separate_backbones_count_twice() -> None:
    shared, separate = (count_parameters(model_of(branches=branches)) for branches in ("shared", "separate"))
    assert separate["backbone"] == 2 * shared["backbone"]
    assert math.isclose(shared["backbone"], 2.78e6, rel_tol=0.01)


def test_consensus_parameters_leave_biases_out() -> None:
    counts = count_parameters(model_of(matching="consensus", consensus_channels=(3, 1)))
    assert counts["votes"] == 5**4 * (3 + 3)


@pytest.mark.parametrize("window", [1, 3])
def test_every_turn_is_a_target_of_its_own(window: int) -> None:
    with torch.device("meta"):
        plain, turning = (
            CHMNet(
                ModelConfig.preset(
                    "paper",
                    backbone=BackboneConfig("resnet18"),
                    correlation={"rotations": rotations},
                    matching={"rotation_window": window if len(rotations) > 1 else 1},
                )
            )
            for rotations in ([0.0], [0.0, 90.0, 180.0, 270.0])
        )
    one, four = (count_multiply_adds(model, (64, 64)) for model in (plain, turning))
    for stage in ("backbone", "pyramid"):  # the source is seen once
        assert four[stage] == one[stage] * 5 / 2
    assert four["correlation"] == 4 * one["correlation"]
    assert four["first vote"] == 4 * window * one["first vote"]
    assert four["last vote"] == 4 * one["last vote"]
