"""What speaks against matches, and the probabilities that follow."""

import itertools
import math

import numpy as np
import pytest
import torch

from chmnet.config import TransferConfig
from chmnet.ops.correlation import exchange
from chmnet.ops.evidence import (
    Clues,
    PairEvidence,
    calibrated,
    confidence_map,
    gather_clues,
    map_evidence,
    match_evidence,
    pair_evidence,
    same_kind,
)
from chmnet.ops.transfer import Located, locate, soft_argmax

NOTHING = PairEvidence(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def maps(correlation: torch.Tensor, config: TransferConfig) -> tuple[Located, torch.Tensor]:
    return locate(correlation, config), soft_argmax(exchange(correlation), config)


def identity(side: int) -> torch.Tensor:
    return torch.eye(side * side).view(1, side, side, side, side)


# ---------------------------------------------------------------- position maps


def test_nothing_speaks_against_the_identity() -> None:
    scores = 1000 * torch.eye(36).view(1, 1, 6, 6, 6, 6)
    there, back = maps(scores, TransferConfig())
    torch.testing.assert_close(map_evidence(there, back), torch.zeros(1, 6, 6, 3))
    found = match_evidence(there, back, Clues(identity(6), (None, None), NOTHING))
    middle = found[0, 2:4, 2:4, :]
    torch.testing.assert_close(middle[..., [0, 1, 2, *range(4, 13)]], torch.zeros(2, 2, 12), atol=1e-4, rtol=0)
    assert middle[..., 3].max() < 0.2  # near enough to the border to count a little
    assert found[0, 0, 0, 3] == pytest.approx(1)


def test_evidence_tells_what_is_wrong() -> None:
    correlation = 1000 * torch.eye(49).view(1, 1, 7, 7, 7, 7)
    correlation[0, 0, 1, 1] = 0  # one position without any preference
    correlation[0, 0, 5, 5] = 0
    correlation[0, 0, 5, 5, 0, 0] = 999  # one that goes far away, where another is answered
    miss, spread, roughness = map_evidence(*maps(correlation, TransferConfig()))[0].unbind(-1)
    assert spread[1, 1] == pytest.approx(1)
    assert spread[3, 3] == pytest.approx(0, abs=1e-6)
    assert miss[5, 5] == pytest.approx(np.log1p(np.hypot(5, 5)), rel=1e-3)
    assert roughness[5, 5] > 1
    assert roughness[5, 0] == pytest.approx(0, abs=1e-3)  # none of its neighbours moves


def test_an_old_calibration_goes_by_position_maps() -> None:
    """The identity on 9×9 cells, where one cell goes two cells to the right and one has no preference."""
    correlation = 1000 * torch.eye(81).view(1, 1, 9, 9, 9, 9)
    correlation[0, 0, 4, 3] = 0
    correlation[0, 0, 4, 3, 4, 5] = 1000  # the cell there answers that it belongs to (4, 5) as much as to (4, 3)
    correlation[0, 0, 1, 7] = 0  # ends in the middle, which answers that it belongs to itself
    first, *slopes = numbers = (2.0, 1.0, 0.5, 0.25)
    there, back = maps(correlation, TransferConfig(gaussian_sigma=0))
    found = confidence_map(there, back, numbers=numbers)[0]

    def expected(miss: float, entropy: float, roughness: float, border: float) -> float:
        logit = first - slopes[0] * math.log1p(miss) - slopes[1] * entropy - slopes[2] * math.log1p(roughness)
        return (1 - 0.6 * math.exp(-(border**2) / 2)) / (1 + math.exp(-logit))

    # Of 25 displacements one is (2, 0): it differs from their mean by 48 / 25, the others by 2 / 25.
    assert found[4, 3] == pytest.approx(expected(miss=1, entropy=0, roughness=48 / 25, border=4 - 1), rel=1e-4)
    assert found[6, 4] == pytest.approx(expected(miss=0, entropy=0, roughness=2 / 25, border=2), rel=1e-4)
    # At (1, 7) sixteen cells of the grid are near; the displacement (-3, 3) of one is left out of their mean.
    far = math.hypot(3, 3)
    assert found[1, 7] == pytest.approx(expected(far, 1, far * 15 / 16, border=4), rel=1e-4)
    plain = confidence_map(there, back)[0]
    assert plain[1, 7] == pytest.approx(math.exp(-(far**2) / (2 * 1.5**2)) * (1 - 0.6 * math.exp(-8)), rel=1e-4)
    assert plain[8, 8] == pytest.approx(0.4)


def test_a_calibration_uses_all_evidence() -> None:
    torch.manual_seed(0)
    there, back = maps(10 * torch.rand(1, 1, 6, 6, 6, 6), TransferConfig())
    clues = gather_clues(torch.rand(1, 3, 3, 3, 3), (torch.rand(1, 3, 3), None), (0.5, -0.5))
    assert clues is not None
    numbers = (1.0, *(0.1 * number for number in range(13)))
    evidence = match_evidence(there, back, clues)
    expected = torch.sigmoid(1 - (evidence * torch.tensor(numbers[1:])).sum(-1))
    torch.testing.assert_close(confidence_map(there, back, clues, numbers), expected)
    torch.testing.assert_close(confidence_map(there, back, None, numbers), confidence_map(there, back))


# ---------------------------------------------------------------- likeness and foreground


def test_likeness_at_both_ends_against_loops() -> None:
    """Four dimensions, linear between positions of both grids; grids of different sides."""
    torch.manual_seed(0)
    likeness = torch.rand(1, 2, 3, 4, 3, dtype=torch.float64)
    positions = torch.rand(1, 5, 4, 2, dtype=torch.float64) * 2 - 1
    there = Located(positions, torch.zeros(1, 5, 4, dtype=torch.float64))
    found = match_evidence(there, torch.zeros(1, 6, 6, 2).double(), Clues(likeness, (None, None), NOTHING))[0]

    def hat(place: float, cell: int) -> float:
        return max(0.0, 1 - abs(place - cell))

    for row, column in itertools.product(range(5), range(4)):
        here = row / 4 * 1, column / 3 * 2  # in cells of the source's features
        x, y = positions[0, row, column].tolist()
        end = (y + 1) / 2 * 3, (x + 1) / 2 * 2
        alike = best = 0.0
        for a, b in itertools.product(range(2), range(3)):
            near = hat(here[0], a) * hat(here[1], b)
            best += near * float(likeness[0, a, b].max())
            for c, d in itertools.product(range(4), range(3)):
                alike += near * hat(end[0], c) * hat(end[1], d) * float(likeness[0, a, b, c, d])
        assert found[row, column, 4] == pytest.approx(1 - alike, abs=1e-9)
        assert found[row, column, 5] == pytest.approx(max(0.0, best - alike), abs=1e-9)


def test_ends_on_the_background() -> None:
    there, back = maps(1000 * torch.eye(9).view(1, 1, 3, 3, 3, 3), TransferConfig())
    left, top = torch.zeros(1, 3, 3), torch.zeros(1, 3, 3)
    left[..., 0], top[:, 0] = 1, 1
    found = match_evidence(there, back, Clues(identity(3), (left, top), NOTHING))[0]
    torch.testing.assert_close(found[..., 6], 1 - left[0], atol=1e-3, rtol=0)
    torch.testing.assert_close(found[..., 7], 1 - top[0], atol=1e-3, rtol=0)


def shifted(side: int, rows: int, columns: int, mirrored: bool = False) -> torch.Tensor:
    """Likeness of a picture and the same one moved by some cells, after mirroring perhaps."""
    likeness = torch.zeros(1, side, side, side, side)
    for row, column in itertools.product(range(side), range(side)):
        there = row + rows, (side - 1 - column if mirrored else column) + columns
        if all(0 <= place < side for place in there):
            likeness[0, row, column, there[0], there[1]] = 1
    return likeness


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (2, -1), (-3, 2)])
def test_one_displacement_explains_a_shift(rows: int, columns: int) -> None:
    plain, mirror = (pair_evidence(shifted(7, rows, columns, mirrored)) for mirrored in (False, True))
    peak = sum(math.exp(-(step**2) / 2) for step in range(-3, 4)) ** -2  # of the bell that smooths displacements
    assert plain.scattered == pytest.approx(-math.log(peak), abs=1e-4)
    assert plain.mirrored < -0.3
    assert mirror.mirrored == pytest.approx(-plain.mirrored, abs=1e-4)
    assert mirror.scattered > plain.scattered + 0.3


