"""Time and memory of the head, of whole pairs and of their stages, each model against its baseline in turns."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from chmnet.benchmark.baseline import BaselineHead
from chmnet.benchmark.cost import STAGES
from chmnet.benchmark.measure import peak_megabytes, summary, time_together
from chmnet.benchmark.stages import Network, time_stages
from chmnet.geometry import Size
from chmnet.nn.chmnet import CHMNet, MatchingHead

KEYPOINTS = 20
"""Points that a pair transfers; a pair of the standard data sets has about half as many."""

Heads = Mapping[str, MatchingHead | BaselineHead]


def measure_head(heads: Heads, in_channels: int, grid: Size, repeats: int) -> dict[str, Any]:
    """Everything after the backbone: forward, and forward with the gradients of features and weights.

    Args:
        heads: ``"model"``, ``"baseline"``: the candidates.
        in_channels: channels of the features.
        grid: (height, width) of the features.
        repeats: runs of each forward pass; half as many, at least one, of forward with backward.
    """
    source, target = torch.rand(1, in_channels, *grid), torch.rand(1, in_channels, *grid)

    def forward(head: MatchingHead | BaselineHead) -> Tensor:
        with torch.inference_mode():
            return head(source, target)

    def forward_and_backward(head: MatchingHead | BaselineHead) -> None:
        leaves = [source.clone().requires_grad_(), target.clone().requires_grad_()]
        leaves += [parameter for parameter in head.parameters() if parameter.requires_grad]
        scores = head(leaves[0], leaves[1])
        torch.autograd.grad(scores, leaves, torch.ones_like(scores), allow_unused=True)

    passes: dict[str, tuple[Callable[[Any], Any], int]] = {
        "forward": (forward, repeats),
        "forward_and_backward": (forward_and_backward, max(1, repeats // 2)),
    }
    report: dict[str, Any] = {"in_channels": in_channels, "grid": list(grid)}
    report["largest_difference"] = _largest_difference(forward(heads["model"]), forward(heads["baseline"]))
    for name, (function, runs) in passes.items():
        tasks = {candidate: _bind(function, head) for candidate, head in heads.items()}
        report[name] = _compare(tasks, runs)
    return report


def measure_pair(
    networks: Mapping[str, Network], size: Size, repeats: int, multiply_adds: Mapping[str, int]
) -> dict[str, Any]:
    """A whole pair, images in memory to keypoints, and each stage of it.

    Args:
        networks: ``"model"``, ``"baseline"``, and others to compare with.
        size: (height, width) of both images.
        repeats: runs of each.
        multiply_adds: of the model's stages, and their ``total``.
    """
    source, target, keypoints = _pair(size)
    laps: dict[str, list[dict[str, float]]] = {name: [] for name in networks}

    def task(name: str) -> None:
        with torch.inference_mode():
            laps[name].append(time_stages(networks[name], source, target, keypoints))

    tasks = {name: _bind(task, name) for name in networks}
    time_together(tasks, repeats)
    timed = {name: found[1:] for name, found in laps.items()}  # the first one is the warm-up
    with torch.inference_mode():
        scores = [networks[name](source, target) for name in ("model", "baseline")]
    report: dict[str, Any] = {"keypoints": KEYPOINTS, "largest_difference": _largest_difference(*scores)}
    del scores
    report["whole"] = _rows({name: [sum(lap.values()) for lap in found] for name, found in timed.items()}, tasks)
    whole = {name: row["median_ms"] for name, row in report["whole"].items()}
    report["stages"] = {
        stage: {
            "multiply_adds": multiply_adds[stage],
            **{
                name: _stage_row([lap[stage] for lap in found], whole[name], multiply_adds[stage], name)
                for name, found in timed.items()
            },
        }
        for stage in STAGES
    }
    return report


def _stage_row(seconds: list[float], whole_ms: float, multiply_adds: int, name: str) -> dict[str, Any]:
    times = summary(seconds)
    row: dict[str, Any] = {**times, "share": round(times["median_ms"] / whole_ms, 4)}
    if name in ("model", "baseline") and multiply_adds and statistics.median(seconds) > 0:
        row["multiply_adds_per_second"] = round(multiply_adds / statistics.median(seconds))
    return row


def measure_growth(networks: Mapping[str, Network], size: Size, repeats: int) -> dict[str, Any]:
    """Time and peak memory of a whole pair at one size of the images."""
    source, target, keypoints = _pair(size)

    def task(network: Network) -> None:
        with torch.inference_mode():
            network.transfer(network(source, target), keypoints)

    return _compare({name: _bind(task, network) for name, network in networks.items()}, repeats)


def measure_cached(model: CHMNet, size: Size, count: int, repeats: int) -> dict[str, Any]:
    """Match ``count`` pairs of images whose pyramids are known, to keypoints."""
    source, target, keypoints = _pair(size)
    with torch.inference_mode():
        pyramids = [model.head.pyramid(model.features(source)), model.head.pyramid(model.features(target, "target"))]

    def task() -> None:
        with torch.inference_mode():
            for _ in range(count):
                model.transfer(model.head.match(*pyramids), keypoints)

    seconds = time_together({"model": task}, repeats)["model"]
    return {**summary(seconds), "pair_ms": round(1000 * statistics.median(seconds) / count, 3)}


def _pair(size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Two images of noise, and keypoints of the first: time does not depend on what is seen."""
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.rand(1, 3, *size, generator=generator) for _ in range(2))
    return source, target, 2 * torch.rand(1, KEYPOINTS, 2, generator=generator) - 1


def _bind(function: Callable[[Any], Any], argument: Any) -> Callable[[], Any]:
    return lambda: function(argument)


def _compare(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, Any]:
    return _rows(time_together(tasks, repeats), tasks)


def _rows(seconds: Mapping[str, list[float]], tasks: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Median, quartiles and peak memory of each candidate, and how much faster the model is than it."""
    model = statistics.median(seconds["model"])
    return {
        name: {
            **summary(values),
            "times_as_long_as_model": round(statistics.median(values) / model, 2),
            "peak_memory_mb": peak_megabytes(tasks[name]),
        }
        for name, values in seconds.items()
    }


def _largest_difference(actual: Tensor, expected: Tensor) -> float:
    """As a share of the largest value."""
    return float((actual - expected).abs().max() / expected.abs().max())
