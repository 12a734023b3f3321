"""One example for each picture, with those that agree; left and right exchanged by name."""

import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from chmnet.annotation.choice import (
    AGREEMENT,
    BANDWIDTH,
    QUALITY_SCALE,
    WITHOUT_COUNTERPART,
    Guess,
    agreement,
    agrees,
    choose,
    deformation,
    exchange_sides,
    make_guess,
    match_quality,
)
from chmnet.annotation.joining import ScoreMaps, join_maps, score_maps
from chmnet.annotation.records import UPRIGHT, Pose
from chmnet.config import CalibrationConfig, TransferConfig
from chmnet.data.pairs import mirrored_rows
from chmnet.pictures import View
from chmnet.poses import mirrored
from chmnet.result import MatchResult

CORNERS = np.array([[10.0, 10.0], [60.0, 10.0], [60.0, 40.0], [10.0, 40.0]])
NAN = np.full(2, np.nan)


VIEW = View.of(np.zeros((100, 100, 3), dtype=np.uint8))
SHARP = TransferConfig(temperature=0.001)


def guess(points: np.ndarray, quality: float, confidence: float = 0.8, pose: Pose = UPRIGHT) -> Guess:
    return Guess(points, np.where(np.isnan(points).any(axis=1), 0.0, confidence), quality, pose)


def scored(one: Guess, score: float = 0.5, view: View = VIEW) -> Guess:
    """The guess with maps that have this score at the grid position nearest to each keypoint."""
    maps = torch.zeros(len(one.points), 51, 51)
    cells = ((view.from_picture(np.nan_to_num(one.points)) + 1) * 25).round().astype(int)
    maps[np.arange(len(cells)), cells[:, 1], cells[:, 0]] = score
    return one._replace(maps=ScoreMaps(maps, view, SHARP))


def test_hidden_keypoints_are_those_of_the_best_example() -> None:
    hidden = np.array([0.1, 0.2, 0.9, 0.3])
    best = guess(CORNERS, 1.0)._replace(unmatched=hidden)
    found = choose("cat", [[guess(CORNERS, 0.5)._replace(unmatched=1 - hidden)], [best]])
    np.testing.assert_array_equal(found.unmatched, hidden)
    assert choose("cat", [[guess(CORNERS, 1.0)]]).unmatched is None


def test_what_the_best_does_not_show_is_hidden_as_far_as_the_one_says_that_shows_it() -> None:
    best = guess(np.array([*CORNERS[:2], NAN, NAN]), 1.0)
    other = guess(np.array([*CORNERS[:3], NAN]), 0.5)
    best = best._replace(unmatched=np.array([0.1, 0.2, 1, 1]), foreground=np.array([0.9, 0.8, 0, 0]))
    other = other._replace(unmatched=np.array([0.5, 0.5, 0.4, 1]), foreground=np.array([0.5, 0.5, 0.6, 0]))
    found = choose("cat", [[other], [best]])
    assert found.sources == (1, 0)
    np.testing.assert_array_equal(found.unmatched, [0.1, 0.2, 0.4, 1])  # nobody shows the last one
    np.testing.assert_array_equal(found.foreground, [0.9, 0.8, 0.6, 0])
    assert choose("cat", [[other._replace(unmatched=None)], [best]]).unmatched is None


def test_best_example_is_taken_whole_where_others_contradict_it() -> None:
    pose = Pose(True, 0.0, 0.9)
    best, other = guess(CORNERS, 1.0, pose=pose), guess(CORNERS[::-1], 0.9, confidence=0.99)
    found = choose("cat", [[other], [best]])
    np.testing.assert_array_equal(found.points, best.points)
    np.testing.assert_array_equal(found.confidence, best.confidence)
    assert (found.category, found.sources, found.pose) == ("cat", (1,), pose)


def test_scores_of_agreeing_examples_are_added_and_read_once() -> None:
    far = CORNERS + np.array([[40, 0], [0, 0], [0, 0], [0, 0]])
    first, second = scored(guess(CORNERS, 1.0, 0.8)), guess(far, 0.0, 0.6)
    even = np.exp(1 / QUALITY_SCALE)
    for score, place, confidence in ((0.45 * even, CORNERS[0], 0.8), (0.55 * even, far[0], 0.6)):
        found = choose("cat", [[scored(second, score)], [first]])
        assert found.sources == (1, 0)
        np.testing.assert_allclose(found.points, [place, *CORNERS[1:]], atol=1.5)
        assert found.confidence[0] == pytest.approx(confidence, abs=0.02)
    both = choose("cat", [[guess(CORNERS, 1.0)], [second]])  # nobody knows the scores
    np.testing.assert_array_equal(both.points, CORNERS)


