"""Timing and peak memory of a function."""

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

Runs = dict[str, list[float]]


def time_together(functions: Mapping[str, Callable[[], Any]], repeats: int) -> Runs:
    """Seconds of each run; the functions take turns, so that a slow moment of the machine hits all of them."""
    seconds: Runs = {name: [] for name in functions}
    for function in functions.values():
        function()  # warm up
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
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
    """Multiply-adds a second of a dense float32 matrix product: what this machine can do at best."""
    a, b = torch.rand(side, side), torch.rand(side, side)
    seconds = time_together({"product": lambda: a @ b}, repeats)["product"]
    return side**3 / statistics.median(seconds)


def peak_megabytes(function: Callable[[], Any]) -> float | None:
    """Largest growth of resident memory while ``function`` runs; ``None`` where Linux's counters are missing.

    What is there before, such as weights, does not count: the process's high-water mark (``VmHWM``) is reset, and
    compared with what was resident then. The first run is not measured: in it libraries set themselves up.
    """
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        function()  # libraries allocate once
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
