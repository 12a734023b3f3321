"""Several things of the target: how many, which positions are whose, and what a result of each says."""

import pytest
import torch

from chmnet.errors import InputError
from chmnet.ops.instances import Instance, find_instances, nearest_region, restricted, split_things

SIDE = 12
"""Positions along each side of both pictures."""


def scene(
    places: list[tuple[int, int, float]], thing: tuple[int, int] = (4, 4), at: tuple[int, int] = (4, 4)
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """A thing of the source that stands at each (row, column) of the target with a score; and both foregrounds."""
    scores = torch.zeros(1, 1, SIDE, SIDE, SIDE, SIDE)
    source, target = torch.zeros(1, SIDE, SIDE), torch.zeros(1, SIDE, SIDE)
    for row in range(thing[0]):
        for column in range(thing[1]):
            source[0, at[0] + row, at[1] + column] = 1
            for top, left, score in places:
                part = score * (1 - 0.1 * ((row + 2 * column) % 3))  # some parts match better than others
                scores[0, 0, at[0] + row, at[1] + column, top + row, left + column] = part
                target[0, top + row, left + column] = 1
    return scores, (source, target)


def middle(instance: Instance, foreground: torch.Tensor) -> list[float]:
    """The mean (row, column) of the thing of the target."""
    return (instance.target & (foreground[0] > 0)).nonzero().float().mean(0).tolist()


@pytest.mark.parametrize("places", [[(4, 4, 1.0)], [(0, 7, 0.8)], [(1, 1, 1.0), (6, 7, 0.8)]])
def test_there_are_as_many_as_things(places: list[tuple[int, int, float]]) -> None:
    scores, foreground = scene(places)
    found = find_instances(scores, foreground, most=5)
    assert [middle(each, foreground[1]) for each in found] == [
        [row + 1.5, column + 1.5] for row, column, _ in places
    ]
    assert found[0].strength == 1
    assert sorted((each.strength for each in found), reverse=True) == [each.strength for each in found]


def test_targets_share_no_position_and_leave_no_thing() -> None:
    scores, foreground = scene([(0, 0, 1.0), (0, 7, 0.9), (7, 3, 0.8)])
    found = find_instances(scores, foreground)
    assert len(found) == 3
    taken = torch.stack([each.target for each in found]).sum(0)
    assert taken.max() == 1
    assert (taken[foreground[1][0] > 0] == 1).all()
    assert len(find_instances(scores, foreground, most=2)) == 2


def test_weak_places_and_leftovers_are_no_things() -> None:
    scores, foreground = scene([(1, 1, 1.0), (6, 7, 0.2)])
    assert len(find_instances(scores, foreground)) == 1
    scores, foreground = scene([(1, 1, 1.0)])
    rest = torch.zeros_like(scores)
    rest[0, 0, 4, 4:8, 10, 2:6] = 0.9  # only one row of the parts matches again
    assert len(find_instances(torch.maximum(scores, rest), (foreground[0], None))) == 1


def test_each_thing_of_the_source_finds_its_own() -> None:
    """Two different things of the source, at other places of the target."""
    first, one = scene([(8, 0, 1.0)], at=(0, 0))
    second, other = scene([(0, 8, 0.9)], at=(8, 8))
    foreground = torch.maximum(one[0], other[0]), torch.maximum(one[1], other[1])
    found = find_instances(torch.maximum(first, second), foreground)
    assert [middle(each, foreground[1]) for each in found] == [[9.5, 1.5], [1.5, 9.5]]
    assert [bool(each.source[0, 0]) for each in found] == [True, False]


def test_smaller_things_are_found() -> None:
    scores = torch.zeros(1, 1, SIDE, SIDE, SIDE, SIDE)
    for row in range(8):
        for column in range(8):
            scores[0, 0, 2 + row, 2 + column, row // 2, column // 2] = 1
            scores[0, 0, 2 + row, 2 + column, 7 + row // 2, 7 + column // 2] = 0.9
    source = torch.zeros(1, SIDE, SIDE)
    source[0, 2:10, 2:10] = 1
    assert len(find_instances(scores, (source, None))) == 2


def test_pictures_without_any_score_have_one() -> None:
    (only,) = find_instances(torch.zeros(1, 1, 3, 4, 5, 2), (torch.zeros(1, 2, 2), None))
    assert only.target.all()
    assert only.source.all()


def test_instances_must_be_asked_for() -> None:
    with pytest.raises(InputError, match="at least 1, got 0"):
        find_instances(torch.zeros(1, 1, 1, 1, 1, 1), most=0)


def test_restricted_to_one() -> None:
    scores, foreground = scene([(1, 1, 1.0), (6, 7, 0.8)])
    likeness = torch.rand(1, 6, 6, 6, 6)
    first, second = find_instances(scores, foreground)
    part = restricted(scores, likeness, foreground, second)
    assert (part.scores[..., first.target] == scores.min()).all()
    torch.testing.assert_close(part.scores[..., second.target], scores[..., second.target])
    assert part.likeness is not None
    assert (part.likeness[..., 0, 0] == 0).all()
    assert not second.target[0, 0]  # nor what lies far from it
    torch.testing.assert_close(part.likeness[..., 5, 5], likeness[..., 5, 5])
    assert part.foreground[1] is not None
    assert part.foreground[1].sum() == 16
    nothing = restricted(scores, None, (None, None), first)
    assert nothing.likeness is None
    assert nothing.foreground == (None, None)


def test_small_parts_are_no_things() -> None:
    picture = torch.zeros(6, 6, dtype=torch.bool)
    picture[:3, :3] = picture[5, 5] = True
    assert [int(each.sum()) for each in split_things(picture)] == [9]


def test_an_empty_region_is_nearest_to_nothing() -> None:
    regions = torch.tensor([[[False, False]], [[True, False]]])
    assert nearest_region(regions).tolist() == [[1, 1]]