def test_keypoints_say_what_the_example_knows_that_found_their_place() -> None:
    far = CORNERS + np.array([[40, 0], [0, 0], [0, 0], [0, 0]])
    first = scored(guess(CORNERS, 1.0))._replace(foreground=np.full(4, 0.9), unmatched=np.full(4, 0.1))
    second = scored(guess(far, 0.0), 2.0)._replace(foreground=np.full(4, 0.7), unmatched=np.full(4, 0.3))
    found = choose("cat", [[first], [second]])
    assert found.foreground is not None
    assert found.unmatched is not None
    assert (found.foreground[0], found.unmatched[0]) == (0.7, 0.3)


def test_confidence_falls_with_the_distance_from_what_was_found_alone() -> None:
    middle = CORNERS + np.array([[10, 0], [0, 0], [0, 0], [0, 0]])
    maps = scored(guess(middle, 0.0)).maps
    ones = [guess(CORNERS + shift, quality)._replace(maps=maps) for shift, quality in ((0, 1.0), ([15, 0], 0.0))]
    found = choose("cat", [[one] for one in ones])
    unit = BANDWIDTH * 50  # 5 pixels from the place of the second, 10 from that of the first
    assert found.confidence[0] == pytest.approx(0.8 * np.exp(-((5 / unit) ** 2) / 2), abs=0.03)


def test_maps_of_other_views_of_the_target_are_joined_where_they_lie() -> None:
    part = replace(VIEW, area=(0, 0, 70, 70))
    best = scored(guess(CORNERS, 1.0))
    for view in (mirrored(VIEW), part):
        other = scored(guess(CORNERS, 0.5), 9.0, view)
        np.testing.assert_allclose(choose("cat", [[best], [other]]).points, CORNERS, atol=1.5)
    # what the best sees of the target outside of the other's view has no score there
    maps = [scored(guess(CORNERS + 35, 0)).maps, scored(guess(CORNERS, 0.0), 0.1, part).maps]
    assert maps[0] is not None
    assert maps[1] is not None
    found = join_maps([maps[0], maps[1]], np.ones((2, 4)), np.array([True, True, False, True]))
    np.testing.assert_allclose(found[[0, 1, 3]], CORNERS[[0, 1, 3]] + 35, atol=1.5)
    assert np.isnan(found[2]).all()


def test_what_a_view_does_not_show_has_its_lowest_score_there() -> None:
    config = TransferConfig(temperature=0.001, gaussian_sigma=0)
    seen = [scored(guess(CORNERS, 1.0), 0.3, view).maps for view in (VIEW, replace(VIEW, area=(0, 0, 70, 70)))]
    maps = [one._replace(scores=one.scores - 1, config=config) for one in seen if one is not None]
    found = join_maps(maps, np.ones((2, 4)), np.ones(4, dtype=bool))
    np.testing.assert_allclose(found, CORNERS, atol=1.5)


def test_maps_alone_are_read_where_the_result_puts_the_points() -> None:
    scores = torch.rand(1, 1, 6, 7, 8, 9, generator=torch.Generator().manual_seed(0))
    view = mirrored(View.of(np.zeros((40, 60), dtype=np.uint8)))
    result = MatchResult(scores, VIEW, view, TransferConfig(temperature=0.001, sampler="nearest"))
    points = np.array([[20.0, 20.0], [70.0, 40.0]])
    maps = score_maps(result, points)
    assert maps.scores.shape == (2, 8, 9)
    found = join_maps([maps], np.ones((1, 2)), np.array([True, True]))
    np.testing.assert_allclose(found, result.locate(points), atol=0.05)


def test_what_the_best_does_not_show_comes_from_those_that_agree_only() -> None:
    best = np.array([*CORNERS[:3], NAN, NAN])
    agreeing = np.array([*CORNERS[:3] + 1, NAN, (80.0, 80.0)])
    contradicting = np.array([*CORNERS[:3] + 60, (5.0, 5.0), (9.0, 9.0)])
    found = choose("cat", [[guess(best, 1.0)], [guess(contradicting, 0.9)], [guess(agreeing, 0.2)]])
    assert found.sources == (0, 2)
    assert np.isnan(found.points).any(axis=1).tolist() == [False, False, False, True, False]
    np.testing.assert_array_equal(found.points[4], (80, 80))
    assert found.confidence[3] == 0


