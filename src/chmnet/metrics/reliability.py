"""How well confidences agree with how often matches are correct."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

BINS = 10


@dataclass(frozen=True)
class Reliability:
    """Confidences compared with how often their matches are correct."""

    bins: tuple[tuple[float, int, float, float], ...]
    """For each tenth of confidence that occurs: its lower end, how many matches, their mean confidence, and the
    share of them that is correct."""
    calibration_error: float
    """Expected calibration error: the mean over matches of |confidence − share correct| of their bin."""
    auroc: float
    """Area under the ROC curve: the chance that a correct match has a higher confidence than a wrong one. Equal
    confidences count half; 0.5 where all matches are correct, or all are wrong."""
    correct: float
    """Share of all matches that is correct."""


def reliability(confidence: Float64[np.ndarray, " n"], correct: Bool[np.ndarray, " n"]) -> Reliability:
    """Compare confidences, 0 … 1, with whether their matches are correct.

    Example:
        >>> found = reliability(np.array([0.9, 0.9, 0.2, 0.2]), np.array([True, True, False, True]))
        >>> found.bins
        ((0.2, 2, 0.2, 0.5), (0.9, 2, 0.9, 1.0))
        >>> round(found.calibration_error, 3), round(found.auroc, 3), found.correct
        (0.2, 0.833, 0.75)
    """
    numbers = np.clip((confidence * BINS + 1e-9).astype(int), 0, BINS - 1)
    bins, error = [], 0.0
    for number in np.unique(numbers):
        here = numbers == number
        mean, share = float(confidence[here].mean()), float(correct[here].mean())
        bins.append((int(number) / BINS, int(here.sum()), mean, share))
        error += abs(mean - share) * here.mean()
    return Reliability(tuple(bins), float(error), _auroc(confidence, correct), float(correct.mean()))


def _auroc(confidence: np.ndarray, correct: np.ndarray) -> float:
    """The Mann-Whitney statistic as a share of its largest value."""
    from scipy.stats import rankdata  # takes a second to import, and few need it

    positive, negative = int(correct.sum()), int((~correct).sum())
    if not positive or not negative:
        return 0.5
    rank_sum = rankdata(confidence)[correct].sum()
    return float((rank_sum - positive * (positive + 1) / 2) / (positive * negative))
