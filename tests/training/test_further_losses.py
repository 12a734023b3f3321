"""Losses beyond the paper's, and the parts of a network that learn from them: a fine branch, folded norms."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from chmnet.config import TransferConfig
from chmnet.errors import ConfigError
from chmnet.ops.transfer import transfer_by_rows, transfer_keypoints
from chmnet.training.config import TrainingConfig
from chmnet.training.initialise import build_model, initialise
from chmnet.training.log import read_log
from chmnet.training.loop import train
from chmnet.training.objective import Objective, bell, feature_loss, spread_loss
from chmnet.weights import save_model
from tests.training.tiny import tiny_config

FINE = {"layers": ["blocks.2"], "channels": 4}
POINTS = torch.tensor([[[-0.5, 0.25], [0.0, 0.0], [0.9, -0.9]]])
MASK = torch.tensor([[True, True, False]])


def test_bells_against_loops() -> None:
    found = bell(POINTS, (4, 5), 0.8)
    for number, (x, y) in enumerate(POINTS[0].tolist()):
        values = [
            math.exp(-(((x + 1) * 2 - column) ** 2 + ((y + 1) * 1.5 - row) ** 2) / (2 * 0.8**2))
            for row in range(4)
            for column in range(5)
        ]
        expected = torch.tensor(values) / sum(values)
        torch.testing.assert_close(found[0, number], expected, rtol=1e-4, atol=1e-6)


def test_spread_loss_is_zero_for_the_gaussian_itself_and_ignores_padding() -> None:
    transfer = TransferConfig(sampler="nearest")
    scores = 0.1 * bell(POINTS, (5, 5), 1.0).log()
    correlation = torch.zeros(1, 1, 3, 3, 5, 5)
    source = torch.tensor([[[-1.0, -1.0], [0.0, 0.0], [math.nan, 0.0]]])
    correlation[0, 0, 0, 0], correlation[0, 0, 1, 1] = scores[0, :2].unflatten(-1, (5, 5))
    right = spread_loss(correlation, source, POINTS, MASK, transfer, 0.1, 1.0)
    assert right.abs() < 1e-5
    assert spread_loss(correlation, source, -POINTS, MASK, transfer, 0.1, 1.0) > 0.1


def test_feature_loss_falls_as_features_agree() -> None:
    features = torch.eye(25).view(1, 25, 5, 5)
    same = feature_loss(features, features, POINTS, POINTS, MASK, 0.1, 0.5)
    assert same < feature_loss(features, features, POINTS, -POINTS, MASK, 0.1, 0.5)


def test_rows_give_the_positions_of_the_whole_map_and_their_gradients() -> None:
    scores = torch.randn(2, 1, 6, 7, 5, 4, dtype=torch.float64, requires_grad=True)
    points = torch.tensor([[[0.1, -0.3], [1.7, 0.0]], [[-1.0, 1.0], [0.5, 0.5]]], dtype=torch.float64)
    found = [function(scores, points) for function in (transfer_by_rows, transfer_keypoints)]
    torch.testing.assert_close(*found)
    gradients = [torch.autograd.grad(positions.sum(), scores)[0] for positions in found]
    torch.testing.assert_close(*gradients)


def batch(size: int = 48) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(3)
    return torch.rand(1, 3, size, size), torch.rand(1, 3, size, size), POINTS, POINTS.flip(1), MASK


def config_of(**fields: Any) -> TrainingConfig:
    config = tiny_config(**{"frozen": False, **fields})
    return config.replace(model={"fine": FINE, "output": {"mutual_filter": True}})


def test_both_ways_is_the_mean_of_the_two_directions() -> None:
    config = config_of(match_loss=0.1, match_sigma=[2.0, 0.5], feature_loss=0.3)
    model = build_model(config).eval()
    source, target, source_points, target_points, mask = batch()
    there, _ = Objective(model, config)(source, target, source_points, target_points, mask)
    back, _ = Objective(model, config)(target, source, target_points, source_points, mask)
    both = Objective(model, config.replace(both_ways=True))(source, target, source_points, target_points, mask)
    torch.testing.assert_close(both[0], (there + back) / 2, rtol=1e-4, atol=1e-6)


def test_widths_fall_during_a_run() -> None:
    objective = Objective(build_model(tiny_config()), tiny_config(match_sigma=[4.0, 1.0]))
    widths = []
    for objective.done in (0.0, 0.5, 1.0):
        widths.append(objective.sigma())
    assert widths == [4.0, 2.0, 1.0]
    assert Objective(build_model(tiny_config()), tiny_config()).sigma() is None


def test_norms_that_keep_their_statistics_give_the_same_numbers_and_gradients() -> None:
    config = config_of()
    model = build_model(config)
    images = batch()[0]
    found = []
    for whole in (True, False):  # the module's own norms, then norms multiplied into weights
        model.backbone.train(not whole)
        for part in model.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.eval()
        model.zero_grad()
        features = model.backbone(images)
        features.square().sum().backward()
        found.append([features, *[parameter.grad.clone() for parameter in model.backbone.parameters()]])
    for plain, folded in zip(*found, strict=True):
        torch.testing.assert_close(folded, plain, rtol=1e-3, atol=1e-4)


def test_fine_branch_starts_from_a_model_without_one(tmp_path: Path) -> None:
    plain = config_of().replace(model={"fine": {"layers": []}})
    base = build_model(plain)
    save_model(base, tmp_path / "base.safetensors")
    config = config_of(init=str(tmp_path / "base.safetensors"), backbone_weights="")
    model = build_model(config)
    initialise(model, config, lambda: torch.zeros(0))
    assert model.head.fine is not None
    torch.testing.assert_close(model.head.fine.vote.weight, base.head.last.weight / 2)
    save_model(model, tmp_path / "fine.safetensors")
    mixing = config.replace(init=str(tmp_path / "fine.safetensors"), model={"fine": {"hidden": 3}})
    mixed = build_model(mixing)
    initialise(mixed, mixing, lambda: torch.zeros(0))
    torch.testing.assert_close(mixed.head.fine.vote.weight, model.head.fine.vote.weight)
    torch.testing.assert_close(model.backbone.state_dict(), base.backbone.state_dict())


@pytest.mark.parametrize(("init", "frozen"), [("random", True), ("hough-prior", False)])
def test_a_run_with_everything_on_resumes_to_the_same_weights(tmp_path: Path, init: str, frozen: bool) -> None:
    fields = {"match_loss": 0.1, "match_sigma": [2.0, 0.7], "feature_loss": 0.3, "both_ways": True}
    config = config_of(**fields, init=init, average_decay=0.9, batch_statistics=False, checkpoint_minutes=0.0)
    config = config.replace(frozen=frozen, learning_rate=1e-4, validation=[])
    train(config, tmp_path / "whole")

    def stop(record: dict[str, Any]) -> None:
        if record["kind"] == "step" and record["step"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "parts", report=stop)
    train(config, tmp_path / "parts", resume=True)
    whole, parts = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "parts"))
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)


def test_wrong_widths_are_refused() -> None:
    with pytest.raises(ConfigError, match="match_sigma must be the first and the last width"):
        tiny_config(match_sigma=[1.0])
    with pytest.raises(ConfigError, match="feature_temperature must be at least"):
        tiny_config(feature_temperature=0.0)


def test_validation_tells_the_sources_apart(tmp_path: Path) -> None:
    source = {"dataset": "synthetic", "views": 2, "points": 5}
    config = tiny_config(validation=[{**source, "count": 4}, {**source, "count": 2, "rotation": 0.0}])
    train(config.replace(epochs=1), tmp_path / "run")
    record = next(one for one in read_log(tmp_path / "run" / "log.jsonl") if one["kind"] == "validation")
    first, second = record["sources"]
    assert (first["pairs"], second["pairs"], record["pairs"]) == (4, 2, 6)
    mean = (4 * first["pck"]["0.1"] + 2 * second["pck"]["0.1"]) / 6
    assert record["pck"]["0.1"] == pytest.approx(mean)
