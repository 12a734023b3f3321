"""All measurements as a list of steps that fill one report, ready for JSON."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from chmnet import __version__
from chmnet.benchmark.authors import DESCRIPTION, Baseline
from chmnet.benchmark.convolution import CASES, Case, measure_convolution
from chmnet.benchmark.counts import count_multiply_adds, count_parameters
from chmnet.benchmark.network import (
    measure_cached,
    measure_growth,
    measure_head,
    measure_pair,
    measure_training_step,
)
from chmnet.benchmark.timing import Network, matrix_product_rate
from chmnet.config import ModelConfig
from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.matcher import choose_device
from chmnet.nn.backbones import feature_grid
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.inference import for_inference
from chmnet.ops import available_backends, unavailable_backends

PARTS = ("convolution", "head", "training", "pair", "growth")
"""What can be measured: the convolutions, the head, a training step of it on cached features, a whole pair, growth
with image size and number of pairs."""
TRAINING_BATCH = 8

REFERENCE = "resnet101-baseline"
PEAK_MEMORY = (
    "growth of resident memory (VmHWM) above what was there before, weights among it; "
    "pairs each in a fresh process, convolutions and heads in the one that times them"
)
Report = dict[str, Any]
Step = Callable[[Report], None]


@dataclass(frozen=True)
class Plan:
    """What to measure, and on what."""

    model: CHMNet
    name: str
    """How the report calls the model."""
    size: Size
    """(height, width) of the images."""
    parts: tuple[str, ...] = PARTS
    sizes: tuple[int, ...] = (120, 240, 360, 480)
    """Sides of the square images whose growth is measured."""
    cached_pairs: tuple[int, ...] = (1, 10, 100)
    """Numbers of pairs to match on cached features."""
    repeats: int = 9
    cases: dict[str, Case] | None = None
    """Convolutions; the two votes of the paper's network if ``None``."""
    reference: bool = True
    """Whether a pair of another backbone is compared with ResNet-101 too."""
    device: str = "cpu"
    """Where the networks run; see :class:`chmnet.Matcher`. Counts of threads and SIMD are always the CPU's."""

    def __post_init__(self) -> None:
        for part in self.parts:
            if part not in PARTS:
                raise InputError(f"unknown part {part!r}; use some of {', '.join(PARTS)}")
        if self.repeats < 1:
            raise InputError(f"repeats must be at least 1, got {self.repeats}")
        wanted = [self.size, *((side, side) for side in self.sizes if "growth" in self.parts)]
        for size in wanted:
            self.model.config.replace(image_size=size)  # refuses what does not fit into memory


def plan(wanted: Plan) -> list[Step]:
    """The steps of a plan; each adds its numbers to a report. The first ones count and describe."""
    device = choose_device(wanted.device)
    model, size, repeats = wanted.model.eval().to(device), wanted.size, wanted.repeats
    channels, grid = model.backbone.out_channels, feature_grid(size)
    networks: dict[str, Network] = {"model": for_inference(model)}
    if set(wanted.parts) != {"convolution"}:
        networks["baseline"] = Baseline(model)

    def describe(report: Report) -> None:
        report["chmnet"] = __version__
        report["machine"] = {**describe_machine(), "device": str(device)}
        report["repeats"], report["warm_up"] = repeats, 1
        report["peak_memory"] = PEAK_MEMORY
        report["model"] = {"name": wanted.name, "config": model.config.to_dict(), "image_size": list(size)}
        report["baseline"] = f"{DESCRIPTION}; the model's own weights and backbone"
        report["parameters"] = count_parameters(model)
        report["multiply_adds"] = count_multiply_adds(model, size)

    def convolution(name: str, case: Case, report: Report) -> None:
        rate = report["machine"]["matrix_product_multiply_adds_per_second"]
        report.setdefault("convolution", {})[name] = measure_convolution(case, repeats, rate, device)

    def head(report: Report) -> None:
        heads = {name: network.head for name, network in networks.items()}
        trained = {**heads, "model": model.head}
        report["head"] = measure_head(heads, trained, channels, grid, repeats, device)

    def training(report: Report) -> None:
        if any(parameter.requires_grad for parameter in model.head.parameters()):  # something to train
            runs = max(1, repeats // 2)
            report["training"] = measure_training_step(model.head, channels, grid, TRAINING_BATCH, runs, device)

    def pair(report: Report) -> None:
        candidates = networks
        if wanted.reference and model.config.backbone.name != "resnet101":
            reference = CHMNet(ModelConfig.preset("reference")).eval().to(device)
            candidates = {**networks, REFERENCE: Baseline(reference)}
            report[REFERENCE] = f"{DESCRIPTION}; ResNet-101, preset reference, random weights"
        report["pair"] = measure_pair(candidates, size, repeats, report["multiply_adds"], device)

    def growth(side: int, report: Report) -> None:
        report.setdefault("growth", {}).setdefault("image_size", {})[str(side)] = {
            "multiply_adds": count_multiply_adds(model, (side, side))["total"],
            **measure_growth(networks, (side, side), max(1, repeats // 3), device),
        }

    def cached(count: int, report: Report) -> None:
        entries = report.setdefault("growth", {}).setdefault("pairs_on_cached_features", {})
        entries[str(count)] = measure_cached(model, size, count, max(1, repeats // 3), device)

    steps: dict[str, list[Step]] = {
        "convolution": [partial(convolution, name, case) for name, case in (wanted.cases or CASES).items()],
        "head": [head],
        "training": [training],
        "pair": [pair],
        "growth": [
            *(partial(growth, side) for side in wanted.sizes),
            *(partial(cached, count) for count in wanted.cached_pairs),
        ],
    }
    return [describe, *(step for part in PARTS if part in wanted.parts for step in steps[part])]


def run(wanted: Plan, track: Callable[[Sequence[Step]], Iterable[Step]] = iter) -> Report:
    """Measure all that a plan names.

    Args:
        wanted: what to measure.
        track: goes through the steps, for progress.

    Example:
        >>> from chmnet.config import BackboneConfig
        >>> model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18")))
        >>> report = run(Plan(model, "small", size=(32, 32), parts=("head",), repeats=1))
        >>> sorted(report["head"]["forward"])
        ['baseline', 'model']
    """
    report: Report = {}
    for step in track(plan(wanted)):
        step(report)
    return report


def describe_machine() -> dict[str, Any]:
    """What measurements depend on; nothing that identifies the machine."""
    return {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "simd": torch.backends.cpu.get_cpu_capability(),
        "backends": list(available_backends()),
        "unavailable_backends": unavailable_backends(),
        "matrix_product_multiply_adds_per_second": _matrix_product_rate(torch.get_num_threads()),
    }


@lru_cache
def _matrix_product_rate(threads: int) -> int:
    """Measured once per process."""
    return round(matrix_product_rate())
