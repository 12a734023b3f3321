"""The fine branch: its features and votes, and that everything around the network knows it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chmnet import CHMNet, Matcher, ModelConfig, load_model, save_model
from chmnet.benchmark.authors import Baseline
from chmnet.benchmark.counts import count_multiply_adds, count_parameters
from chmnet.errors import ConfigError, InputError
from chmnet.features import Features
from chmnet.nn import for_inference
from chmnet.nn.fine import FineBranch, pack
from chmnet.nn.memory import chunk_bytes
from chmnet.ops.correlation import cosine_correlation, normalise

FINE = {"layers": ["layer2"], "channels": 6}


def small_config(**changes: Any) -> ModelConfig:
    given = ModelConfig.preset(
        "paper",
        backbone={"name": "resnet18"},
        correlation={"scales": [1.0]},
        fine=FINE,
        output={"mutual_filter": True},
    )
    return given.replace(**changes)


def small_model(**changes: Any) -> CHMNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return CHMNet(small_config(**changes)).eval()


def pictures(height: int = 64, width: int = 80, number: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(number, 3, height, width, generator=generator)


def test_presets_have_no_fine_branch() -> None:
    assert all(not ModelConfig.preset(name).fine.layers for name in ("paper", "reference"))
    assert CHMNet(ModelConfig.preset("paper", backbone={"name": "resnet18"})).head.fine is None


def test_level_joins_both_parts_as_the_formula_says() -> None:
    branch = FineBranch(small_config(), coarse_channels=3, in_channels=5)
    coarse, early = torch.rand(2, 3, 4, 6), torch.rand(2, 5, 8, 12)
    level = branch.level(coarse, pack(early, 2))
    enlarged = torch.nn.functional.interpolate(coarse, (8, 12), mode="bilinear", align_corners=True)
    expected = [normalise(enlarged), 0.5 * normalise(branch.lateral(early))]
    torch.testing.assert_close(level, torch.cat(expected, dim=1))


def test_votes_are_added_before_the_activation() -> None:
    model = small_model(output={"mutual_filter": False})
    source, target = pictures(), pictures(80, 64)
    with torch.no_grad():
        whole = model(source, target)
        levels = [model.head.pyramid(model.features(images)).levels[-1] for images in (source, target)]
        votes = model.head.fine.vote(cosine_correlation(*levels).relu())
        model.head.fine.vote.weight.zero_()
        torch.testing.assert_close(whole, model(source, target) + votes)


@pytest.mark.parametrize("size", [(64, 80), (60, 75), (17, 33)])
def test_any_size_and_every_part_learns(size: tuple[int, int]) -> None:
    model = small_model()
    scores = model(pictures(*size), pictures(48, 64))
    assert scores.shape[2:] == (2 * -(-size[0] // 16), 2 * -(-size[1] // 16), 6, 8)
    scores.sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.head.fine.parameters())


def test_gradients_are_those_of_differences() -> None:
    model = small_model(correlation={"reduction": 64, "power": 1.5}, fine={**FINE, "channels": 2}).double()
    model.requires_grad_(False)
    source, target = (model.features(pictures(*size).double()) for size in ((32, 32), (32, 48)))
    checked = [model.head.fine.lateral.weight, model.head.fine.refine.weight, model.head.fine.vote.weight]

    for parameter in checked:
        parameter.requires_grad_(True)
        model.head(source, target).square().sum().backward()
        direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)).double()
        with torch.no_grad():
            start, step = parameter.clone(), 1e-6
            ends = []
            for sign in (1, -1):
                parameter.copy_(start + sign * step * direction)
                ends.append(model.head(source, target).square().sum())
            parameter.copy_(start)
        torch.testing.assert_close(
            (parameter.grad * direction).sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-9
        )
        parameter.requires_grad_(False)


VARIANTS = [
    {},
    {"correlation": {"scales": [0.7, 1.0, 1.4]}},
    {"correlation": {"reduction": 0, "power": 1.5}},
    {"matching": {"channels": 2}},
    {"fine": {"hidden": 5}},
    {"output": {"upsample": 3}},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_made_ready_for_inference_it_gives_the_same_also_in_pieces(changes: dict[str, Any]) -> None:
    model = small_model(**changes)
    source, target = pictures(), pictures(80, 64)
    ready = for_inference(model)
    with torch.no_grad():
        exact = model(source, target)
        torch.testing.assert_close(ready(source, target), exact, rtol=1e-3, atol=1e-6)
        pyramids = [ready.head.pyramid(ready.features(images)) for images in (source, target)]
        pieces = ready.head.match(*pyramids, chunk_bytes=1)[0]
        torch.testing.assert_close(pieces, ready.head.match(*pyramids)[0])
        torch.testing.assert_close(pieces, exact, rtol=1e-3, atol=1e-6)


def test_file_keeps_the_branch(tmp_path: Path) -> None:
    model = small_model()
    save_model(model, tmp_path / "fine.safetensors")
    again = load_model(tmp_path / "fine.safetensors")
    assert again.config.fine.layers == ("layer2",)
    with torch.no_grad():
        torch.testing.assert_close(again(pictures(), pictures()), model(pictures(), pictures()))


def test_matcher_and_its_kept_features(tmp_path: Path) -> None:
    picture, other = ((255 * pictures(*size)[0]).byte().permute(1, 2, 0).numpy() for size in ((64, 80), (48, 48)))
    matcher = Matcher(small_model(image_size=[64, 64]))
    alone = matcher.match(picture, other).scores
    kept = next(matcher.match_many([(picture, other)])).scores
    limited = Matcher(small_model(image_size=[64, 64]), memory_mb=40).match(picture, other).scores
    torch.testing.assert_close(kept, alone)
    torch.testing.assert_close(limited, alone)


def test_fine_level_is_part_of_the_features(tmp_path: Path) -> None:
    picture = (255 * pictures()[0]).byte().permute(1, 2, 0).numpy()
    matcher = Matcher(small_model(image_size=[64, 64]))
    features = matcher.extract(picture)
    assert [tuple(level.shape) for level in features.levels] == [(1, 64, 4, 4), (1, 70, 8, 8)]
    assert features.nbytes == 4 * (64 * 16 + 70 * 64)
    features.save(tmp_path / "features.safetensors")
    again = Features.load(tmp_path / "features.safetensors")
    alone = matcher.match(picture, picture).scores
    torch.testing.assert_close(matcher.match(again, again).scores, alone)
    halved = matcher.match(features.half(), features.half()).scores
    torch.testing.assert_close(halved, alone, rtol=0.05, atol=1e-6)


def test_features_of_other_fine_layers_are_another_models() -> None:
    picture = (255 * pictures()[0]).byte().permute(1, 2, 0).numpy()
    other = small_model(image_size=[64, 64], backbone={"layers": ["layer3"]}, output={"upsample": 1})
    features = Matcher(small_model(image_size=[64, 64])).extract(picture)
    with pytest.raises(InputError, match="made by another model"):
        Matcher(other).extract(features)


def test_limit_of_memory_counts_the_branch() -> None:
    with_branch, without = (
        for_inference(small_model(fine={"layers": layers})).head for layers in (["layer2"], [])
    )
    assert with_branch.piece_copies() > without.piece_copies()
    with pytest.raises(InputError, match="matching needs about"):
        chunk_bytes(with_branch, (240, 240), (240, 240), 1)


def test_swapping_the_pictures_swaps_the_scores() -> None:
    model = small_model()
    source, target = pictures(), pictures(48, 64)
    with torch.no_grad():
        there, back = model(source, target), model(target, source)
    torch.testing.assert_close(there, back.permute(0, 1, 4, 5, 2, 3), rtol=1e-4, atol=1e-7)


def test_mixing_block_starts_as_no_change_and_learns() -> None:
    plain, mixed = small_model(), small_model(fine={**FINE, "hidden": 5})
    assert mixed.head.fine.mix is not None
    mixed.head.load_state_dict({**mixed.head.state_dict(), **plain.head.state_dict()})
    mixed.backbone.load_state_dict(plain.backbone.state_dict())
    torch.testing.assert_close(mixed(pictures(), pictures()), plain(pictures(), pictures()))
    mixed(pictures(), pictures(48, 64)).sum().backward()
    assert mixed.head.fine.mix.project.weight.grad.abs().max() > 0
    with pytest.raises(ConfigError, match="hidden of fine must be at least 0"):
        small_config(fine={**FINE, "hidden": -1})


@pytest.mark.parametrize("changes", VARIANTS[:5])
def test_baseline_gives_the_same_numbers(changes: dict[str, Any]) -> None:
    model = small_model(**changes)
    pair = pictures(), pictures(80, 64)
    with torch.no_grad():
        torch.testing.assert_close(Baseline(model)(*pair), model(*pair), rtol=1e-3, atol=1e-6)


def test_costs_count_the_branch() -> None:
    with_branch, without = small_model(), small_model(fine={"layers": []})
    costs = [count_multiply_adds(model, (64, 64)) for model in (with_branch, without)]
    finer = (8 * 8) ** 2
    assert costs[0]["last vote"] == 2 * costs[1]["last vote"]
    assert costs[0]["correlation"] - costs[1]["correlation"] == (64 + 6) * finer
    assert costs[0]["pyramid"] - costs[1]["pyramid"] == 2 * 64 * 9 * (128 * 6 + 64)
    assert count_parameters(with_branch)["votes"] == count_parameters(without)["votes"] + 55


def test_unknown_layers_and_networks_without_votes_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown layer 'layer9'"):
        small_model(fine={"layers": ["layer9"]})
    with pytest.raises(ConfigError, match="adds to the votes of the last Hough layer"):
        small_config(matching={"kind": "none"})
    with pytest.raises(ConfigError, match="adds to the votes of the last Hough layer"):
        small_config(matching={"last_layer": False})
    with pytest.raises(ConfigError, match="at most 64 names"):
        small_config(fine={"layers": ["layer1"] * 65})
    with pytest.raises(ConfigError, match="channels of fine must be at least 1"):
        small_config(fine={"layers": ["layer2"], "channels": 0})
