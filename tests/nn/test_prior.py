"""The Hough prior: Gaussian votes and principal components, against their formulas and on simple scenes."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chmnet.config import ModelConfig, TransferConfig
from chmnet.data import load_pairs
from chmnet.errors import ConfigError, InputError
from chmnet.evaluation import Header, PredictionFile, evaluate, predict
from chmnet.geometry import grid_points
from chmnet.metrics import DEFAULT_PROTOCOLS
from chmnet.nn import HoughMatching, HoughPrior, MatchingHead, apply_hough_prior, fit_projections
from chmnet.ops import soft_argmax
from chmnet.ops.correlation import cosine_correlation, exchange
from chmnet.weights import load_model
from tests.flat import flat_config

PRIOR = HoughPrior()


def prior_head(prior: HoughPrior = PRIOR, **changes: Any) -> MatchingHead:
    settings = {"channel_reduction": 0, "correlation_power": 2.0, "mutual_filter": True, **changes}
    head = MatchingHead(flat_config("paper", **settings), in_channels=32)
    apply_hough_prior(head, prior)
    return head


def smooth_features(seed: int, height: int, width: int) -> Tensor:
    """Random features that change from cell to cell, but not abruptly."""
    noise = torch.randn(1, 32, height + 2, width + 2, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.avg_pool2d(noise, 3, stride=1)


# ---------------------------------------------------------------- votes


def gaussian(p: tuple[int, ...], q: tuple[int, ...], offset_sigma: float, distance_sigma: float) -> float:
    offset = sum((b - a) ** 2 for a, b in zip(p, q, strict=True))
    distances = sum(a * a for a in (*p, *q))
    return math.exp(-offset / (2 * offset_sigma**2) - distances / (4 * distance_sigma**2))


@pytest.mark.parametrize("sharing", ["psi", "full"])
def test_votes_are_the_formula(sharing: str) -> None:
    prior = HoughPrior(first_offset_sigma=0.6, last_offset_sigma=1.1, distance_sigma=1.7, gain=4, sharpness=50)
    head = prior_head(prior, first_sharing=sharing, last_sharing=sharing, transfer=TransferConfig(temperature=0.1))
    line = range(-2, 3)
    last = torch.tensor([gaussian(t[:2], t[2:], 1.1, 1.7) for t in product(line, repeat=4)]).view(5, 5, 5, 5)
    torch.testing.assert_close(head.last.kernel()[0, 0], 50 * 0.1 * last / last.sum())
    first = torch.tensor([gaussian(t[:2], t[2:], 0.6, 1.7) for t in product(line, repeat=4)]).view(5, 5, 5, 5)
    steps = list(product(range(-1, 2), repeat=2))
    sigmas = prior.scale_offset_sigma, prior.scale_distance_sigma
    scale = torch.tensor([gaussian((s,), (t,), *sigmas) for s, t in steps]).view(3, 3, 1, 1, 1, 1)
    first = scale * first
    torch.testing.assert_close(head.first.kernel()[0, 0], 4 * first / first.sum())


def test_isotropic_votes_are_means_of_the_formula() -> None:
    iso, psi = (prior_head(first_sharing=s, last_sharing=s).last.kernel()[0, 0] for s in ("iso", "psi"))
    torch.testing.assert_close(iso.sum(), psi.sum())
    for offset in (0, 1, 8):  # squared; 8 is a shift by two in both directions
        taps = [t for t in product(range(5), repeat=4) if (t[2] - t[0]) ** 2 + (t[3] - t[1]) ** 2 == offset]
        mean = torch.stack([psi[tap] for tap in taps]).mean()
        torch.testing.assert_close(torch.stack([iso[tap] for tap in taps]), mean.expand(len(taps)))


@pytest.mark.parametrize("dimensions", ["4d-4d", "6d-4d"])
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
def test_votes_do_not_tell_source_from_target(sharing: str, dimensions: str) -> None:
    head = prior_head(first_sharing=sharing, last_sharing=sharing, dimensions=dimensions)
    source, target = smooth_features(0, 5, 4), smooth_features(1, 4, 6)
    with torch.no_grad():
        scores, exchanged = head(source, target), head(target, source)
    torch.testing.assert_close(exchange(scores), exchanged, rtol=0, atol=1e-5 * exchanged.max().item())


@pytest.mark.parametrize("window", [1, 3, 7])
def test_any_window(window: int) -> None:
    head = prior_head(spatial_window=window, scale_window=1)
    assert head.last.kernel().sum().item() == pytest.approx(PRIOR.sharpness)


def test_several_channels_differ_a_little_and_together_vote_alike() -> None:
    one, four = prior_head(), prior_head(channels=4)
    assert not torch.equal(four.first.weight[0], four.first.weight[1])
    torch.testing.assert_close(four.first.weight, one.first.weight.expand(4, -1, -1), rtol=0.3, atol=0)
    torch.testing.assert_close(four.last.kernel().sum(1), one.last.kernel().sum(1), rtol=0.2, atol=1e-3)
    torch.testing.assert_close(prior_head(channels=4).first.weight, four.first.weight, rtol=0, atol=0)


def test_without_the_last_layer() -> None:
    head = prior_head(last_layer=False)
    assert isinstance(head.first, HoughMatching)
    torch.testing.assert_close(head.first.weight, prior_head().first.weight)


def test_no_correlation_scores_zero() -> None:
    head = prior_head(mutual_filter=False)
    scores = head.last(torch.sigmoid(head.first(torch.zeros(1, 1, 3, 3, 5, 5, 5, 5))).amax((2, 3)))
    assert scores[0, 0, 2, 2, 2, 2].item() == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.01])
@torch.no_grad()
def test_temperature_changes_nothing(temperature: float) -> None:
    """The last vote's scale goes with it."""
    config = TransferConfig(temperature=temperature)
    head, plain = prior_head(transfer=config), prior_head()
    source, target = smooth_features(0, 5, 4), smooth_features(1, 4, 6)
    moved = soft_argmax(head(source, target), config)
    torch.testing.assert_close(moved, soft_argmax(plain(source, target), plain.config.transfer), rtol=0, atol=1e-4)


