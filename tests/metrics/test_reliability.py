"""Confidences against how often matches are correct."""

import numpy as np
import pytest

from chmnet.metrics import reliability


def test_true_probabilities_are_reliable_and_others_are_not() -> None:
    generator = np.random.default_rng(1)
    probability = generator.beta(2, 1, 20000)
    correct = generator.uniform(size=20000) < probability
    good, poor = reliability(probability, correct), reliability(probability**3, correct)
    assert good.calibration_error < 0.02
    assert poor.calibration_error > 0.1
    assert good.auroc == pytest.approx(poor.auroc)  # the order is the same
    assert good.auroc > 0.7
    assert sum(number for _, number, _, _ in good.bins) == len(correct)


def test_auroc_by_hand() -> None:
    """Three of the four pairs of a correct and a wrong match are in order, one is equal."""
    found = reliability(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    assert found.auroc == pytest.approx(3.5 / 4)


def test_auroc_against_loops() -> None:
    generator = np.random.default_rng(0)
    confidence, correct = generator.integers(0, 8, 60) / 8, generator.uniform(size=60) < 0.4
    better = [float(a > b) + 0.5 * (a == b) for a in confidence[correct] for b in confidence[~correct]]
    assert reliability(confidence, correct).auroc == pytest.approx(np.mean(better))


@pytest.mark.parametrize("value", [True, False])
def test_one_kind_of_matches_has_no_order(value: bool) -> None:
    assert reliability(np.array([0.2, 0.3]), np.array([value, value])).auroc == 0.5
