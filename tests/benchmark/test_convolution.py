"""The baseline is what it claims to be, and the measurements measure."""

import pytest
import torch
from benchmarks import appendix_b, measure
from benchmarks import conv_nd as benchmark

from chmnet.ops import conv_nd


@pytest.mark.parametrize(
    ("baseline", "sizes", "taps"),
    [
        (appendix_b.conv_4d, (4, 5, 3, 6), (3, 3, 3, 3)),
        (appendix_b.conv_6d, (3, 3, 4, 3, 4, 5), (3, 3, 3, 3, 3, 3)),
    ],
    ids=["4d", "6d"],
)
def test_appendix_b_is_the_same_convolution(baseline, sizes: tuple[int, ...], taps: tuple[int, ...]) -> None:
    x = torch.rand(2, 1, *sizes, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(1, 1, *taps, dtype=torch.float64, requires_grad=True)
    actual, expected = baseline(x, weight), conv_nd(x, weight, backend="reference")
    torch.testing.assert_close(actual, expected)
    gradient = torch.rand_like(expected)
    for one, other in zip(
        torch.autograd.grad(actual, [x, weight], gradient),
        torch.autograd.grad(expected, [x, weight], gradient),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_measurements() -> None:
    calls = []
    seconds = measure.time_together({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3)
    assert calls == ["a", "b"] * 4  # one to warm up, then in turns
    assert [len(values) for values in seconds.values()] == [3, 3]
    assert measure.summary([0.001, 0.003, 0.002])["median_ms"] == 2.0
    megabytes = measure.peak_megabytes(lambda: torch.ones(25_000_000).sum())
    assert megabytes is None or 80 < megabytes < 150  # 100 million bytes


@pytest.mark.slow
def test_folded_is_faster_than_appendix_b() -> None:
    cases = benchmark.run(repeats=5)["cases"]
    for case, forward in (("4d-30", 1.3), ("6d-3-15", 1.1)):
        assert cases[case]["forward"]["folded"]["faster_than_appendix_b"] >= forward
        assert cases[case]["forward_and_backward"]["folded"]["faster_than_appendix_b"] >= 3