# ---------------------------------------------------------------- scenes

HEADS: list[dict[str, Any]] = [
    *[{"first_sharing": sharing, "last_sharing": sharing} for sharing in ("psi", "iso", "full")],
    {"dimensions": "4d-4d"},
    {"channels": 3},
    {"output": "softplus"},
    {"mutual_filter": False},
    {"upsample": 1},
]


@pytest.mark.parametrize("changes", HEADS, ids=str)
@pytest.mark.parametrize("size", [(8, 8), (6, 11)])
@torch.no_grad()
def test_a_picture_matches_itself(changes: dict[str, Any], size: tuple[int, int]) -> None:
    head = prior_head(**changes)
    features = smooth_features(2, *size)
    positions = soft_argmax(head(features, features), head.config.transfer)[0]
    grid = grid_points((positions.shape[0], positions.shape[1]), like=positions)
    cells = (positions - grid).abs() * torch.tensor([size[1] - 1, size[0] - 1]) / 2
    assert cells.max() < 0.5


@pytest.mark.parametrize("changes", HEADS, ids=str)
@torch.no_grad()
def test_a_shifted_picture_matches_with_the_shift(changes: dict[str, Any]) -> None:
    head = prior_head(**changes, upsample=1) if "upsample" not in changes else prior_head(**changes)
    wide = smooth_features(3, 9, 11)
    positions = soft_argmax(head(wide[..., :9], wide[..., 2:]), head.config.transfer)[0]
    shift = positions - grid_points((9, 9), like=positions)
    expected = torch.tensor([-2 * 2 / 8, 0.0]).expand(9, 6, 2)  # two cells of a −1 … 1 grid of nine
    # The first two columns have no match; that of the third, at the very border, hears only half its neighbours.
    torch.testing.assert_close(shift[:, 3:], expected, rtol=0, atol=0.06)


def test_gradients_are_finite_and_reach_the_votes() -> None:
    head = prior_head()
    source, target = smooth_features(0, 5, 5), smooth_features(1, 5, 5)
    soft_argmax(head(source, target), head.config.transfer).square().sum().backward()
    for parameter in head.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().max() > 0


# ---------------------------------------------------------------- projections


