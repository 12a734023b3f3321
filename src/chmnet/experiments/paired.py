"""Whether two models differ: a bootstrap over test pairs and runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

DRAWS = 10_000
LEVEL = 0.05
"""A difference with a smaller probability of chance is decided."""

Scores = Float[np.ndarray, "_ pairs"]
"""PCK of each test pair, a row for each training run."""


def compare(first: Scores, second: Scores, seed: int = 0) -> dict[str, float]:
    """The difference of the mean PCK of two models, second minus first, and how sure it is.

    Test pairs are drawn with replacement, the same for both; so are the runs of each model, independently, their
    spread corrected for their small number. With one run the spread is not known: the result holds for that run.

    Args:
        first: of one model.
        second: of the other, on the same pairs.
        seed: of the draws.

    Returns:
        ``difference``; ``low`` and ``high``, its 95 % interval; ``p``, two-sided: the probability that a
        difference as clear as this is chance.

    Example:
        >>> compare(np.array([[0.0, 50.0, 100.0]]), np.array([[10.0, 60.0, 100.0]]))["difference"]
        6.667
    """
    generator = np.random.default_rng(seed)
    pairs = _draws(generator, first.shape[1])
    drawn = [(_draw_runs(generator, len(scores)) * (pairs @ scores.T)).sum(axis=1) for scores in (first, second)]
    differences = drawn[1] - drawn[0]
    low, high = np.quantile(differences, [LEVEL / 2, 1 - LEVEL / 2])
    tail = min((differences <= 0).mean(), (differences >= 0).mean())
    difference = second.mean() - first.mean()
    found = {"difference": difference, "low": low, "high": high, "p": min(1.0, 2 * tail)}
    return {name: round(float(value), 4 if name == "p" else 3) for name, value in found.items()}


def _draws(generator: np.random.Generator, number: int) -> Float[np.ndarray, "draws number"]:
    """The share that each of so many things has in each draw."""
    return generator.multinomial(number, np.full(number, 1 / number), size=DRAWS) / number


def _draw_runs(generator: np.random.Generator, number: int) -> Float[np.ndarray, "draws number"]:
    """Shares of runs; further from equal than drawn, as a sample's deviation is larger than its own spread."""
    if number == 1:
        return np.ones((DRAWS, 1))
    return 1 / number + (_draws(generator, number) - 1 / number) * np.sqrt(number / (number - 1))


def verdict(found: dict[str, float]) -> str:
    """A difference with its interval, and whether it is decided.

    Example:
        >>> verdict({"difference": -2.04, "low": -3.0, "high": -1.1, "p": 0.002})
        '-2.0 (-3.0 … -1.1)'
        >>> verdict({"difference": 0.4, "low": -0.3, "high": 1.1, "p": 0.31})
        '+0.4 (-0.3 … +1.1), undecided'
    """
    text = f"{found['difference']:+.1f} ({found['low']:+.1f} … {found['high']:+.1f})"
    return text if found["p"] < LEVEL else f"{text}, undecided"


def compare_all(
    scores: dict[str, dict[str, dict[str, Scores]]], comparisons: Sequence[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Several comparisons on every benchmark and α.

    Args:
        scores: by model, benchmark and α.
        comparisons: the first and the second model of each.
    """
    return [
        {
            "first": first,
            "second": second,
            "pck": {
                name: {alpha: compare(values, scores[second][name][alpha]) for alpha, values in alphas.items()}
                for name, alphas in scores[first].items()
            },
        }
        for first, second in comparisons
    ]
