"""Measurements of a small network: complete, consistent, and leaving the network as it was."""

import copy
import json
from typing import Any

import pytest
import torch

from chmnet.benchmark import Baseline, Plan, network, run, timing
from chmnet.benchmark.convolution import Case
from chmnet.benchmark.counts import STAGES
from chmnet.benchmark.run import describe_machine
from chmnet.benchmark.stages import Stopwatch, time_stages
from chmnet.benchmark.timing import match_pair, random_pair
from chmnet.config import BackboneConfig, ModelConfig
from chmnet.errors import ConfigError, InputError
from chmnet.nn.chmnet import CHMNet
from tests.flat import flat_config


def small_model(**changes: Any) -> CHMNet:
    return CHMNet(flat_config("reference", backbone=BackboneConfig("resnet18"), **changes)).eval()


def no_process(config: ModelConfig, baseline: bool, size: tuple[int, int], device: str) -> float:
    return 20.0 if baseline else 10.0


def test_report_holds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "pair_peak_megabytes", no_process)
    model, seen = small_model(), []
    cases = {"4d": Case((3, 3, 3, 3))}
    plan = Plan(model, "small", (48, 32), sizes=(32, 48), cached_pairs=(1, 3), repeats=2, cases=cases)
    report = run(plan, lambda steps: (seen.append(step) or step for step in steps))
    assert len(seen) == 1 + 1 + 1 + 1 + 1 + 2 + 2
    assert json.loads(json.dumps(report)) == report
    assert report["machine"]["threads"] == torch.get_num_threads()
    assert report["machine"]["matrix_product_multiply_adds_per_second"] > 1e8
    assert report["model"]["image_size"] == [48, 32]
    assert report["head"]["in_channels"] == 256
    assert report["head"]["grid"] == [3, 2]
    assert report["head"]["largest_difference"] < 1e-4
    assert report["training"]["batch"] == 8
    assert set(report["training"]["step"]) == {"model", "appendix-b"}
    assert all(row["median_ms"] > 0 for row in report["training"]["step"].values())
    pair = report["pair"]
    assert pair["largest_difference"] < 1e-4
    assert set(pair["whole"]) == {"model", "baseline", "resnet101-baseline"}
    assert tuple(pair["stages"]) == STAGES
    assert [pair["whole"][name]["peak_memory_mb"] for name in ("model", "baseline")] == [10.0, 20.0]
    for name in pair["whole"]:
        # Medians of parts need not sum up to the median of the whole, but they cannot be far from it.
        assert sum(stage[name]["share"] for stage in pair["stages"].values()) == pytest.approx(1, abs=0.5)
    assert set(report["growth"]["image_size"]) == {"32", "48"}
    assert set(report["growth"]["pairs_on_cached_features"]) == {"1", "3"}


def test_parts_that_are_not_asked_for_are_left_out() -> None:
    cases = {"4d": Case((3, 3, 3, 3))}
    report = run(Plan(small_model(), "small", (32, 32), parts=("convolution",), repeats=1, cases=cases))
    assert "4d" in report["convolution"]
    assert not {"head", "pair", "growth"} & report.keys()


def test_the_reference_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "pair_peak_megabytes", no_process)
    report = run(Plan(small_model(), "small", (32, 32), parts=("pair",), repeats=1, reference=False))
    assert set(report["pair"]["whole"]) == {"model", "baseline"}
    assert "resnet101-baseline" not in report


def test_the_machine_is_measured_once() -> None:
    assert describe_machine() == describe_machine()  # no two measured rates are the same


def test_a_training_step_leaves_the_model_as_it_was() -> None:
    model = small_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    network.measure_training_step(model.head, model.backbone.channels, (2, 2), batch=2, repeats=1)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_nothing_to_train_is_not_measured() -> None:
    model = small_model(matching="none", channel_reduction=0)
    assert "training" not in run(Plan(model, "none", (32, 32), parts=("training",), repeats=1))