@torch.no_grad()
def test_as_many_components_as_channels_keep_every_cosine() -> None:
    head = MatchingHead(flat_config(channel_reduction=1), in_channels=32)
    source, target = smooth_features(0, 6, 5), smooth_features(1, 4, 6)
    torch.testing.assert_close(fit_projections(head, source), torch.ones(3, dtype=torch.float64))
    projection = head.projections[1]
    torch.testing.assert_close(
        cosine_correlation(projection(source), projection(target)), cosine_correlation(source, target)
    )


@torch.no_grad()
def test_few_components_keep_what_a_low_rank_holds() -> None:
    basis = torch.randn(8, 32)
    features = [torch.einsum("bchw,cd->bdhw", torch.randn(2, 8, side, 5), basis) for side in (4, 7)]
    head = MatchingHead(flat_config(channel_reduction=4), in_channels=32)
    assert fit_projections(head, iter(features)).min() > 0.999
    for projection in head.projections:
        torch.testing.assert_close(
            cosine_correlation(projection(features[0]), projection(features[0])),
            cosine_correlation(features[0], features[0]),
            rtol=0,
            atol=1e-5,
        )
    assert torch.equal(head.projections[0].weight, head.projections[2].weight)


def test_components_are_the_leading_ones_whatever_the_length_of_features() -> None:
    """Lengths do not count: a rare, long feature is no component."""
    features = torch.zeros(1, 4, 1, 100)
    features[0, 1, 0, :90] = 1
    features[0, 2, 0, 90:] = 1000
    head = MatchingHead(flat_config(channel_reduction=4), in_channels=4)
    torch.testing.assert_close(fit_projections(head, features), torch.full((3,), 0.9, dtype=torch.float64))
    expected = torch.zeros(1, 4, 3, 3)
    expected[0, 1, 1, 1] = 1
    torch.testing.assert_close(head.projections[0].weight.detach(), expected)


def test_each_scale_may_have_its_own() -> None:
    head = MatchingHead(flat_config(channel_reduction=4), in_channels=32)
    shares = fit_projections(head, smooth_features(0, 9, 9), each_scale=True)
    assert shares.shape == (3,)
    assert not torch.allclose(head.projections[0].weight, head.projections[2].weight, atol=1e-3)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", ["first_offset_sigma", "distance_sigma", "gain", "sharpness"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_priors_out_of_range(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} of a Hough prior must be a positive number, got"):
        HoughPrior(**{name: value})


def test_a_prior_needs_hough_layers() -> None:
    with pytest.raises(ConfigError, match=r"a Hough prior needs .*hough, got none"):
        prior_head(matching="none")


def test_projections_that_cannot_be_fitted() -> None:
    with pytest.raises(ConfigError, match="the head has no projections to fit; set reduction"):
        fit_projections(prior_head(), torch.rand(1, 32, 3, 3))
    head = MatchingHead(ModelConfig(), in_channels=32)
    for features in ([], torch.zeros(1, 32, 3, 3), torch.full((1, 32, 3, 3), math.nan)):
        with pytest.raises(InputError, match="there are no features to fit the projections to; give finite"):
            fit_projections(head, features)
    with pytest.raises(InputError, match=r"features must have the axes b 32 h w, got \[1, 16, 3, 3\]"):
        fit_projections(head, torch.rand(1, 16, 3, 3))


# ---------------------------------------------------------------- the bars, on real data

RESNET = ("resnet50", "weights/resnet50_he_conv4.safetensors")
LITE = ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "threshold", "backbone", "bars"),
    [
        ("pf-pascal", "img", RESNET, (43, 69)),
        ("pf-willow", "bbox-legacy", RESNET, (42, 70)),
        ("pf-willow", "bbox-legacy", LITE, (44, 72)),
    ],
)
def test_matches_well_before_any_training(
    dataset: str,
    threshold: str,
    backbone: tuple[str, str],
    bars: tuple[float, float],
    shared: Path,
    tmp_path: Path,
) -> None:
    name, weights = backbone
    network = load_model("hough-prior", name, shared / weights if weights else "")
    pairs = load_pairs(dataset, shared / "datasets")
    file = PredictionFile(tmp_path / "p.jsonl")
    predict(pairs, network, file, Header.of(dataset, "test", pairs, {}))
    pck = evaluate(pairs, file, DEFAULT_PROTOCOLS[dataset].replace(threshold=threshold))["pck"]
    assert pck["0.05"] >= bars[0]
    assert pck["0.1"] >= bars[1]