def test_pictures_of_nothing_alike() -> None:
    found = pair_evidence(torch.zeros(1, 3, 4, 2, 5))
    assert found.unlike == 1
    assert all(math.isfinite(number) for number in found)


def test_the_thing_alone_counts() -> None:
    torch.manual_seed(0)
    likeness = 0.5 * torch.rand(1, 5, 5, 5, 5)
    likeness[0, :3, :3, :3, :3] = shifted(3, 0, 0)[0]
    thing = torch.zeros(1, 5, 5)
    thing[:, :3, :3] = 1
    whole, found = pair_evidence(likeness), pair_evidence(likeness, (thing, thing))
    assert found.unlike == pytest.approx(0, abs=1e-6)
    assert whole.unlike > 0.1
    assert found.small_source == found.small_target == pytest.approx(math.log(25 / 9))
    assert whole.small_source == 0


@pytest.mark.parametrize(("facing", "opposed"), [((0.9, -0.8), 0.72), ((0.9, 0.8), -0.72), ((0.9, None), 0)])
def test_things_that_face_each_other(facing: tuple[float | None, float | None], opposed: float) -> None:
    assert pair_evidence(identity(3), facing=facing).opposed == pytest.approx(opposed)


def test_clues_exchanged_are_those_of_the_exchanged_pictures() -> None:
    torch.manual_seed(0)
    likeness, source, target = torch.rand(1, 3, 4, 2, 5), torch.rand(1, 3, 4), torch.rand(1, 2, 5)
    turned = likeness.permute(0, 3, 4, 1, 2)
    clues = gather_clues(likeness, (source, target), (0.2, 0.4))
    other = gather_clues(turned, (target, source), (0.4, 0.2))
    assert clues is not None
    assert other is not None
    found = clues.exchanged()
    torch.testing.assert_close(found.likeness, other.likeness)
    assert found.foreground[0] is target
    assert found.pair == pytest.approx(other.pair, abs=1e-5)
    assert gather_clues(None, (None, None), (None, None)) is None


def test_calibrated() -> None:
    found = calibrated(torch.tensor([[1.0, 2.0]], dtype=torch.float64), (0.5, 0.25, 0.125))
    torch.testing.assert_close(found, torch.tensor([0.5], dtype=torch.float64))


def test_pictures_without_a_thing_do_not_show_the_same_kind() -> None:
    numbers, everywhere, nowhere = (3.0, 1.0, 1.0), torch.ones(1, 3, 3), torch.zeros(1, 3, 3)
    sides = {
        "things": (everywhere, everywhere),
        "source blank": (nowhere, everywhere),
        "target blank": (everywhere, nowhere),
    }
    found = {name: same_kind(Clues(identity(3), side, NOTHING), numbers) for name, side in sides.items()}
    unknown = same_kind(Clues(identity(3), (None, None), NOTHING), numbers)
    assert found["things"] == unknown == pytest.approx(1 / (1 + math.exp(-3)))
    assert found["source blank"] == found["target blank"] == 0
