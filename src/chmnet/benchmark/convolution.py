"""How fast :func:`chmnet.ops.conv_nd` is, against the paper's appendix-B form in the same run."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from chmnet.benchmark import authors
from chmnet.benchmark.counts import scale_pairs_in_reach
from chmnet.benchmark.timing import peak_megabytes, summary, time_together
from chmnet.nn.hough import HoughMatching
from chmnet.ops import available_backends, conv_nd

Convolution = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A psi kernel of 5⁴ taps over a correlation of one channel."""

    sizes: tuple[int, ...]
    """Positions ``hs ws ht wt``, or with scales ``ss st hs ws ht wt``."""
    scale: int | None = None
    """Window over scales; ``None``: 4D."""

    @property
    def baseline(self) -> Convolution:
        """Appendix B."""
        return authors.conv_4d if self.scale is None else authors.conv_6d

    @property
    def multiply_adds(self) -> int:
        """Of a forward pass; in 6D only the scale pairs in reach.

        Example:
            >>> [case.multiply_adds for case in CASES.values()]
            [506250000, 1550390625]
        """
        pairs = 1 if self.scale is None else scale_pairs_in_reach(self.sizes[0], self.scale)
        height, width, target_height, target_width = self.sizes[-4:]
        return pairs * 5**4 * height * width * target_height * target_width


CASES = {"4d-30": Case((30, 30, 30, 30)), "6d-3-15": Case((3, 3, 15, 15, 15, 15), scale=3)}
"""The two votes of the paper's network at 240 × 240."""


def measure_convolution(
    case: Case, repeats: int, rate: float, device: str | torch.device = "cpu"
) -> dict[str, Any]:
    """Every back-end and appendix B in turns, forward alone and forward with backward.

    Args:
        case: what to convolve.
        repeats: runs of each forward pass; half as many, at least one, of forward with backward.
        rate: multiply-adds per second of a plain matrix product, to compare with.
        device: as PyTorch calls it.
    """
    x, weight = torch.rand(1, 1, *case.sizes), HoughMatching(scale=case.scale).kernel().detach()
    x, weight = x.to(device), weight.to(device)
    candidates: dict[str, Convolution] = {"appendix-b": case.baseline}
    for backend in available_backends():
        if backend != "reference":  # hundreds of times slower: it is the specification
            candidates[backend] = partial(conv_nd, backend=backend)
    return {
        "multiply_adds": case.multiply_adds,
        "largest_difference": _largest_difference(candidates, x, weight),
        "forward": _compare(candidates, x, weight, repeats, case.multiply_adds, rate, backward=False),
        # The gradients of the input and of the kernel are as much work as the convolution, each.
        "forward_and_backward": _compare(
            candidates, x, weight, max(1, repeats // 2), 3 * case.multiply_adds, rate, backward=True
        ),
    }


def _largest_difference(candidates: dict[str, Convolution], x: Tensor, weight: Tensor) -> dict[str, float]:
    """Of each back-end to appendix B, as a share of the largest value."""
    expected = candidates["appendix-b"](x, weight)
    largest = expected.abs().max()
    return {
        name: float((candidate(x, weight) - expected).abs().max() / largest)
        for name, candidate in candidates.items()
        if name != "appendix-b"
    }


def _compare(
    candidates: dict[str, Convolution],
    x: Tensor,
    weight: Tensor,
    repeats: int,
    multiply_adds: int,
    rate: float,
    backward: bool,
) -> dict[str, Any]:
    tasks = {name: _task(candidate, x, weight, backward) for name, candidate in candidates.items()}
    seconds = time_together(tasks, repeats)
    base = statistics.median(seconds["appendix-b"])
    rows = {}
    for name, values in seconds.items():
        median = statistics.median(values)
        rows[name] = {
            **summary(values),
            "faster_than_appendix_b": round(base / median, 2),
            "multiply_adds_per_second": round(multiply_adds / median),
            "share_of_matrix_product": round(multiply_adds / median / rate, 3),
            "peak_memory_mb": peak_megabytes(tasks[name]),
        }
    return rows


def _task(candidate: Convolution, x: Tensor, weight: Tensor, backward: bool) -> Callable[[], Any]:
    if not backward:
        return partial(torch.no_grad()(candidate), x, weight)
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    gradient = torch.rand_like(x)
    return lambda: torch.autograd.grad(candidate(x, weight), [x, weight], gradient)
