"""How far the target is turned: when turns are tried, and which wins."""

import numpy as np
import pytest
import torch

from chmnet.features import Features, Fingerprint
from chmnet.pictures import Picture, View
from chmnet.turns import FINALISTS, STRAIGHT, TURNS, find_turn, turn_evidence, turn_probability, turned, twist

NUMBERS = (0.45, -4.0, 7.0, 5.0)
CELLS = torch.eye(16).view(1, 16, 4, 4)


def features(view: View, level: torch.Tensor = CELLS) -> Features:
    return Features((level,), (4, 4), view, Fingerprint("x"))


class Eyes:
    """A network to which each turn agrees as it is told, and which notes what it was shown."""

    def __init__(self, values: dict[float, float]) -> None:
        self.values = values
        self.seen: list[tuple[float, float]] = []

    def look(self, view: View, branch: str, share: float) -> Features:
        self.seen.append((view.turn, share))
        return features(view)

    def vote(self, source: Features, target: Features) -> torch.Tensor:
        return self.values.get(target.view.turn, 0.1) * torch.eye(16).view(1, 1, 4, 4, 4, 4)


@pytest.fixture
def view() -> View:
    return View.of(Picture(np.zeros((40, 40, 3), dtype=np.uint8)))


def test_the_turn_that_agrees_best_wins(view: View) -> None:
    eyes = Eyes({0: 0.2, 90: 0.5, 120: 0.6})
    found, probability = find_turn(features(view), features(view), eyes.look, eyes.vote, NUMBERS)
    assert found.view.turn == 120
    assert probability > 0.9
    assert sorted(turn for turn, share in eyes.seen if share < 1) == sorted([0, *TURNS[1:]])  # 0: the source
    full = [turn for turn, share in eyes.seen if share == 1]
    assert len(full) == FINALISTS
    assert set(full) == {90, 120}


def test_nothing_is_tried_where_a_straight_target_agrees_well(view: View) -> None:
    eyes = Eyes({0: 0.5, 120: 0.9})
    found, probability = find_turn(features(view), features(view), eyes.look, eyes.vote, NUMBERS)
    assert (found.view.turn, probability, eyes.seen) == (0, 1.0, [])


def test_turns_are_tried_where_matches_are_not_straight(view: View) -> None:
    eyes = Eyes({0: 0.5, 270: 0.9})
    target = features(view, CELLS.rot90(1, (2, 3)))
    assert abs(twist(features(view), target)) > STRAIGHT
    found, _ = find_turn(features(view), target, eyes.look, eyes.vote, NUMBERS)
    assert found.view.turn == 270


def test_without_numbers_turns_are_tried_however_well_the_target_agrees(view: View) -> None:
    eyes = Eyes({0: 2.0, 120: 9.0})  # votes have no upper bound
    assert find_turn(features(view), features(view), eyes.look, eyes.vote, ())[0].view.turn == 120


@pytest.mark.parametrize("numbers", [NUMBERS, ()])
def test_without_a_clear_winner_nothing_is_turned(view: View, numbers: tuple[float, ...]) -> None:
    eyes = Eyes(dict.fromkeys(TURNS, 0.3))
    found, probability = find_turn(features(view), features(view), eyes.look, eyes.vote, numbers)
    assert found.view.turn == 0
    assert probability > 0.5


def test_a_source_without_its_picture_is_compared_as_it_is(view: View) -> None:
    eyes = Eyes({0: 0.2, 90: 0.6})
    source = features(View(Picture(None, (40, 40))))
    found, _ = find_turn(source, features(view), eyes.look, eyes.vote, NUMBERS)
    assert found.view.turn == 90
    assert all(turn for turn, _ in eyes.seen)


def test_a_twist_is_read_from_positions_on_things(view: View) -> None:
    level = CELLS.clone()
    level[:, :, :, 2:] = CELLS.rot90(2, (2, 3))[:, :, :, 2:]  # the right half is not where it was
    sides = [features(view), features(view, level)]
    for side in sides:
        object.__setattr__(side, "foreground", torch.tensor([[[1.0, 1.0, 0.0, 0.0]] * 4]))
    assert twist(*sides) == pytest.approx(0, abs=1e-3)


def test_without_any_match_the_twist_is_finite(view: View) -> None:
    nothing = features(view, torch.zeros(1, 16, 4, 4))
    assert -180 <= twist(nothing, nothing) < 180


def test_probabilities_are_finite_for_any_evidence() -> None:
    for values in ((0.0, 0.0), (0.0, 1e30), (1e30, 0.0)):
        evidence = turn_evidence(*values, [0.0] * 11, 3)
        assert 0 <= turn_probability(evidence, NUMBERS) <= 1


def test_the_middle_of_a_turned_picture_is_seen(view: View) -> None:
    assert turned(view, 90).area is None
    left, top, right, bottom = turned(view, 45).area or (0, 0, 0, 0)
    assert (left, top) == (40 - right, 40 - bottom)
    assert 0.6 <= (right - left) / 40 < 0.8
