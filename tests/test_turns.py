"""How far the target is turned: when turns are tried, and which wins."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from chmnet.features import Features, Fingerprint
from chmnet.pictures import Picture, View
from chmnet.turns import (
    FINALISTS,
    STRAIGHT,
    TURNS,
    find_turn,
    seen_area,
    turn_evidence,
    turn_probability,
    turned,
    turned_views,
    twist,
)

NUMBERS = (0.45, -4.0, 7.0, 5.0)
CELLS = torch.eye(16).view(1, 16, 4, 4)


def features(view: View, level: torch.Tensor = CELLS) -> Features:
    return Features((level,), (4, 4), view, Fingerprint("x"))


class Eyes:
    """A network to which each turn agrees as it is told, and which notes what it was shown."""

    def __init__(self, values: dict[float, float]) -> None:
        self.values = values
        self.seen: list[tuple[float, float]] = []

    def looks(self, views: Sequence[View], branch: str, share: float) -> list[Features]:
        self.seen += [(view.turn, share) for view in views]
        return [features(view) for view in views]

    def vote(self, source: Features, target: Features) -> torch.Tensor:
        return self.values.get(target.view.turn, 0.1) * torch.eye(16).view(1, 1, 4, 4, 4, 4)


@pytest.fixture
def view() -> View:
    return View.of(Picture(np.zeros((40, 40, 3), dtype=np.uint8)))


def test_the_turn_that_agrees_best_wins(view: View) -> None:
    eyes = Eyes({0: 0.2, 90: 0.5, 120: 0.6})
    found, probability = find_turn(features(view), features(view), eyes.looks, eyes.vote, NUMBERS)
    assert found.view.turn == 120
    assert probability > 0.9
    assert sorted(turn for turn, share in eyes.seen if share < 1) == sorted([0, *TURNS[1:]])  # 0: the source
    full = [turn for turn, share in eyes.seen if share == 1]
    assert len(full) == FINALISTS
    assert set(full) == {90, 120}


def test_nothing_is_tried_where_a_straight_target_agrees_well(view: View) -> None:
    eyes = Eyes({0: 0.5, 120: 0.9})
    found, probability = find_turn(features(view), features(view), eyes.looks, eyes.vote, NUMBERS)
    assert (found.view.turn, probability, eyes.seen) == (0, 1.0, [])


def test_turns_are_tried_where_matches_are_not_straight(view: View) -> None:
    eyes = Eyes({0: 0.5, 270: 0.9})
    target = features(view, CELLS.rot90(1, (2, 3)))
    assert abs(twist(features(view), target)) > STRAIGHT
    found, _ = find_turn(features(view), target, eyes.looks, eyes.vote, NUMBERS)
    assert found.view.turn == 270


def test_without_numbers_turns_are_tried_however_well_the_target_agrees(view: View) -> None:
    eyes = Eyes({0: 2.0, 120: 9.0})  # votes have no upper bound
    assert find_turn(features(view), features(view), eyes.looks, eyes.vote, ())[0].view.turn == 120


@pytest.mark.parametrize("numbers", [NUMBERS, ()])
def test_without_a_clear_winner_nothing_is_turned(view: View, numbers: tuple[float, ...]) -> None:
    eyes = Eyes(dict.fromkeys(TURNS, 0.3))
    found, probability = find_turn(features(view), features(view), eyes.looks, eyes.vote, numbers)
    assert found.view.turn == 0
    assert probability > 0.5


def test_a_source_without_its_picture_is_compared_as_it_is(view: View) -> None:
    eyes = Eyes({0: 0.2, 90: 0.6})
    source = features(View(Picture(None, (40, 40))))
    found, _ = find_turn(source, features(view), eyes.looks, eyes.vote, NUMBERS)
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
    assert turned(view, 90).window is None
    seen = turned(view, 45)
    frame = replace(seen, window=None).size
    left, top, right, bottom = seen.window or (0, 0, 0, 0)
    assert seen.area is None
    assert abs(left - (frame[1] - right)) <= 1
    assert abs(top - (frame[0] - bottom)) <= 1
    assert abs(right - left - 40) <= 1  # as large as the picture
    part = turned(View(view.picture, (10, 0, 30, 40)), 45)
    assert (part.area, part.window) == ((10, 0, 30, 40), None)
    assert turned(seen, 45).window is None


@pytest.fixture
def canvas() -> View:
    """A picture of 120 × 80 pixels, turned by 20 degrees counter-clockwise, on white."""
    values = np.random.default_rng(0).integers(0, 200, (10, 15, 3), dtype=np.uint8)
    picture = Image.fromarray(values).resize((120, 80))
    return View.of(picture.rotate(20, Image.Resampling.BICUBIC, expand=True, fillcolor="white"))


def test_a_turned_picture_is_seen_without_the_canvas_that_it_lies_on(canvas: View) -> None:
    views, was_turned = turned_views(canvas)
    assert was_turned
    assert [view.turn for view in views] == pytest.approx([340, 70, 160, 250], abs=1)
    sizes = [(80, 120), (120, 80)] * 2
    for view, size in zip(views, sizes, strict=True):
        np.testing.assert_allclose(view.size, size, atol=4)
        assert np.asarray(view.image())[6:-6, 6:-6].min(-1).mean() < 150  # not the canvas
        corners = view.to_picture(np.array([[-1.0, -1.0], [1.0, 1.0]]))
        np.testing.assert_allclose(view.from_picture(corners), [[-1, -1], [1, 1]])
        assert seen_area(view) is None or np.subtract(seen_area(view), (0, 0, *canvas.size[::-1])).max() < 4
    again, was_turned = turned_views(View.of(views[0].image()))
    assert not was_turned
    assert [view.turn for view in again] == list(TURNS[1:])
    assert not turned_views(View(canvas.picture, (0, 0, *canvas.size[::-1])))[1]  # somebody chose it


def test_on_a_canvas_a_turned_picture_needs_no_more_than_to_agree_better(canvas: View) -> None:
    eyes = Eyes({0: 0.3, turned_views(canvas)[0][2].turn: 0.35})
    source = features(View.of(np.zeros((40, 40), dtype=np.uint8)))
    found, probability = find_turn(source, features(canvas), eyes.looks, eyes.vote, NUMBERS)
    assert found.view.turn == pytest.approx(160, abs=1)
    assert probability > 0.5
    assert len(eyes.seen) == 1 + 4 + FINALISTS
    eyes = Eyes({0: 0.35})  # it is what it looks like
    assert find_turn(source, features(canvas), eyes.looks, eyes.vote, NUMBERS)[0].view.turn == 0
