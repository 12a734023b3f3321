"""Time and memory of the head, of whole pairs and of their stages, each model against its baseline in turns."""

import copy
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chmnet.benchmark import timing
from chmnet.benchmark.authors import Baseline, BaselineHead, plain_vote
from chmnet.benchmark.counts import STAGES
from chmnet.benchmark.stages import time_stages
from chmnet.benchmark.timing import KEYPOINTS, Network, match_pair, random_pair, summary, time_together
from chmnet.geometry import Size
from chmnet.matcher import Matcher
from chmnet.nn.chmnet import CHMNet, MatchingHead, Pyramid
from chmnet.ops.transfer import transfer_keypoints

Device = str | torch.device
Heads = Mapping[str, MatchingHead | BaselineHead]


def measure_head(
    heads: Heads, trained: Heads, in_channels: int, grid: Size, repeats: int, device: Device = "cpu"
) -> dict[str, Any]:
    """Everything after the backbone: forward, and forward with the gradients of features and weights.

    Args:
        heads: ``"model"``, ``"baseline"``: the candidates, ready for inference.
        trained: the same with parameters that have gradients.
        in_channels: channels of the features.
        grid: (height, width) of the features.
        repeats: runs of each forward pass; half as many, at least one, of forward with backward.
        device: of the heads.
    """
    source, target = (torch.rand(1, in_channels, *grid, device=device) for _ in range(2))

    def forward(head: MatchingHead | BaselineHead) -> Tensor:
        with torch.inference_mode():
            return head(source, target)

    def forward_and_backward(head: MatchingHead | BaselineHead) -> None:
        leaves = [source.clone().requires_grad_(), target.clone().requires_grad_()]
        leaves += [parameter for parameter in head.parameters() if parameter.requires_grad]
        scores = head(leaves[0], leaves[1])
        torch.autograd.grad(scores, leaves, torch.ones_like(scores), allow_unused=True)

    passes: dict[str, tuple[Callable[[Any], Any], Heads, int]] = {
        "forward": (forward, heads, repeats),
        "forward_and_backward": (forward_and_backward, trained, max(1, repeats // 2)),
    }
    report: dict[str, Any] = {"in_channels": in_channels, "grid": list(grid)}
    report["largest_difference"] = _largest_difference(forward(heads["model"]), forward(heads["baseline"]))
    for name, (function, candidates, runs) in passes.items():
        tasks = {candidate: partial(function, head) for candidate, head in candidates.items()}
        report[name] = _compare(tasks, runs)
    return report


def measure_training_step(
    head: MatchingHead, in_channels: int, grid: Size, batch: int, repeats: int, device: Device = "cpu"
) -> dict[str, Any]:
    """A step of training on cached features: scores, distance of keypoints, gradients, Adam.

    The model's own head, and a copy of it in which only the votes are computed as in appendix B.

    Args:
        head: of the model, with parameters that learn; it is copied, not trained.
        in_channels: channels of the features.
        grid: (height, width) of the features.
        batch: pairs of a step.
        repeats: runs of each.
        device: of the head.
    """
    source, target = (torch.rand(batch, in_channels, *grid, device=device) for _ in range(2))
    points, truth = (2 * torch.rand(batch, KEYPOINTS, 2, device=device) - 1 for _ in range(2))
    with_appendix_b = copy.deepcopy(head)
    with_appendix_b.first, with_appendix_b.last = plain_vote(head.first), plain_vote(head.last)
    if with_appendix_b.fine is not None:
        with_appendix_b.fine.vote = plain_vote(with_appendix_b.fine.vote)

    def step(candidate: MatchingHead, optimiser: torch.optim.Optimizer) -> None:
        optimiser.zero_grad()
        found = transfer_keypoints(candidate(source, target), points, head.config.transfer)
        (found - truth).square().sum(-1).mean().backward()
        optimiser.step()

    tasks = {
        name: partial(step, candidate, torch.optim.Adam(candidate.parameters(), lr=1e-6))
        for name, candidate in (("model", copy.deepcopy(head)), ("appendix-b", with_appendix_b))
    }
    return {"in_channels": in_channels, "batch": batch, "step": _compare(tasks, repeats)}


def measure_pair(
    networks: Mapping[str, Network],
    size: Size,
    repeats: int,
    multiply_adds: Mapping[str, int],
    device: Device = "cpu",
) -> dict[str, Any]:
    """A whole pair, images in memory to keypoints, and each stage of it.

    Args:
        networks: ``"model"``, ``"baseline"``, and others to compare with.
        size: (height, width) of both images.
        repeats: runs of each.
        multiply_adds: of the model's stages, and their ``total``.
        device: of the networks.
    """
    pair = random_pair(size, device)
    laps: dict[str, list[dict[str, float]]] = {name: [] for name in networks}

    def run(name: str) -> None:
        laps[name].append(time_stages(networks[name], pair))

    time_together({name: partial(run, name) for name in networks}, repeats)
    timed = {name: found[1:] for name, found in laps.items()}  # the first one is the warm-up
    with torch.inference_mode():
        scores = [networks[name](pair.source, pair.target) for name in ("model", "baseline")]
    seconds = {name: [sum(lap.values()) for lap in found] for name, found in timed.items()}
    whole = _rows(seconds, _pair_peaks(networks, size, device))
    return {
        "keypoints": KEYPOINTS,
        "largest_difference": _largest_difference(*scores),
        "whole": whole,
        "stages": {
            stage: {
                "multiply_adds": multiply_adds[stage],
                **{
                    name: _stage_row([lap[stage] for lap in found], whole[name], multiply_adds[stage], name)
                    for name, found in timed.items()
                },
            }
            for stage in STAGES
        },
    }


def _stage_row(seconds: list[float], whole: Mapping[str, Any], multiply_adds: int, name: str) -> dict[str, Any]:
    times = summary(seconds)
    row: dict[str, Any] = {**times, "share": round(times["median_ms"] / whole["median_ms"], 4)}
    median = statistics.median(seconds)
    if name in ("model", "baseline") and multiply_adds and median > 0:  # other networks have other counts
        row["multiply_adds_per_second"] = round(multiply_adds / median)
    return row


def measure_growth(
    networks: Mapping[str, Network], size: Size, repeats: int, device: Device = "cpu"
) -> dict[str, Any]:
    """Time and peak memory of a whole pair at one size of the images."""
    pair = random_pair(size, device)
    tasks = {name: partial(match_pair, network, pair) for name, network in networks.items()}
    return _rows(time_together(tasks, repeats), _pair_peaks(networks, size, device))


def measure_cached(model: CHMNet, size: Size, count: int, repeats: int, device: Device = "cpu") -> dict[str, Any]:
    """Match ``count`` pairs of images whose features are known, to keypoints."""
    pair, matcher = random_pair(size, device), Matcher(model, device, image_size=size, poses="upright")
    network = matcher.model
    known = matcher.extract(pair.source[0]), matcher.extract(pair.target[0], "target")
    source, target = (Pyramid(list(features.levels), features.grid) for features in known)

    def task() -> None:
        with torch.inference_mode():
            for _ in range(count):
                network.transfer(network.head.match(source, target)[0], pair.keypoints)

    seconds = time_together({"model": task}, repeats)["model"]
    return {**summary(seconds), "pair_ms": round(1000 * statistics.median(seconds) / count, 3)}


def _pair_peaks(networks: Mapping[str, Network], size: Size, device: Device) -> dict[str, float | None]:
    return {
        name: timing.pair_peak_megabytes(network.config, isinstance(network, Baseline), size, str(device))
        for name, network in networks.items()
    }


def _compare(tasks: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Any]:
    """Peak memory, then time of each task."""
    peaks = {name: timing.peak_megabytes(task) for name, task in tasks.items()}
    return _rows(time_together(tasks, repeats), peaks)


def _rows(seconds: Mapping[str, list[float]], peaks: Mapping[str, float | None]) -> dict[str, Any]:
    """Median, quartiles and peak memory of each candidate, and how much faster the model is than it."""
    model = statistics.median(seconds["model"])
    return {
        name: {
            **summary(values),
            "model_is_faster": round(statistics.median(values) / model, 2),
            "peak_memory_mb": peaks[name],
        }
        for name, values in seconds.items()
    }


def _largest_difference(actual: Tensor, expected: Tensor) -> float:
    """As a share of the largest value."""
    return float((actual - expected).abs().max() / expected.abs().max())
