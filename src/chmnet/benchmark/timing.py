"""Time and peak memory of a function, and the pair that is measured: two images of noise.

Time and memory do not depend on what the images show.
"""

import ctypes
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chmnet.benchmark.authors import Baseline
from chmnet.config import ModelConfig
from chmnet.geometry import Size
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.inference import for_inference

KEYPOINTS = 20
"""Points that a pair transfers."""

Network = CHMNet | Baseline


class ImagePair(NamedTuple):
    """Two images ``1 3 h w`` and normalised keypoints ``1 n 2`` of the first."""

    source: Tensor
    target: Tensor
    keypoints: Tensor


def random_pair(size: Size, device: str | torch.device = "cpu") -> ImagePair:
    """Two different images of (height, width) ``size``, always the same two.

    Example:
        >>> random_pair((32, 48)).target.shape
        torch.Size([1, 3, 32, 48])
    """
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.rand(1, 3, *size, generator=generator) for _ in range(2))
    keypoints = 2 * torch.rand(1, KEYPOINTS, 2, generator=generator) - 1
    return ImagePair(source.to(device), target.to(device), keypoints.to(device))


def match_pair(network: Network, pair: ImagePair) -> Tensor:
    """From images to transferred keypoints ``1 n 2``."""
    with torch.inference_mode():
        return network.transfer(network(pair.source, pair.target), pair.keypoints)


def time_together(functions: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each run; the functions take turns, so that a slow moment of the machine affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()  # warm up
    wait_for_device()
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            wait_for_device()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def summary(seconds: list[float]) -> dict[str, float]:
    """Median and quartiles in milliseconds.

    Example:
        >>> summary([0.004, 0.001, 0.002, 0.003, 0.1])
        {'median_ms': 3.0, 'quartile_low_ms': 2.0, 'quartile_high_ms': 4.0}
    """
    milliseconds = sorted(1000 * value for value in seconds)
    quarter = len(milliseconds) // 4
    return {
        "median_ms": round(statistics.median(milliseconds), 3),
        "quartile_low_ms": round(milliseconds[quarter], 3),
        "quartile_high_ms": round(milliseconds[-1 - quarter], 3),
    }


def matrix_product_rate(side: int = 1536, repeats: int = 7) -> float:
    """Multiply-adds per second of a dense float32 matrix product: the best this machine can do."""
    a, b = torch.rand(side, side), torch.rand(side, side)
    seconds = time_together({"product": lambda: a @ b}, repeats)["product"]
    return side**3 / statistics.median(seconds)


def wait_for_device() -> None:
    """Wait for the queued work of a GPU: its time counts only when it is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()


def peak_megabytes(function: Callable[[], Any]) -> float | None:
    """Largest growth of memory while ``function`` runs; ``None`` where it cannot be measured.

    Memory of a GPU that is in use, otherwise resident memory by Linux's counters. What was there before, such as
    weights, does not count: the process's high-water mark (``VmHWM``) is reset, and compared with what was
    resident then. The first run is not measured: in it libraries allocate once.
    """
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    function()
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        allocated = torch.cuda.memory_allocated()
        function()
        return round((torch.cuda.max_memory_allocated() - allocated) / 2**20, 1)
    try:
        ctypes.CDLL(None).malloc_trim(0)  # memory kept by the allocator would hide what is needed
        reset.write_text("5")
        before = _kilobytes(status, "VmRSS")
        function()
        return round((_kilobytes(status, "VmHWM") - before) / 1024, 1)
    except (OSError, AttributeError):
        return None


def _kilobytes(status: Path, field: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1])


def pair_peak_megabytes(config: ModelConfig, baseline: bool, size: Size, device: str = "cpu") -> float | None:
    """Largest growth of memory while a pair is matched in a new process; ``None`` where it cannot be measured.

    In a process that has done other work, what the allocator kept of it shifts the figure by up to a third. So
    ``python -m chmnet.benchmark.timing`` reads a request and prints a number.

    Args:
        config: of the model; its weights are random and do not count.
        baseline: whether to run the baseline of the same weights.
        size: (height, width) of both images.
        device: as PyTorch calls it.
    """
    request = {
        "config": config.to_dict(),
        "baseline": baseline,
        "size": list(size),
        "threads": torch.get_num_threads(),
        "device": device,
    }
    process = subprocess.run(
        [sys.executable, "-m", "chmnet.benchmark.timing"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    return None if process.returncode else json.loads(process.stdout)


def answer(request: dict[str, Any]) -> float | None:
    """Do here what :func:`pair_peak_megabytes` asks for."""
    torch.set_num_threads(request["threads"])
    model = CHMNet(ModelConfig.from_dict(request["config"])).eval().to(request["device"])
    network = Baseline(model) if request["baseline"] else for_inference(model)
    del model  # frees its weights
    height, width = request["size"]
    pair = random_pair((height, width), request["device"])
    return peak_megabytes(lambda: match_pair(network, pair))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(json.load(sys.stdin))))
