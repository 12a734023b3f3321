"""How fast `conv_nd` is, against the paper's appendix-B form in the same run.

python -m benchmarks.conv_nd [--threads 2] [--repeats 9] [--json FILE]
"""

import argparse
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import appendix_b
from benchmarks.measure import matrix_product_rate, peak_megabytes, summary, time_together
from chmnet.nn import HoughMatching
from chmnet.ops import available_backends, conv_nd

Convolution = Callable[[Tensor, Tensor], Tensor]

CASES: dict[str, tuple[tuple[int, ...], int | None, Convolution, int]] = {
    # name: sizes, scale window, baseline, multiply-adds (6D: only the 49 of 81 scale pairs that are in reach)
    "4d-30": ((30, 30, 30, 30), None, appendix_b.conv_4d, 506_250_000),
    "6d-3-15": ((3, 3, 15, 15, 15, 15), 3, appendix_b.conv_6d, 1_550_390_625),
}


def run(repeats: int) -> dict[str, Any]:
    """Measure every case, forward alone and forward with backward."""
    report: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "matrix_product_multiply_adds_per_second": round(matrix_product_rate()),
        "cases": {},
    }
    for name, (sizes, scale, baseline, multiply_adds) in CASES.items():
        x = torch.rand(1, 1, *sizes)
        weight = HoughMatching(scale=scale).kernel().detach()
        candidates: dict[str, Convolution] = {"appendix-b": baseline}
        for backend in available_backends():
            if backend != "reference":  # hundreds of times slower: it is the specification
                candidates[backend] = partial(conv_nd, backend=backend)
        expected = baseline(x, weight)
        for candidate in candidates.values():
            torch.testing.assert_close(candidate(x, weight), expected, rtol=1e-4, atol=1e-6)
        report["cases"][name] = {
            "forward": _compare(candidates, x, weight, repeats, multiply_adds, backward=False),
            "forward_and_backward": _compare(
                candidates, x, weight, max(3, repeats // 2), 3 * multiply_adds, backward=True
            ),
        }
    return report


def _compare(
    candidates: dict[str, Convolution],
    x: Tensor,
    weight: Tensor,
    repeats: int,
    multiply_adds: int,
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
            "peak_memory_mb": peak_megabytes(tasks[name]),
        }
    return rows


def _task(candidate: Convolution, x: Tensor, weight: Tensor, backward: bool) -> Callable[[], Any]:
    if not backward:

        def forward() -> Tensor:
            with torch.no_grad():
                return candidate(x, weight)

        return forward
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    gradient = torch.rand_like(x)
    return lambda: torch.autograd.grad(candidate(x, weight), [x, weight], gradient)


def main() -> None:
    """Read the arguments, measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    report = run(arguments.repeats)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    rate = report["matrix_product_multiply_adds_per_second"] / 1e9
    print(f"{report['threads']} threads, matrix product {rate:.1f} G multiply-adds a second")
    for case, passes in report["cases"].items():
        for direction, rows in passes.items():
            for name, row in rows.items():
                print(
                    f"{case:8} {direction.replace('_', ' '):21} {name:11} {row['median_ms']:8.1f} ms "
                    f"({row['quartile_low_ms']:.1f}-{row['quartile_high_ms']:.1f})  "
                    f"{row['faster_than_appendix_b']:5.2f}x  "
                    f"{row['multiply_adds_per_second'] / 1e9:6.2f} G/s  peak {row['peak_memory_mb']} MB"
                )


if __name__ == "__main__":
    main()
