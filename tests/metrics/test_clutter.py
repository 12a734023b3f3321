"""Precision and recall of matches against clutter."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from chmnet.errors import InputError
from chmnet.metrics import Clutter, clutter_curve, inside

# ---------------------------------------------------------------- clutter: inside


def test_inside_a_box() -> None:
    """Edges included."""
    points = np.array([[10.0, 20.0], [30.0, 40.0], [9.999, 30.0], [20.0, 40.001], [20.0, 30.0], [math.nan, 30.0]])
    assert inside(points, (10.0, 20.0, 30.0, 40.0)).tolist() == [True, True, False, False, True, False]


def test_inside_a_mask() -> None:
    """Three columns, two rows; only the pixels (x, y) = (2, 0) and (0, 1) are of the object."""
    mask = np.array([[False, False, True], [True, False, False]])
    cases = {
        (2.0, 0.0): True,
        (1.99, 0.0): False,  # in pixel (1, 0)
        (2.5, 0.99): True,
        (2.0, 1.0): False,  # in pixel (2, 1)
        (0.0, 1.0): True,
        (-0.01, 1.2): False,
        (3.0, 0.0): True,  # x = width, where the last point of a grid lies
        (3.01, 0.0): False,
        (0.0, 2.0): True,  # y = height
        (0.0, 2.01): False,
        (2.0, -0.6): False,
        (-300.0, 1.0): False,
        (math.nan, 1.0): False,
        (math.inf, 0.0): False,
    }
    assert inside(np.array(list(cases)), mask).tolist() == list(cases.values())


def test_inside_without_points() -> None:
    assert inside(np.zeros((0, 2)), np.ones((2, 2), dtype=bool)).shape == (0,)


def test_mask_of_a_box_and_the_box_agree() -> None:
    mask = np.zeros((20, 30), dtype=bool)
    mask[5:11, 7:21] = True
    y, x = np.mgrid[:20, :30]
    points = np.stack([x.ravel(), y.ravel()], axis=-1).astype(np.float64)
    assert inside(points, mask).tolist() == inside(points, (7.0, 5.0, 20.0, 10.0)).tolist()


# ---------------------------------------------------------------- clutter: the curve


def curve_of(positives: Sequence[int], scores: Sequence[float]) -> Clutter:
    marks = np.array(positives, dtype=bool)
    return clutter_curve(marks, marks, np.array(scores, dtype=np.float64))


def test_clutter_curve_by_hand() -> None:
    """Ranked: inside, outside, inside, outside; two inside in all."""
    found = curve_of([0, 1, 0, 1], [0.3, 0.5, 0.8, 0.9])
    assert_allclose(found.precision, [1, 1 / 2, 2 / 3, 2 / 4])
    assert_allclose(found.recall, [1 / 2, 1 / 2, 1, 1])
    assert found.area == pytest.approx(1 / 2 * 1 + 1 / 2 * 2 / 3)


def test_both_ends_count() -> None:
    both = np.array([True, True, False, False]), np.array([True, False, True, False])
    found = clutter_curve(*both, np.array([4.0, 3.0, 2.0, 1.0]))
    assert_allclose(found.precision, [1, 1 / 2, 1 / 3, 1 / 4])
    assert_allclose(found.recall, [1, 1, 1, 1])
    exchanged = clutter_curve(*both[::-1], np.array([4.0, 3.0, 2.0, 1.0]))
    assert_allclose(exchanged.precision, found.precision)


def test_ties_enter_together() -> None:
    """0.9: one inside; 0.5: one of two inside; 0.1: one of one."""
    expected = [1, 2 / 3, 3 / 4], [1 / 3, 2 / 3, 1], (1 + 2 / 3 + 3 / 4) / 3
    for order in itertools.permutations(range(4)):
        positives, scores = np.array([1, 1, 0, 1])[list(order)], np.array([0.9, 0.5, 0.5, 0.1])[list(order)]
        found = curve_of(positives.tolist(), scores.tolist())
        assert_allclose(found.precision, expected[0])
        assert_allclose(found.recall, expected[1])
        assert found.area == pytest.approx(expected[2])


def test_equal_scores_give_the_share_inside() -> None:
    found = curve_of([1, 0, 0, 1, 0], [0.5] * 5)
    assert_allclose([*found.precision, *found.recall, found.area], [0.4, 1, 0.4])


def test_none_inside() -> None:
    found = curve_of([0, 0, 0], [3, 2, 2])
    assert found.precision.tolist() == found.recall.tolist() == [0, 0]
    assert found.area == 0


def test_all_inside() -> None:
    found = curve_of([1, 1, 1], [3, 1, 2])
    assert_allclose([*found.precision, *found.recall, found.area], [1, 1, 1, 1 / 3, 2 / 3, 1, 1])


@given(st.integers(1, 40), st.integers(0, 40))
def test_perfect_ranking_gives_area_one(positives: int, negatives: int) -> None:
    scores = -np.arange(positives + negatives, dtype=np.float64)
    found = curve_of([1] * positives + [0] * negatives, scores.tolist())
    assert found.area == pytest.approx(1)
    if negatives:
        worst = curve_of([1] * positives + [0] * negatives, (-scores).tolist())
        assert worst.area < 1


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=30), st.randoms())
def test_clutter_curve_against_loops(matches: list[tuple[bool, int]], random: Any) -> None:
    found = curve_of([mark for mark, _ in matches], [level for _, level in matches])
    total = sum(mark for mark, _ in matches)
    precision, recall = [], []
    for level in sorted({level for _, level in matches}, reverse=True):
        kept = [mark for mark, other in matches if other >= level]
        precision.append(sum(kept) / len(kept))
        recall.append(sum(kept) / total if total else 0)
    area = sum(
        (now - before) * height for before, now, height in zip([0, *recall], recall, precision, strict=False)
    )
    assert_allclose(found.precision, precision)
    assert_allclose(found.recall, recall)
    assert found.area == pytest.approx(area)
    assert 0 <= found.area <= 1 + 1e-9
    # Neither the order of the matches nor the scale of the scores matters.
    random.shuffle(matches)
    again = curve_of([mark for mark, _ in matches], [math.exp(level) - 9 for _, level in matches])
    assert_allclose(again.precision, found.precision)
    assert again.area == found.area


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((3, 3, 2), r"must have one length, got \(3, 3, 2\)"),
        ((2, 3, 3), r"must have one length, got \(2, 3, 3\)"),
        ((0, 0, 0), "there are no candidate matches"),
    ],
)
def test_wrong_numbers_of_matches(lengths: tuple[int, int, int], message: str) -> None:
    source, target, scores = lengths
    with pytest.raises(InputError, match=message):
        clutter_curve(np.ones(source, dtype=bool), np.ones(target, dtype=bool), np.ones(scores))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_no_numbers(value: float) -> None:
    with pytest.raises(InputError, match="scores must be finite numbers"):
        curve_of([1, 0], [0.5, value])