@pytest.mark.parametrize(
    ("confidence", "shift", "sources"), [(0.75, 0, (0, 1)), (0.6, 0, (0,)), (0.75, 95, (0,)), (0.75, 15, (0, 1))]
)
def test_examples_without_a_common_keypoint_are_joined_where_both_are_confident_and_near(
    confidence: float, shift: float, sources: tuple[int, ...]
) -> None:
    first = guess(np.array([*CORNERS[:2], NAN]), 1.0)
    second = guess(np.array([NAN, NAN, CORNERS[2] + shift]), 0.5, confidence)
    assert np.isnan(agreement(first, second))
    assert agrees(first, second) == agrees(second, first) == (sources == (0, 1))
    found = choose("cat", [[first], [second]])
    assert found.sources == sources
    assert np.isnan(found.points[2]).all() == (sources == (0,))


def test_examples_without_a_common_keypoint_keep_their_places_where_scores_are_known() -> None:
    first = scored(guess(np.array([*CORNERS[:2], NAN]), 1.0))
    second = scored(guess(np.array([NAN, NAN, CORNERS[2]]), 0.5))
    found = choose("cat", [[first], [second]])
    assert found.sources == (0, 1)
    np.testing.assert_array_equal(found.points, CORNERS[:3])
    np.testing.assert_allclose(found.confidence, 0.8)


def test_example_that_shows_nothing_agrees_with_none() -> None:
    assert not agrees(guess(CORNERS, 1.0), guess(np.full((4, 2), np.nan), 0.5))


places = arrays(np.float64, (4, 2), elements=st.floats(0, 100))
sure = arrays(np.float64, 4, elements=st.floats(0, 1))


@given(st.lists(st.tuples(places, sure, st.floats(-5, 5)), min_size=1, max_size=4))
def test_places_stay_among_those_of_agreeing_examples(drawn: list[tuple[np.ndarray, np.ndarray, float]]) -> None:
    guesses = [Guess(*each) for each in drawn]
    found = choose("cat", [[each] for each in guesses])
    best = max(guesses, key=lambda each: each.quality)
    assert guesses[found.sources[0]].quality == best.quality
    assert all(agreement(guesses[found.sources[0]], guesses[each]) >= AGREEMENT for each in found.sources[1:])
    used = np.stack([guesses[each].points for each in found.sources])
    assert (found.points >= used.min(axis=0) - 1e-9).all()
    assert (found.points <= used.max(axis=0) + 1e-9).all()
    assert ((found.confidence >= 0) & (found.confidence <= 1 + 1e-9)).all()


def test_each_example_counts_in_its_best_pose() -> None:
    best, wrong, right = guess(CORNERS, 1.0), guess(CORNERS[::-1], 0.5), guess(CORNERS + 1, 0.9)
    found = choose("cat", [[wrong, right], [guess(CORNERS[[2, 3, 0, 1]], 0.2), best]])
    assert found.sources == (1, 0)
    assert (np.abs(found.points - CORNERS) < 1).all()
    assert choose("cat", [[wrong, right._replace(quality=0.1)], [best]]).sources == (1,)


def test_of_examples_that_are_made_one_by_one_one_pose_is_kept() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def make(quality: float) -> Guess:
        nonlocal most
        made = scored(guess(CORNERS, quality))
        assert made.maps is not None
        alive[:] = [one for one in alive if one() is not None] + [weakref.ref(made.maps.scores)]
        most = max(most, len(alive))
        return made

    found = choose("cat", ([make(0.1), make(1.0)] for _ in range(10)))
    assert len(found.sources) == 10
    assert most <= 12  # one of each, and the two poses of the one before


def test_agreement_of_equal_and_of_far_guesses() -> None:
    assert agreement(guess(CORNERS, 1.0), guess(CORNERS, 0.0)) == pytest.approx(1)
    assert agreement(guess(CORNERS, 1.0), guess(CORNERS + 500, 0.0)) < 1e-9


# ---------------------------------------------------------------- how well an example matches


def test_deformation_of_similar_and_of_other_shapes() -> None:
    angle = np.radians(30)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    even, target = np.ones(4), 3 * CORNERS @ turn.T + 7
    assert deformation(CORNERS, target, even) == pytest.approx(0, abs=1e-9)
    reflected = target * (-1, 1)
    assert deformation(CORNERS, reflected, even) > 0.5
    assert deformation(CORNERS, reflected, even, Pose(True)) == pytest.approx(0, abs=1e-9)
    assert deformation(CORNERS, np.ones((4, 2)), even) == 1  # all in one place
    assert deformation(CORNERS[:2], target[:2], even[:2]) == 0.5  # nothing can be said


