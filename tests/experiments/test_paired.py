"""The bootstrap: right about differences that are there, and rarely sure of ones that are not."""

import numpy as np
import pytest

from chmnet.experiments.paired import compare, compare_all, verdict


def runs_of(mean: float, number: int, generator: np.random.Generator, difficulty: np.ndarray) -> np.ndarray:
    """PCK of several runs: pairs of different difficulty, runs that differ, and noise."""
    of_runs = generator.normal(0, 2, size=(number, 1))
    return mean + difficulty + of_runs + generator.normal(0, 10, size=(number, len(difficulty)))


def test_a_clear_difference_is_decided() -> None:
    generator = np.random.default_rng(1)
    difficulty = generator.normal(0, 25, size=200)
    first, second = (runs_of(mean, 5, generator, difficulty) for mean in (60.0, 50.0))
    found = compare(first, second)
    assert found["difference"] == pytest.approx(second.mean() - first.mean(), abs=1e-3)
    assert found["low"] < found["difference"] < found["high"] < 0
    assert found["p"] < 0.001
    assert "undecided" not in verdict(found)


def test_pairs_are_paired() -> None:
    """Pairs differ by far more than the models do: only together do they show the difference."""
    generator = np.random.default_rng(2)
    difficulty = generator.normal(0, 30, size=100)
    first = difficulty[None] + 50
    paired = compare(first, first + 2)
    shuffled = compare(first, generator.permuted(first, axis=1) + 2)
    assert (paired["low"], paired["high"]) == pytest.approx((2, 2), abs=1e-3)
    assert paired["p"] == 0
    assert shuffled["high"] - shuffled["low"] > 5
    assert shuffled["p"] > 0.05


def test_the_spread_of_runs_counts() -> None:
    """Two runs of 40 and 60 against two of 50 and 70: with runs so far apart, nothing is decided.

    The ends of a draw, two equal runs, lie 10 · √2 from the mean, in both models at once.
    """
    first, second = np.array([[40.0], [60.0]]).repeat(50, 1), np.array([[50.0], [70.0]]).repeat(50, 1)
    found = compare(first, second)
    assert found["difference"] == 10.0
    assert (found["low"], found["high"]) == pytest.approx((10 - 20 * 2**0.5, 10 + 20 * 2**0.5), abs=1e-3)
    assert found["p"] > 0.05


def test_chance_is_rarely_called_a_finding() -> None:
    """Of 60 comparisons of equals with five runs each, some three are called decided."""
    generator = np.random.default_rng(3)
    decided = 0
    for _ in range(60):
        difficulty = generator.normal(0, 25, size=150)
        first, second = (runs_of(50.0, 5, generator, difficulty) for _ in range(2))
        decided += compare(first, second)["p"] < 0.05
    assert decided <= 7


def test_equal_models_are_undecided() -> None:
    scores = np.array([[0.0, 50.0, 100.0], [20.0, 50.0, 80.0]])
    assert compare(scores[:1], scores[:1]) == {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}
    assert compare(scores, scores)["p"] > 0.5


def test_the_draws_are_the_same_every_time() -> None:
    scores = np.random.default_rng(4).uniform(0, 100, size=(2, 3, 40))
    assert compare(*scores) == compare(*scores)
    assert compare(*scores) != compare(*scores, seed=1)


def test_every_benchmark_and_alpha_is_compared() -> None:
    low, high = np.full((2, 4), 10.0), np.full((3, 4), 30.0)
    scores = {"a": {"x": {"0.05": low, "0.1": high}}, "b": {"x": {"0.05": high, "0.1": low}}}
    (found,) = compare_all(scores, [("a", "b")])
    assert (found["first"], found["second"]) == ("a", "b")
    assert {alpha: one["difference"] for alpha, one in found["pck"]["x"].items()} == {"0.05": 20.0, "0.1": -20.0}