@pytest.mark.parametrize("baseline", [False, True], ids=["model", "baseline"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"matching": "consensus"}, {"last_layer": False}, {"fine": {"layers": ["layer2"]}}],
    ids=str,
)
def test_stages_sum_up_and_the_network_stays_as_it_was(changes: dict[str, Any], baseline: bool) -> None:
    model = small_model(**changes)
    chosen = Baseline(model) if baseline else model
    pair = random_pair((48, 48))
    before = match_pair(chosen, pair)
    attributes = [set(vars(part)) for part in (chosen, chosen.head, chosen.head.first, chosen.head.last)]
    seconds = time_stages(chosen, pair)
    assert tuple(seconds) == STAGES
    assert all(value > 0 for value in seconds.values())
    assert [set(vars(p)) for p in (chosen, chosen.head, chosen.head.first, chosen.head.last)] == attributes
    torch.testing.assert_close(match_pair(chosen, pair), before)


def test_stages_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage begins, once, in order."""
    model, pair = small_model(), random_pair((32, 32))
    order: list[str] = []
    monkeypatch.setattr(Stopwatch, "switch", lambda self, stage: order.append(stage))
    monkeypatch.setattr(Stopwatch, "stop", lambda self: {})
    time_stages(model, pair)
    changes = [stage for stage, last in zip(order, [None, *order], strict=False) if stage != last]
    assert tuple(changes) == STAGES


def test_the_fine_branch_correlates_and_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, pair = small_model(fine={"layers": ["layer2"]}), random_pair((32, 32))
    order: list[str] = []
    monkeypatch.setattr(Stopwatch, "switch", lambda self, stage: order.append(stage))
    monkeypatch.setattr(Stopwatch, "stop", lambda self: {})
    time_stages(model, pair)
    assert order[-6:] == ["filter", "correlation", "last vote", "filter", "filter", "transfer"]


def test_a_stopwatch_runs_one_stage_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 3.0, 7.0, 7.0, 8.0, 8.0])
    monkeypatch.setattr("chmnet.benchmark.stages.time.perf_counter", lambda: next(clock))
    stopwatch = Stopwatch()
    for stage in ("a", "b", "a"):
        stopwatch.switch(stage)
    assert stopwatch.stop() == {"a": 3.0, "b": 4.0}


def test_peak_memory_of_a_pair_in_its_own_process() -> None:
    peak = timing.pair_peak_megabytes(small_model().config, True, (96, 96))
    assert peak is None or 0 < peak < 200


def test_peak_memory_of_what_cannot_run() -> None:
    config = copy.deepcopy(small_model().config)
    object.__setattr__(config.correlation, "scales", ())  # refused on the other side
    assert timing.pair_peak_megabytes(config, False, (32, 32)) is None


def test_answer_counts_no_weights() -> None:
    config = ModelConfig.preset("paper", backbone=BackboneConfig("resnet50"))
    request = {"config": config.to_dict(), "size": [32, 32], "threads": torch.get_num_threads(), "device": "cpu"}
    for baseline in (False, True):
        peak = timing.answer({**request, "baseline": baseline})
        assert peak is None or peak < 40  # the weights are 60 MB and more


def test_cached_pairs_do_not_run_the_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = small_model(), []
    original = CHMNet.features
    monkeypatch.setattr(CHMNet, "features", lambda *arguments: calls.append(1) or original(*arguments))
    row = network.measure_cached(model, (32, 32), count=5, repeats=2)
    assert len(calls) == 2
    assert row["pair_ms"] == pytest.approx(row["median_ms"] / 5, abs=0.01)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"parts": ("speed",)}, InputError, "part 'speed'; use some of convolution"),
        ({"repeats": 0}, InputError, "repeats must be at least 1, got 0"),
        ({"size": (0, 32)}, ConfigError, "image_size must be at least 1"),
        ({"sizes": (32, 4000)}, ConfigError, "would not fit into memory"),
    ],
    ids=str,
)
def test_impossible_plans(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Plan(**{"model": small_model(), "name": "small", "size": (32, 32), **changes})