def test_quality_grows_with_confidence_and_falls_with_deformation() -> None:
    crooked = CORNERS + np.array([[0, 0], [9, 9], [0, 0], [-9, 4]])
    plain = match_quality(CORNERS, CORNERS, np.full(4, 0.6), 0.5)
    assert match_quality(CORNERS, CORNERS, np.full(4, 0.9), 0.5) > plain
    assert match_quality(CORNERS, CORNERS, np.full(4, 0.6), 0.7) > plain
    assert match_quality(CORNERS, CORNERS, np.full(4, 0.6), 0.5, Pose(probability=0.1)) < plain
    assert match_quality(CORNERS, crooked, np.full(4, 0.6), 0.5) < plain
    assert np.isfinite(match_quality(CORNERS, CORNERS, np.array([0.0, 1.0, 0.0, 1.0]), 0.0))


# ---------------------------------------------------------------- left and right


def test_sides_are_exchanged_by_name() -> None:
    points, trust = np.arange(12.0).reshape(6, 2), np.linspace(0.5, 1, 6)
    names = ["left_eye", "right_eye", "nose", "L_Ear", "R_Ear", "left horn"]
    moved, confidence = exchange_sides(points, trust, mirrored_rows(names))
    np.testing.assert_array_equal(moved, points[[1, 0, 2, 4, 3, 5]])
    np.testing.assert_array_equal(confidence[:5], trust[[1, 0, 2, 4, 3]])
    assert confidence[5] == trust[5] * WITHOUT_COUNTERPART
    again, _ = exchange_sides(moved, confidence, mirrored_rows(names))
    np.testing.assert_array_equal(again, points)


def test_two_names_for_one_part_lose_no_place() -> None:
    moved, _ = exchange_sides(
        np.arange(6.0).reshape(3, 2), np.ones(3), mirrored_rows(["left eye", "right_eye", "Left_Eye"])
    )
    assert not np.isnan(moved).any()
    np.testing.assert_array_equal(moved[2], (4, 5))


def test_guess_of_a_mirrored_target_has_its_sides_exchanged() -> None:
    scores = 50 * torch.eye(16).view(1, 1, 4, 4, 4, 4)
    view = View.of(np.zeros((40, 60, 3), dtype=np.uint8))
    upright = MatchResult(scores, view, view, TransferConfig(), pose_probability=0.8)
    result = replace(upright, target=mirrored(view))  # as if the picture were its own mirror image
    points = np.array([[15.0, 12.0], [45.0, 12.0], NAN])
    sides = [1, 0, 2]
    found = make_guess(result, points, sides)
    assert found.pose == Pose(True, 0.0, 0.8)
    np.testing.assert_allclose(found.points[:2], points[:2], atol=0.5)  # mirrored, and under the other name
    assert np.isnan(found.points[2]).all()
    np.testing.assert_allclose(make_guess(result, points, []).points[:2], points[[1, 0]], atol=0.5)
    straight = make_guess(upright, points, sides)
    np.testing.assert_allclose(straight.points[:2], points[:2], atol=0.5)
    assert straight.pose == Pose(False, 0.0, 0.8)
    assert straight.quality == pytest.approx(found.quality)
    assert found.unmatched is None
    background = torch.tensor([[1.0, 1.0, 0.0, 0.0]]).expand(1, 4, 4)  # the thing is on the left
    numbers = CalibrationConfig(unmatched=(2.0, *(3.0 * (kind == 6) for kind in range(13))))
    known = {
        "likeness": torch.eye(16).view(1, 4, 4, 4, 4),
        "foreground": (background, None),
        "calibration": numbers,
    }
    left, right, nose = make_guess(replace(result, **known), points, sides).unmatched
    assert (left, right, nose) == pytest.approx((1 / (1 + np.exp(-1)), 1 / (1 + np.exp(2)), 1), abs=0.05)


def test_guess_says_which_places_lie_on_the_background() -> None:
    view = View.of(np.zeros((40, 60, 3), dtype=np.uint8))
    thing = torch.tensor([[1.0, 1.0, 0.0, 0.0]]).expand(1, 4, 4)  # on the left of what is seen
    result = MatchResult(50 * torch.eye(16).view(1, 1, 4, 4, 4, 4), view, view, TransferConfig())
    points = np.array([[5.0, 12.0], [55.0, 12.0], NAN])
    assert make_guess(result, points, []).foreground is None
    upright = make_guess(replace(result, foreground=(None, thing)), points, [1, 0, 2])
    assert upright.foreground == pytest.approx((1, 0, 0), abs=0.05)
    mirror = make_guess(replace(result, target=mirrored(view), foreground=(None, thing)), points, [1, 0, 2])
    assert mirror.foreground == pytest.approx((0, 1, 0), abs=0.05)  # the left point is now the right one
