"""How several sources agree on one point."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from chmnet.annotation import join_votes

SIZE = (100, 200)


def test_one_source_keeps_its_points_and_confidence() -> None:
    points = np.array([[[10.1, 20.7], [3.3, 4.4]]])
    joined, confidence = join_votes(points, np.array([[0.3, 0.0]]), SIZE)
    np.testing.assert_array_equal(joined, points[0])
    np.testing.assert_array_equal(confidence, [0.3, 0.0])


def test_a_source_counts_only_for_what_it_shows() -> None:
    points = np.array(
        [[[10.0, 20.0], [np.nan, np.nan], [np.nan, np.nan]], [[np.nan, np.nan], [5, 6], [np.nan] * 2]]
    )
    joined, confidence = join_votes(points, np.array([[0.9, 0.0, 0.0], [0.0, 0.4, 0.0]]), SIZE)
    np.testing.assert_array_equal(joined, [[10, 20], [5, 6], [np.nan, np.nan]])
    np.testing.assert_array_equal(confidence, [0.9, 0.4, 0.0])


def test_two_that_agree_overrule_a_more_confident_stranger() -> None:
    points = np.array([[[50.0, 50.0]], [[54.0, 50.0]], [[150.0, 90.0]]])
    joined, confidence = join_votes(points, np.array([[0.7], [0.7], [0.9]]), SIZE)
    np.testing.assert_allclose(joined, [[52, 50]], atol=0.01)
    assert 0.3 < confidence[0] < 0.7


def test_two_strangers_leave_the_more_confident_one_with_less_confidence() -> None:
    points = np.array([[[50.0, 50.0]], [[150.0, 90.0]]])
    joined, confidence = join_votes(points, np.array([[0.9], [0.6]]), SIZE)
    np.testing.assert_allclose(joined, [[50, 50]], atol=0.01)
    assert confidence[0] < 0.6


def test_no_confidence_at_all_still_finds_a_place() -> None:
    joined, confidence = join_votes(np.array([[[50.0, 50.0]], [[52.0, 50.0]]]), np.zeros((2, 1)), SIZE)
    np.testing.assert_allclose(joined, [[51, 50]], atol=0.01)
    assert confidence[0] < 1e-5


@settings(max_examples=50, deadline=None)
@given(
    arrays(np.float64, (5, 2, 2), elements=st.floats(0, 100)), arrays(np.float64, (5, 2), elements=st.floats(0, 1))
)
def test_between_the_votes_and_in_any_order(points: np.ndarray, confidence: np.ndarray) -> None:
    joined, sure = join_votes(points, confidence, SIZE)
    assert (joined >= points.min(axis=0) - 1e-9).all()
    assert (joined <= points.max(axis=0) + 1e-9).all()
    assert (sure >= 0).all()
    assert (sure <= confidence.max(axis=0) + 1e-5).all()
    agreed, certain = join_votes(np.repeat(points[:1], 5, axis=0), confidence, SIZE)
    np.testing.assert_allclose(agreed, points[0], atol=1e-9)
    assert (certain <= 1 + 1e-9).all()
