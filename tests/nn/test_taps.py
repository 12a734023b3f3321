import math
from collections import Counter
from collections.abc import Hashable
from itertools import product

import pytest
import torch

from chmnet.errors import InputError
from chmnet.nn.taps import tap_groups

Offset = tuple[int, ...]
Tap = tuple[Offset, Offset]


def taps(size: int, dimensions: int) -> list[Tap]:
    """All pairs of offsets in the order of the kernel: source first, its last axis before the target's."""
    line = range(-(size // 2), size // 2 + 1)
    offsets = list(product(line, repeat=dimensions))
    return [(source, target) for source in offsets for target in offsets]


def description(tap: Tap, sharing: str) -> Hashable:
    """What the paper says that taps must have in common."""
    source, target = tap
    if sharing == "full":
        return tap
    offset = round(math.dist(source, target), 6)
    if sharing == "iso":
        return offset
    return offset, frozenset([round(math.hypot(*source), 6), round(math.hypot(*target), 6)])


def partition(labels: list[Hashable]) -> set[frozenset[int]]:
    """Sets of positions with equal labels."""
    members: dict[Hashable, list[int]] = {}
    for position, label in enumerate(labels):
        members.setdefault(label, []).append(position)
    return {frozenset(group) for group in members.values()}


def orbit(tap: Tap) -> frozenset[Tap]:
    """All that quarter turns and flips of both offsets together, and exchanging them, make of a tap."""
    found = set()
    for swap, flip_y, flip_x in product((False, True), (1, -1), (1, -1)):
        moved = [(flip_y * y, flip_x * x) for y, x in tap]
        if swap:
            moved = [(x, y) for y, x in moved]
        found.update({(moved[0], moved[1]), (moved[1], moved[0])})
    return frozenset(found)


@pytest.mark.parametrize("spatial", [1, 3, 5, 7])
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
def test_spatial_groups(spatial: int, sharing: str) -> None:
    groups = tap_groups(spatial, None, sharing)
    expected = partition([description(tap, sharing) for tap in taps(spatial, 2)])
    assert groups.index.shape == (spatial,) * 4
    assert groups.number == len(expected)
    assert partition(groups.index.flatten().tolist()) == expected


@pytest.mark.parametrize(
    ("spatial", "scale", "sharing", "number"),
    [
        (5, None, "psi", 55),
        (5, None, "iso", 15),
        (5, None, "full", 625),
        (5, 3, "psi", 220),
        (5, 3, "iso", 45),
        (5, 3, "full", 5625),
    ],
)
def test_numbers_of_the_paper(spatial: int, scale: int | None, sharing: str, number: int) -> None:
    assert tap_groups(spatial, scale, sharing).number == number


@pytest.mark.parametrize("scale", [1, 3, 5])
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
def test_groups_with_scales_are_pairs_of_groups(scale: int, sharing: str) -> None:
    groups = tap_groups(3, scale, sharing)
    expected = [
        (description(scale_tap, sharing), description(tap, sharing))
        for scale_tap in taps(scale, 1)
        for tap in taps(3, 2)
    ]
    assert groups.index.shape == (scale, scale, 3, 3, 3, 3)
    assert partition(groups.index.flatten().tolist()) == partition(expected)


def test_psi_groups_are_the_orbits_of_the_symmetries() -> None:
    expected = partition([orbit(tap) for tap in taps(5, 2)])
    assert partition(tap_groups(5).index.flatten().tolist()) == expected


def test_psi_groups_of_a_larger_window_join_orbits() -> None:
    """From seven on (‖(1, 2)‖ with ‖(1, 3)‖) a triplet of distances says less than the symmetries."""
    assert tap_groups(7).number < len({orbit(tap) for tap in taps(7, 2)})


@pytest.mark.parametrize("scale", [None, 3], ids=["4d", "6d"])
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
def test_geometry_of_the_groups(sharing: str, scale: int | None) -> None:
    groups = tap_groups(5, scale, sharing)
    index = groups.index.flatten().tolist()
    scale_taps = [((0,), (0,))] if scale is None else taps(scale, 1)
    scale_order: list[Hashable] = []
    expected: dict[int, tuple[float, float, float, int]] = {}
    for group, (scale_tap, (source, target)) in zip(index, product(scale_taps, taps(5, 2)), strict=True):
        label = description(scale_tap, sharing)
        if label not in scale_order:
            scale_order.append(label)
        near, far = sorted([math.hypot(*source), math.hypot(*target)])
        # Only the first tap of a group counts.
        expected.setdefault(group, (math.dist(source, target), far, near, scale_order.index(label)))
    offset, far_distance, near_distance, scale_group = zip(*expected.values(), strict=True)
    assert list(expected) == list(range(groups.number)), "groups are numbered in order of appearance"
    torch.testing.assert_close(groups.offset, torch.tensor(offset))
    torch.testing.assert_close(groups.far_distance, torch.tensor(far_distance))
    torch.testing.assert_close(groups.near_distance, torch.tensor(near_distance))
    assert groups.scale_group.tolist() == list(scale_group)


@pytest.mark.parametrize(("spatial", "scale"), [(1, None), (3, None), (5, None), (5, 3)])
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
def test_counts(spatial: int, scale: int | None, sharing: str) -> None:
    groups = tap_groups(spatial, scale, sharing)
    occurrences = Counter(groups.index.flatten().tolist())
    assert sorted(occurrences) == list(range(groups.number))
    assert groups.count.tolist() == [occurrences[group] for group in range(groups.number)]
    assert groups.count.sum() == spatial**4 * (scale or 1) ** 2


def test_unknown_sharing() -> None:
    with pytest.raises(InputError, match="sharing must be one of psi, iso, full, got 'some'"):
        tap_groups(5, None, "some")


@pytest.mark.parametrize("size", [0, -3, 4])
def test_even_or_negative_window(size: int) -> None:
    with pytest.raises(InputError, match=f"spatial must be odd and positive, got {size}; use 3 or 5"):
        tap_groups(size)
    with pytest.raises(InputError, match=f"scale must be odd and positive, got {size}; use 3 or 5"):
        tap_groups(5, size)
