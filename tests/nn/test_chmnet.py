from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chmnet.config import BackboneConfig, ModelConfig, TransferConfig
from chmnet.errors import ConfigError, InputError
from chmnet.nn import CHMNet, HoughMatching, MatchingHead
from chmnet.ops import conv_nd, cosine_correlation, mutual_nearest_neighbour_filter, resize_correlation
from chmnet.ops.correlation import exchange
from chmnet.ops.transfer import transfer_keypoints
from tests.flat import flat_config

Size = tuple[int, int]


def small_model(branches: str = "shared", **changes: Any) -> CHMNet:
    backbone = BackboneConfig("resnet18", branches=branches)
    return CHMNet(flat_config("paper", backbone=backbone, **changes)).eval()


def strong_model(branches: str = "shared", **changes: Any) -> CHMNet:
    """A model whose votes differ clearly from match to match, as after training."""
    model = small_model(branches, **changes)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, HoughMatching):
                layer.weight.copy_(torch.randn_like(layer.weight))
    return model


def pictures(seed: int, *sizes: Size) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(1, 3, *size, generator=generator) for size in sizes]


@pytest.mark.parametrize(
    ("source_size", "target_size"),
    [
        ((240, 240), (240, 240)),
        ((240, 320), (240, 320)),
        ((97, 161), (97, 161)),
        ((16, 16), (16, 16)),
        ((1, 1), (1, 40)),
        ((97, 161), (240, 130)),
    ],
    ids=str,
)
@torch.no_grad()
def test_any_size(source_size: Size, target_size: Size) -> None:
    model = small_model()
    source, target = pictures(0, source_size, target_size)
    correlation = model(source, target)
    grids = [2 * -(-side // 16) for side in (*source_size, *target_size)]
    assert correlation.shape == (1, 1, *grids)
    assert correlation.isfinite().all()
    keypoints = torch.tensor([[[0.0, 0.0], [-1.0, 1.0], [0.3, -0.7]]])
    moved = model.transfer(correlation, keypoints)
    assert moved.shape == keypoints.shape
    assert moved.abs().max() <= 1 + 1e-6


@torch.no_grad()
def test_transfer_is_the_configured_one() -> None:
    model = strong_model(transfer=TransferConfig(gaussian_sigma=3.0, sampler="nearest"))
    correlation, keypoints = torch.randn(1, 1, 6, 6, 6, 6), 2 * torch.rand(1, 5, 2) - 1
    moved = model.transfer(correlation, keypoints)
    torch.testing.assert_close(moved, transfer_keypoints(correlation, keypoints, model.config.transfer))
    assert not torch.allclose(moved, transfer_keypoints(correlation, keypoints))


@pytest.mark.parametrize("target_size", [(64, 96), (80, 64)], ids=["same size", "other size"])
@torch.no_grad()
def test_batch_is_its_items(target_size: Size) -> None:
    model = strong_model()
    source, target = torch.rand(3, 3, 64, 96), torch.rand(3, 3, *target_size)
    together = model(source, target)
    for item in range(3):
        alone = model(source[item : item + 1], target[item : item + 1])
        torch.testing.assert_close(together[item : item + 1], alone, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(together[0], together[1], rtol=1e-3, atol=1e-3)


def asymmetry(model: CHMNet, seed: int, sizes: tuple[Size, Size]) -> float:
    """Largest difference between matching there and matching back, relative to the spread of the scores."""
    one, other = pictures(seed, *sizes)
    with torch.no_grad():
        there, back = model(one, other), exchange(model(other, one))
    return ((there - back).abs().max() / there.std()).item()


few_examples = settings(max_examples=5, deadline=None)
seeds = st.integers(0, 2**16)
size_pairs = st.sampled_from([((64, 64), (64, 64)), ((48, 80), (64, 33))])


@few_examples
@given(seed=seeds, sizes=size_pairs)
def test_exchanging_pictures_exchanges_the_correlation(seed: int, sizes: tuple[Size, Size]) -> None:
    torch.manual_seed(seed)
    assert asymmetry(strong_model(), seed, sizes) < 1e-4


@few_examples
@given(seed=seeds, sizes=size_pairs)
def test_separate_branches_tell_source_from_target(seed: int, sizes: tuple[Size, Size]) -> None:
    torch.manual_seed(seed)
    assert asymmetry(strong_model("separate"), seed, sizes) > 0.01


@few_examples
@given(seed=seeds, sizes=size_pairs)
def test_full_kernels_tell_source_from_target(seed: int, sizes: tuple[Size, Size]) -> None:
    torch.manual_seed(seed)
    assert asymmetry(strong_model(first_sharing="full", last_sharing="full"), seed, sizes) > 0.1


@torch.no_grad()
def test_separate_branches_have_features_of_their_own() -> None:
    image = torch.rand(1, 3, 32, 48)
    shared, separate = small_model(), small_model("separate")
    assert torch.equal(shared.features(image, "source"), shared.features(image, "target"))
    assert not torch.allclose(separate.features(image, "source"), separate.features(image, "target"))
    assert separate.features(image).shape == (1, 256, 2, 3)


ABLATIONS: list[dict[str, Any]] = [
    *[{"matching": matching} for matching in ("hough", "regularised-hough", "consensus", "none")],
    *[{"matching": matching, "dimensions": "4d-4d"} for matching in ("hough", "regularised-hough", "none")],
    *[{"first_sharing": sharing, "last_sharing": sharing} for sharing in ("psi", "iso", "full")],
    {"last_layer": False},
    {"matching": "regularised-hough", "last_layer": False},
    {"transfer": TransferConfig(gaussian_sigma=0.0)},
    {"transfer": TransferConfig(sampler="nearest")},
    {"transfer": TransferConfig(scale_with_grid=False)},
    {"channels": 4},
    {"channels": 4, "dimensions": "4d-4d"},
    {"channels": 16, "dimensions": "4d-4d"},
    {"correlation_power": 2.5},
    {"keep_top": 10},
    {"matching": "consensus", "consensus_channels": (1, 1, 1)},
    {"matching": "consensus", "keep_top": 1},
    {"spatial_window": 3, "scale_window": 1},
    {"scales": (0.5, 1.0)},
    {"upsample": 1},
    {"upsample": 3},
    {"channel_reduction": 0},
    {"rectify": "before-resize"},
    {"rectify": "after-resize"},
    {"output": "softplus"},
    {"mutual_filter": True},
    {"output": "softplus", "mutual_filter": True},
]


def name_of(changes: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in changes.items())


@pytest.mark.parametrize("changes", ABLATIONS, ids=name_of)
@torch.no_grad()
def test_ablations_run(changes: dict[str, Any]) -> None:
    model = small_model(**changes)
    correlation = model(*pictures(1, (64, 80), (48, 64)))
    factor = model.config.output.upsample
    assert correlation.shape == (1, 1, *[factor * side for side in (4, 5, 3, 4)])
    assert correlation.isfinite().all()
    assert model.transfer(correlation, torch.rand(1, 4, 2)).isfinite().all()


@pytest.mark.parametrize(
    "changes",
    [change for change in ABLATIONS if "transfer" not in change],
    ids=name_of,
)
@torch.no_grad()
def test_ablations_change_the_result(changes: dict[str, Any]) -> None:
    """Every field counts: what is not the default gives another correlation."""
    source, target = torch.randn(1, 16, 4, 5), torch.randn(1, 16, 3, 4)
    torch.manual_seed(1)
    default = MatchingHead(ModelConfig(), 16)(source, target)
    torch.manual_seed(1)
    config = flat_config("paper", **changes)
    changed = MatchingHead(config, 16)(source, target)
    same = changed.shape == default.shape and torch.allclose(changed, default)
    assert same == (config == ModelConfig())


def random_head(**changes: Any) -> MatchingHead:
    """Weights of both signs, so that scores are too."""
    head = MatchingHead(flat_config("paper", **changes), 8)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return head


@pytest.mark.parametrize("rectify", ["before-resize", "after-resize"])
@torch.no_grad()
def test_head_step_by_step(rectify: str) -> None:
    head = random_head(rectify=rectify, output="softplus", mutual_filter=True).double()
    source, target = torch.randn(1, 8, 4, 5).double(), torch.randn(1, 8, 3, 4).double()
    # Sides 4, 5 and 3, 4 times √½, 1 and √2.
    sizes = [((3, 4), (2, 3)), ((4, 5), (3, 4)), ((6, 7), (4, 6))]
    levels = [
        [
            projection(F.interpolate(features, size, mode="bilinear", align_corners=True))
            for features, size in zip((source, target), pair, strict=True)
        ]
        for projection, pair in zip(head.projections, sizes, strict=True)
    ]
    correlation = torch.zeros(1, 1, 3, 3, 4, 5, 3, 4, dtype=torch.float64)
    for i, j in product(range(3), range(3)):
        cosine = cosine_correlation(levels[i][0], levels[j][1])
        if rectify == "before-resize":
            cosine = cosine.relu()
        correlation[:, :, i, j] = resize_correlation(cosine, (4, 5), (3, 4)).relu()
    votes = conv_nd(correlation, head.first.kernel(), head.first.bias, backend="reference").sigmoid()
    finer = resize_correlation(votes.amax((2, 3)), (8, 10), (6, 8))
    scores = F.softplus(conv_nd(finer, head.last.kernel(), head.last.bias, backend="reference"))
    torch.testing.assert_close(head(source, target), mutual_nearest_neighbour_filter(scores))


@torch.no_grad()
def test_power_comes_after_the_resizing() -> None:
    plain, cubed = (random_head(channel_reduction=0, correlation_power=power) for power in (1.0, 3.0))
    pyramids = plain.pyramid(torch.randn(1, 8, 4, 5)), plain.pyramid(torch.randn(1, 8, 3, 4))
    torch.testing.assert_close(cubed.correlate(*pyramids), plain.correlate(*pyramids) ** 3)


@pytest.mark.parametrize("dimensions", ["6d-4d", "4d-4d"])
@torch.no_grad()
def test_without_matching_scores_are_the_best_similarities(dimensions: str) -> None:
    head = random_head(matching="none", dimensions=dimensions, upsample=1, channel_reduction=0)
    source, target = torch.randn(1, 8, 4, 5), torch.randn(1, 8, 3, 4)
    plain = cosine_correlation(source, target).relu()
    scores = head(source, target)
    if dimensions == "4d-4d":
        torch.testing.assert_close(scores, plain)
    else:
        assert (scores >= plain - 1e-6).all()
        assert (scores > plain + 1e-3).any()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dimensions": "4d-4d", "channels": 4},
        {"first_sharing": "full", "last_sharing": "full"},
        {"last_layer": False},
        {"correlation_power": 1.5},  # steep at the many correlations of exactly zero
        {"output": "softplus", "mutual_filter": True, "rectify": "after-resize"},
        {"matching": "none"},
        {"matching": "regularised-hough"},
    ],
    ids=name_of,
)
def test_gradients_reach_every_parameter_of_the_head(changes: dict[str, Any]) -> None:
    head = MatchingHead(flat_config("paper", **changes), 16)
    source, target = torch.randn(2, 16, 5, 5, requires_grad=True), torch.randn(2, 16, 5, 5, requires_grad=True)
    correlation = head(source, target)
    (correlation * torch.randn_like(correlation)).sum().backward()
    assert list(head.parameters())
    for tensor in (source, target, *head.parameters()):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().max() > 0


def test_gradients_reach_every_parameter_of_the_consensus() -> None:
    head = MatchingHead(flat_config(matching="consensus", spatial_window=3, consensus_channels=(4, 1)), 16)
    for bias in head.first.biases:
        torch.nn.init.constant_(bias, 0.1)  # no ReLU is dead
    correlation = head(torch.randn(2, 16, 4, 4), torch.randn(2, 16, 4, 4))
    correlation.square().sum().backward()
    for parameter in head.parameters():
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().max() > 0


def test_consensus_of_features_without_a_match() -> None:
    """A target position whose features are all zero has no match at all, and no NaN either."""
    target = torch.randn(1, 16, 3, 3)
    target[..., 1, 1] = 0
    head = MatchingHead(flat_config(matching="consensus", channel_reduction=0), 16)
    assert head(torch.randn(1, 16, 3, 3), target).isfinite().all()


def test_training_step_of_the_whole_network() -> None:
    model = small_model().train()
    model(torch.rand(2, 3, 64, 64), torch.rand(2, 3, 64, 64)).square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().max() > 0


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 1, 32, 32), (1, 3, 0, 32), (1, 32, 32, 3)], ids=str)
def test_pictures_of_other_axes(shape: tuple[int, ...]) -> None:
    model = small_model()
    images = torch.rand(shape)
    with pytest.raises(InputError, match="images must have the axes b 3 h w, RGB from 0 to 1, got"):
        model.features(images)
    with pytest.raises(InputError, match="images must have the axes b 3 h w, RGB from 0 to 1, got"):
        model(images, images)


def test_unknown_branch() -> None:
    with pytest.raises(InputError, match="branch must be source or target, got 'left'"):
        small_model().features(torch.rand(1, 3, 32, 32), branch="left")


def test_batches_of_different_length() -> None:
    with pytest.raises(InputError, match="source and target must be batches of one length, got 2 and 1"):
        small_model()(torch.rand(2, 3, 32, 32), torch.rand(1, 3, 32, 32))


def test_reduction_to_no_channels() -> None:
    with pytest.raises(ConfigError, match="reduction = 17 leaves nothing of 16 channels"):
        MatchingHead(flat_config(channel_reduction=17), 16)
