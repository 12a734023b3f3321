"""Numbers behind the figures, held against ones that were computed by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from chmnet.errors import InputError
from chmnet.experiments import clutter, learned_kernels, multiple, qualitative, rotation, scales
from chmnet.experiments.store import ExamplePair, Store
from chmnet.matcher import Matcher
from chmnet.nn.taps import tap_groups
from chmnet.result import Matches
from chmnet.weights import load_model

from .conftest import QuickRuns

# ---------------------------------------------------------------- clutter and scales


def test_precision_is_read_between_the_points_of_the_curve() -> None:
    """0.1 lies halfway from (0, 1) to (0.2, 0.8); 0.5 three quarters of the way from (0.2, 0.8) to (0.6, 0.4)."""
    row = {"area": 0.61849, "recall": [0.0, 0.2, 0.6, 1.0], "precision": [1.0, 0.8, 0.4, 0.2]}
    other = {**row, "area": 0.25}
    benchmarks = {"a": "set", "b": "other set"}
    (table,) = clutter.tables({"benchmarks": benchmarks, "rows": {"CHM": {"a": row, "b": other}}})
    assert table.headings[1] == "set: area"
    assert table.rows == [["CHM", "0.618", "0.900", "0.500", "0.250", "0.900", "0.500"]]


@pytest.mark.slow
def test_clutter_in_quick_mode(quick: QuickRuns) -> None:
    for (row,) in (found.values() for found in quick("clutter").record()["figures"]["rows"].values()):
        assert len(row["recall"]) == len(row["precision"]) > 10
        assert row["recall"] == sorted(row["recall"])
        assert row["recall"][-1] == 1
        assert 0 < row["area"] < 1


def test_shares_of_scales_sum_up(quick: QuickRuns) -> None:
    figures = quick("scales").record()["figures"]
    assert figures["scales"] == pytest.approx([2**-0.5, 1, 2**0.5])
    assert {"trained", "trained with present", "Hough prior, untrained"} <= figures["rows"].keys()
    for benchmarks in figures["rows"].values():
        (row,) = benchmarks.values()
        for kind in ("keypoints", "positions"):
            shares = np.array(row[kind])
            assert shares.shape == (3, 3)
            assert shares.min() >= 0
            assert shares.sum() == pytest.approx(1, abs=1e-3)
        assert row["pairs"] == 6
    assert figures["pck"].keys() == scales.VARIANTS.keys()


def test_votes_in_favour_elect_the_middle_by_construction(quick: QuickRuns) -> None:
    rows = quick("scales").record()["figures"]["rows"]
    (equal,) = rows["equal votes, untrained"].values()
    (present,) = rows["Hough prior, present"].values()
    assert equal["positions"][1][1] > 0.95 > 0.5 > present["positions"][1][1]


def test_shares_are_of_the_whole() -> None:
    assert scales._shares(np.array([[1.0, 2.0], [0.0, 5.0]])) == [[0.125, 0.25], [0.0, 0.625]]


def test_kinds_of_scale_pairs() -> None:
    """On the middle, elsewhere on the diagonal, beside it."""
    shares = [[0.1, 0.2, 0.0], [0.05, 0.4, 0.05], [0.0, 0.0, 0.2]]
    even = np.full((3, 3), 1 / 9).tolist()
    row = {"pairs": 7, "keypoints": shares, "positions": even}
    pck = {"model": {"set": {"0.05": 12.34, "0.1": 50.0}}}
    table, second = scales.tables({"scales": [0.7, 1.0, 1.4], "rows": {"model": {"set": row}}, "pck": pck})
    assert (second.headings, second.rows) == (["network", "set @0.05", "set @0.1"], [["model", "12.3", "50.0"]])
    assert table.rows == [["model", "set", "7", "40.0", "30.0", "30.0", "11.1", "22.2", "66.7"]]


def test_pairs_are_spread_over_the_list(store: Store) -> None:
    pairs = store.pairs("synthetic")
    assert scales.spread_pairs(pairs, 2) == [pairs[0], pairs[-1]]
    assert scales.spread_pairs(pairs, 100) == pairs
    chosen = [pairs.index(pair) for pair in scales.spread_pairs(pairs * 10, 7)]
    assert len(chosen) == 7


# ---------------------------------------------------------------- rotation


@pytest.mark.slow
def test_turned_pairs_in_quick_mode(quick: QuickRuns) -> None:
    rows = quick("rotation").record()["figures"]["rows"]
    for row in rows.values():
        assert list(row["pck"]) == [str(angle) for angle in rotation.ANGLES]
        for values in row["pck"].values():
            assert 0 <= values["0.05"] <= values["0.1"] <= 100
    for title in (rotation.TURNING, rotation.HEARING):
        assert rows[title]["pck"]["180"]["0.1"] > rows[rotation.PLAIN]["pck"]["180"]["0.1"]
        assert rows[title]["multiply_adds"] > 1.5 * rows[rotation.PLAIN]["multiply_adds"]


def test_mean_and_standard_error() -> None:
    assert rotation._mean_and_error(np.array([0.1, 0.3])) == [20.0, 10.0]


def test_turned_pairs_beside_each_other() -> None:
    pck = {"0": {"0.05": 30.0, "0.1": 60.04}, "90": {"0.05": 1.0, "0.1": 2.0}}
    row = {"pck": pck, "multiply_adds": 2_340_000_000, "seconds": 0.256}
    figures = {"rows": {rotation.TURNING: row, rotation.SEARCH: row}, "over_search": {"90": [12.3, 4.0]}}
    first, second = rotation.tables(figures)
    assert first.rows[0] == [rotation.TURNING, "30.0 / 60.0", "1.0 / 2.0", "2.3", "0.26"]
    assert first.rows[1][3] == "–"
    assert second.rows[0][1:] == ["+12.3 ± 4.0"]


# ---------------------------------------------------------------- learned kernels


def test_variance_that_groups_explain() -> None:
    """Means 2 and 6, what is left 4 · 1; all together (9 + 1 + 1 + 9) around 4."""
    kernel, groups = torch.tensor([[1.0, 3.0], [5.0, 7.0]]), torch.tensor([[0, 0], [1, 1]])
    assert learned_kernels._explained(kernel, groups) == 0.8
    assert learned_kernels._explained(kernel, torch.tensor([[0, 1], [2, 3]])) == 1.0
    assert learned_kernels._explained(kernel, torch.zeros(2, 2, dtype=torch.long)) == 0.0


@pytest.mark.parametrize("scale", [None, 3])
def test_a_shared_kernel_is_explained_by_its_own_groups(scale: int | None) -> None:
    psi, iso = (tap_groups(5, scale, sharing) for sharing in ("psi", "iso"))
    generator = torch.Generator().manual_seed(0)
    of_psi = torch.rand(psi.number, generator=generator, dtype=torch.float64)[psi.index]
    of_iso = torch.rand(iso.number, generator=generator, dtype=torch.float64)[iso.index]
    free = torch.rand(psi.index.shape, generator=generator, dtype=torch.float64)
    assert learned_kernels._explained(of_psi, psi.index) == 1.0
    assert learned_kernels._explained(of_psi, iso.index) < 0.9
    assert learned_kernels._explained(of_iso, iso.index) == 1.0
    assert learned_kernels._explained(of_iso, psi.index) == 1.0  # finer groups
    chance = (psi.number - 1) / (free.numel() - 1)
    assert learned_kernels._explained(free, psi.index) == pytest.approx(chance, abs=0.05)


def test_correlations() -> None:
    one, other = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0])
    assert learned_kernels._correlation(one, -2 * one) == -1.0
    assert learned_kernels._correlation(one, other) == round(3 / np.sqrt(2 * 14 / 3), 3)


@pytest.mark.slow
def test_learned_kernels_in_quick_mode(quick: QuickRuns) -> None:
    rows = quick("learned-kernels").record()["figures"]["rows"]
    assert [row["weights"] for row in rows.values()] == [220, 55, 45, 15, 5625, 625]
    for title, row in rows.items():
        sharing = title.partition(",")[0]
        assert (row["explained_by_psi"] == 1.0) == (sharing != "full")
        assert (row["explained_by_iso"] == 1.0) == (sharing == "iso")
        assert (row["with_psi"] == 1.0) == (sharing == "psi")


# ---------------------------------------------------------------- several objects in one picture


def plain_pairs(number: int, size: tuple[int, int] = (100, 50)) -> list[ExamplePair]:
    """Pictures of one colour: red says of which pair, blue which of the two."""
    return [
        ExamplePair(str(pair), *(Image.new("RGB", size, (30 * pair + 20, 0, blue)) for blue in (0, 255)))
        for pair in range(number)
    ]


def test_pictures_lie_in_the_middle_of_their_cells() -> None:
    """Of cells of 240 pixels, 216 are filled: 100×50 becomes 216×108, with 12 and 66 pixels on each side."""
    first, second, third = (pair.source for pair in plain_pairs(3))
    canvas, boxes = multiple._compose([first, second, third], (0, 3, 2), seed=1)
    assert canvas.size == (480, 480)
    assert boxes == ((12, 66, 228, 174), (252, 306, 468, 414))
    pixels = np.asarray(canvas)
    for picture, (left, top) in zip((first, second, third), ((12, 66), (252, 306), (12, 306)), strict=True):
        drawn = pixels[top : top + 108, left : left + 216]
        assert (drawn == picture.getpixel((0, 0))).all()
        around = pixels[top - 1, left - 1 : left + 217]
        assert not (around == picture.getpixel((0, 0))).all(axis=-1).any()


def test_scenes_have_two_objects_in_common_and_one_stranger_each() -> None:
    found = list(multiple.scenes(plain_pairs(7)))
    assert len(found) >= 6
    for scene in found:
        shown = []
        for picture, boxes in ((scene.source, scene.source_boxes), (scene.target, scene.target_boxes)):
            centres = [((left + right) / 2, (top + bottom) / 2) for left, top, right, bottom in boxes]
            cells = [(int(x) // 240, int(y) // 240) for x, y in centres]
            assert len(set(cells)) == 2
            colours = [picture.getpixel((240 * x + 120, 240 * y + 120)) for x, y in cells]
            rest = {(x, y) for x in (0, 1) for y in (0, 1)} - set(cells)
            strangers = [picture.getpixel((240 * x + 120, 240 * y + 120)) for x, y in rest]
            # The fourth cell shows the background.
            shown.append((colours, [colour for colour in strangers if colour[1:] in ((0, 0), (0, 255))]))
        (common, only_source), (common_too, only_target) = shown
        assert [colour[0] for colour in common] == [colour[0] for colour in common_too]
        assert [colour[2] for colour in common] != [colour[2] for colour in common_too]  # other pictures of them
        reds = {colour[0] for colour in (*common, *only_source, *only_target)}
        assert len(only_source) == len(only_target) == 1
        assert len(reds) == 4


def test_matches_join_an_object_with_both_ends() -> None:
    blank = Image.new("RGB", (10, 10))
    scene = multiple.Scene("", blank, blank, ((0, 0, 4, 4), (6, 6, 9, 9)), ((5, 0, 9, 4), (0, 6, 4, 9)))
    source = np.array([[1.0, 1.0], [7.0, 7.0], [1.0, 1.0], [5.0, 5.0], [4.0, 4.0]])
    target = np.array([[6.0, 1.0], [1.0, 7.0], [1.0, 7.0], [6.0, 1.0], [5.0, 0.0]])
    matches = Matches(source, target, np.ones(5))
    assert multiple._joined(scene, matches).tolist() == [
        [True, False, False, False, True],  # on the edge is inside
        [False, True, False, False, False],
    ]


def test_means_over_scenes() -> None:
    rows = {"CHM": {"joined": [0.5, 1.0], "objects": [1, 2]}}
    (table,) = multiple.tables({"scenes": ["a", "b"], "rows": rows})
    assert table.rows == [["CHM", "75.0", "3 of 4"]]


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("size", [(120, 80), (90, 140), (100, 100)], ids=str)
@pytest.mark.parametrize("share", [(0.5, 0.5), (0.4, 0.5), (0.55, 0.35), (0.6, 0.6)], ids=str)
def test_points_turn_as_pictures_do(share: tuple[float, float], size: tuple[int, int]) -> None:
    picture = Image.new("L", size)
    x, y = np.array(share) * size
    ImageDraw.Draw(picture).ellipse((x - 4, y - 4, x + 4, y + 4), fill=255)
    turned = np.asarray(picture.rotate(45, Image.Resampling.BILINEAR), dtype=np.float64)
    rows, columns = np.mgrid[: size[1], : size[0]] + 0.5
    centre = np.array([(turned * columns).sum(), (turned * rows).sum()]) / turned.sum()
    found = qualitative._turn(np.array([share]), size)[0] * size
    assert np.abs(found - centre).max() < 1


def test_the_truth_of_changed_pictures_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is drawn as true shows the same colour as the point it is true of."""
    drawn: list[tuple[Any, ...]] = []
    monkeypatch.setattr(qualitative, "draw_errors", lambda *given: drawn.append(given) or given[0])
    y, x = np.mgrid[:90, :120]
    smooth = np.stack([255 * x / 120, 255 * y / 90, 128 + 0 * x], axis=-1).astype(np.uint8)
    matcher = Matcher(load_model("nearest-neighbour", changes={"image_size": [64, 64]}))
    qualitative._draw_known_failures(matcher, Image.fromarray(smooth))
    assert len(drawn) == 3
    for picture, target, points, found, true in drawn:
        assert found.shape == true.shape == points.shape
        inside = ((true > 1) & (true < np.array(target.size) - 1)).all(axis=1)
        assert inside.sum() >= 3
        for (x, y), (true_x, true_y) in zip(points[inside], true[inside], strict=True):
            one, other = picture.getpixel((int(x), int(y))), target.getpixel((int(true_x), int(true_y)))
            assert np.abs(np.subtract(one, other)).max() < 12


def test_a_pair_without_a_warp_is_grey(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher(load_model("nearest-neighbour", changes={"image_size": [48, 48]}))
    black, grey = Image.new("RGB", (40, 30)), Image.new("RGB", (50, 20), "grey")
    result = matcher.match(black, grey)

    def refuse(*arguments: object) -> Image.Image:
        raise InputError("too few confident matches")

    monkeypatch.setattr(type(result), "warp", refuse)
    drawn = qualitative._warp(result)
    assert drawn.size == grey.size
    assert all(low == high for low, high in drawn.getextrema())


@pytest.mark.slow
def test_shares_of_pairs(quick: QuickRuns) -> None:
    rows = quick("qualitative").record()["figures"]["rows"]
    assert list(rows) == list(qualitative.COMPARED)
    for benchmarks in rows.values():
        for row in benchmarks.values():
            assert 0 <= row["all"] <= row["half"] <= 1 - row["none"]
            assert row["pairs"] == 6
