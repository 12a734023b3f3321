"""The baseline is what it claims to be, and the measurements timing."""

import pytest
import torch

from chmnet.benchmark import authors, timing
from chmnet.benchmark.convolution import CASES, Case, measure_convolution
from chmnet.ops import available_backends, conv_nd


@pytest.mark.parametrize(
    ("baseline", "sizes", "taps"),
    [
        (authors.conv_4d, (4, 5, 3, 6), (3, 3, 3, 3)),
        (authors.conv_6d, (3, 3, 4, 3, 4, 5), (3, 3, 3, 3, 3, 3)),
        (authors.conv_6d, (2, 3, 4, 3, 4, 5), (1, 3, 3, 3, 3, 3)),
    ],
    ids=["4d", "6d", "6d, other scales"],
)
def test_appendix_b_is_the_same_convolution(baseline, sizes: tuple[int, ...], taps: tuple[int, ...]) -> None:
    x = torch.rand(2, 3, *sizes, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(2, 3, *taps, dtype=torch.float64, requires_grad=True)
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
    seconds = timing.time_together({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3)
    assert calls == ["a", "b"] * 4  # one to warm up, then in turns
    assert [len(values) for values in seconds.values()] == [3, 3]
    assert timing.summary([0.001, 0.003, 0.002])["median_ms"] == 2.0
    megabytes = timing.peak_megabytes(lambda: torch.ones(25_000_000).sum())
    assert megabytes is None or 80 < megabytes < 150  # 100 million bytes


@pytest.mark.parametrize("case", [Case((4, 3, 4, 5)), Case((3, 3, 3, 4, 3, 4), scale=3)], ids=["4d", "6d"])
def test_every_backend_is_measured(case: Case) -> None:
    report = measure_convolution(case, repeats=1, rate=1e9)
    fast = set(available_backends()) - {"reference"}
    assert set(report["largest_difference"]) == fast
    assert all(difference < 1e-5 for difference in report["largest_difference"].values())
    for direction, times in (("forward", 1), ("forward_and_backward", 3)):
        assert set(report[direction]) == fast | {"appendix-b"}
        row = report[direction]["appendix-b"]
        assert row["faster_than_appendix_b"] == 1
        seconds = row["median_ms"] / 1000
        assert row["multiply_adds_per_second"] * seconds == pytest.approx(times * case.multiply_adds, rel=0.02)
        assert row["share_of_matrix_product"] == pytest.approx(row["multiply_adds_per_second"] / 1e9, abs=1e-3)


@pytest.mark.slow
def test_folded_is_faster_than_appendix_b() -> None:
    rate = timing.matrix_product_rate()
    for case, forward in (("4d-30", 1.3), ("6d-3-15", 1.1)):
        report = measure_convolution(CASES[case], 5, rate)
        assert report["forward"]["folded"]["faster_than_appendix_b"] >= forward
        assert report["forward_and_backward"]["folded"]["faster_than_appendix_b"] >= 3
