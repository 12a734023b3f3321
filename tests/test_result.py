"""What a result gives: flow, warps, heat maps, scales, files."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from safetensors.torch import save_file

from chmnet.config import CalibrationConfig, TransferConfig
from chmnet.errors import InputError
from chmnet.geometry import grid_points, normalised_to_pixels, pixels_to_normalised
from chmnet.pictures import Picture, View
from chmnet.result import Matches, MatchResult
from chmnet.warping import check_size

SHARP = TransferConfig(temperature=1e-3, sampler="nearest")


def unseen(size: tuple[int, int]) -> View:
    """A whole picture of which only the size is known."""
    return View(Picture(None, size))


def identity(size: tuple[int, int] = (60, 120), target_size: tuple[int, int] = (300, 240)) -> MatchResult:
    """A result in which every grid position matches itself."""
    picture = Image.effect_noise(size[::-1], 60).convert("RGB")
    correlation = torch.eye(64).view(1, 1, 8, 8, 8, 8)
    return MatchResult(correlation, View.of(picture), unseen(target_size), SHARP)


def random_result(**fields: object) -> MatchResult:
    correlation = torch.rand(1, 1, 6, 7, 5, 4, generator=torch.Generator().manual_seed(3))
    views = {"source": unseen((50, 90)), "target": unseen((80, 40))}
    return MatchResult(correlation, config=TransferConfig(temperature=0.05), **{**views, **fields})


# ---------------------------------------------------------------- trust

NUMBERS = (2.0, *(0.1 * number for number in range(13)))
TRUSTED = CalibrationConfig(match=NUMBERS, unmatched=NUMBERS, same_kind=(3.0, 4.0, 0.5))


def trusted_result(**fields: object) -> MatchResult:
    generator = torch.Generator().manual_seed(4)
    sides = torch.rand(1, 3, 4, generator=generator), torch.rand(1, 3, 2, generator=generator)
    known = {
        "foreground": sides,
        "likeness": torch.rand(1, 3, 4, 3, 2, generator=generator),
        "facing": (0.5, -0.4),
    }
    return random_result(calibration=TRUSTED, **{**known, **fields})


def test_probabilities_of_evidence() -> None:
    result = trusted_result()
    points = [[10.0, 20.0], [70.0, 30.0]]
    first, *slopes = NUMBERS
    expected = 1 / (1 + np.exp(first - result.evidence_at(points) @ slopes))
    np.testing.assert_allclose(result.unmatched_at(points), expected, atol=1e-6)
    assert result.clues is not None
    unlike, scattered, *_ = result.clues.pair
    things = float(result.foreground[0].max() * result.foreground[1].max())
    assert result.same_kind == pytest.approx(things / (1 + np.exp(-(3 - 4 * unlike - 0.5 * scattered))))
    assert result.clues.pair.opposed == pytest.approx(0.2)


def test_evidence_of_the_other_direction_is_that_of_the_exchanged_pictures() -> None:
    result = trusted_result()
    likeness, scores = result.likeness, result.scores.permute(0, 1, 4, 5, 2, 3)
    assert likeness is not None
    turned = dataclasses.replace(
        result,
        scores=scores,
        source=result.target,
        target=result.source,
        foreground=result.foreground[::-1],
        facing=result.facing[::-1],
        likeness=likeness.permute(0, 3, 4, 1, 2),
    )
    torch.testing.assert_close(result.backward.confidence, turned.forward.confidence)


def test_without_likeness_nothing_is_said_that_needs_it() -> None:
    result = trusted_result(likeness=None)
    assert result.same_kind is None
    assert result.unmatched_at([[1, 1]]) is None
    plain = random_result()
    torch.testing.assert_close(result.forward.confidence, plain.forward.confidence)
    with pytest.raises(InputError, match="match the pictures again"):
        plain.evidence_at([[1, 1]])
    unfitted = dataclasses.replace(trusted_result(), calibration=CalibrationConfig())
    assert unfitted.same_kind is None
    assert unfitted.unmatched_at([[1, 1]]) is None


def test_saved_results_keep_what_evidence_is_made_of(tmp_path: Path) -> None:
    result = trusted_result()
    result.save(tmp_path / "result.safetensors")
    loaded = MatchResult.load(tmp_path / "result.safetensors")
    assert loaded.same_kind == result.same_kind
    np.testing.assert_array_equal(loaded.unmatched_at([[9, 9]]), result.unmatched_at([[9, 9]]))
    torch.testing.assert_close(loaded.forward.confidence, result.forward.confidence)


# ---------------------------------------------------------------- flow and confidence


def test_flow_of_the_identity_is_zero_and_any_size_measures_the_same_pixels() -> None:
    same = identity((60, 120), (60, 120))
    assert same.flow().shape == (60, 120, 2)
    assert np.abs(same.flow()).max() < 0.01
    larger = identity((60, 120), (120, 240))  # every point moves by itself
    flow = larger.flow(size=(3, 4))
    np.testing.assert_allclose(flow[0, 0], [15, 10], atol=0.01)  # the middle of the first of 3 × 4 cells
    np.testing.assert_allclose(flow[2, 3], [105, 50], atol=0.01)


def test_backward_flow_is_that_of_the_exchanged_pictures() -> None:
    result = random_result()
    turned = MatchResult(result.scores.permute(0, 1, 4, 5, 2, 3), result.target, result.source, result.config)
    np.testing.assert_array_equal(result.flow(direction="backward"), turned.flow())
    assert result.flow(direction="backward").shape == (80, 40, 2)


def test_flow_leads_to_the_transferred_points() -> None:
    result = random_result()
    result = dataclasses.replace(result, config=result.config.replace(sampler="nearest"))
    grid = grid_points((6, 7), like=torch.zeros(1, dtype=torch.float64)).flatten(0, 1).numpy()
    inside = (grid + 1) / 2 * (90, 50) * 0.999 + 0.001
    flow = result.flow(size=(1000, 1800))
    columns, rows = (inside / (90, 50) * (1800, 1000)).astype(int).clip(0, (1799, 999)).T
    np.testing.assert_allclose(inside + flow[rows, columns], result.locate(inside), atol=0.6)


@pytest.mark.parametrize("size", [(0, 5), (-1, 4), (10**6, 10**6)])
def test_bad_sizes(size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="both at least 1"):
        identity().flow(size=size)


@pytest.mark.parametrize("size", [(3,), (1, 2, 3), 5, (2.5, 3), (float("nan"), 3), "ab"])
def test_sizes_that_are_none(size: object) -> None:
    with pytest.raises(InputError, match="two whole numbers"):
        check_size(size)  # in tests, flow itself lets no such type in


def test_pictures_too_large_to_draw_are_one_sentence() -> None:
    huge = random_result(source=unseen((2**30, 2**30)), target=unseen((2**30, 2**30)))
    for read in (huge.flow, huge.confidence_at, lambda: huge.warp(picture=Image.new("RGB", (3, 3)))):
        with pytest.raises(InputError, match="million pixels"):
            read()
    assert huge.flow(size=(2, 3)).shape == (2, 3, 2)


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("side", ["source", "target"])
def test_answers_are_in_pixels_of_the_whole_pictures(side: str, turn: int, mirrored: bool) -> None:
    """Two views of one scene: what was seen mirrored, turned and cropped is found where it is."""
    area = (20, 10, 60, 50)
    seen, whole = View(unseen((80, 100)).picture, area, mirrored, turn), unseen((40, 40))
    views = {"source": seen, "target": whole} if side == "source" else {"source": whole, "target": seen}
    result = MatchResult(torch.eye(64).view(1, 1, 8, 8, 8, 8), config=SHARP, **views)
    grid = grid_points((8, 8), like=torch.zeros(1, dtype=torch.float64)).flatten(0, 1)
    inside, outside = seen.to_picture(grid).numpy(), whole.to_picture(grid).numpy()
    start, end = (inside, outside) if side == "source" else (outside, inside)
    np.testing.assert_allclose(result.transfer(start).target, end, atol=1e-3)
    best = result.matches(64)
    order = [int(np.abs(start - point).sum(1).argmin()) for point in best.source]
    np.testing.assert_allclose(best.target, end[order], atol=1e-3)
    for direction, starts, ends, view in (
        ("forward", start, end, result.source),
        ("backward", end, start, result.target),
    ):
        flow = result.flow(direction=direction)
        assert flow.shape == (*view.picture.size, 2)
        for row, column in ((25, 30), (14, 33)):
            nearest = np.array([column + 0.5, row + 0.5])
            coordinates = np.linalg.lstsq(np.c_[starts, np.ones(64)], ends, rcond=None)[0]  # the map is linear
            np.testing.assert_allclose(nearest + flow[row, column], np.r_[nearest, 1] @ coordinates, atol=0.05)


@pytest.mark.parametrize("turn", [30, 200])
@pytest.mark.parametrize("mirrored", [False, True])
def test_answers_of_a_part_of_a_turned_picture(turn: float, mirrored: bool) -> None:
    """Transfer, flow, heat and warp agree in pixels of the whole picture; beside what is seen nothing is drawn."""
    picture = Image.effect_noise((50, 40), 60).resize((100, 80)).convert("RGB")
    whole = View(Picture(picture), None, mirrored, turn)
    height, width = whole.size
    target = dataclasses.replace(whole, window=(width // 4, height // 4, width - width // 5, height - height // 4))
    source = View.of(target.image())
    result = MatchResult(torch.eye(256).view(1, 1, 16, 16, 16, 16), source, target, SHARP)
    backwards = MatchResult(result.scores, target, source, SHARP)
    grid = grid_points((16, 16), like=torch.zeros(1, dtype=torch.float64)).numpy().reshape(-1, 2)
    places, starts = target.to_picture(grid), normalised_to_pixels(grid, source.size)
    seen = np.all((places > 0) & (places < (100, 80)), axis=1)
    assert seen.sum() > 200
    np.testing.assert_allclose(result.locate(starts[seen]), places[seen], atol=1e-3)
    np.testing.assert_allclose(backwards.locate(places[seen]), starts[seen], atol=1e-3)
    np.testing.assert_allclose(backwards.locate([[0.5, 0.5]]), backwards.locate([[-9.0, -9.0]]), atol=1)

    middles = np.moveaxis(np.indices((80, 100))[::-1], 0, -1) + 0.5
    shown = target.from_picture(middles)
    inside = (np.abs(shown) < 0.95).all(-1)
    expected = normalised_to_pixels(shown, source.size)
    np.testing.assert_allclose((middles + result.flow(direction="backward"))[inside], expected[inside], atol=0.05)
    drawn = np.asarray(result.warp()).astype(int)
    assert np.abs(drawn[inside] - np.asarray(picture)[inside]).mean() < 9
    assert (drawn[(np.abs(shown) > 1.05).any(-1)] == 255).all()
    heat = result.heat(starts[seen][40])
    positions = grid_points((heat.shape[0], heat.shape[1]), like=torch.zeros(1, dtype=torch.float64)).numpy()
    found = normalised_to_pixels((heat[..., None] * positions).sum(axis=(0, 1)), (80, 100))
    np.testing.assert_allclose(found, places[seen][40], atol=4)
    assert heat.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("turn", [30, 45.5, 200])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("area", [None, (20, 10, 60, 50)])
def test_answers_of_views_turned_by_any_angle(
    turn: float, mirrored: bool, area: tuple[int, int, int, int] | None
) -> None:
    """Transfer, matches, flow both ways, heat and warp agree in pixels of the whole pictures."""
    picture = Image.effect_noise((50, 40), 60).resize((100, 80)).convert("RGB")
    target = View(Picture(picture), area, mirrored, turn)
    source = View.of(target.image())  # what the target shows is the whole of another picture
    result = MatchResult(torch.eye(256).view(1, 1, 16, 16, 16, 16), source, target, SHARP)
    backwards = MatchResult(result.scores, target, source, SHARP)
    left, top, right, bottom = area or (0, 0, 100, 80)
    grid = grid_points((16, 16), like=torch.zeros(1, dtype=torch.float64)).numpy().reshape(-1, 2)
    places, starts = target.to_picture(grid), normalised_to_pixels(grid, source.size)
    seen = np.all((places > [left, top]) & (places < [right, bottom]), axis=1)
    assert 100 < seen.sum() < 256
    np.testing.assert_allclose(result.locate(starts[seen]), places[seen], atol=1e-3)
    np.testing.assert_allclose(backwards.locate(places[seen]), starts[seen], atol=1e-3)

    best, back = result.matches(256), backwards.matches(256)
    assert (len(best.source), len(back.source)) == (256, seen.sum())  # not the corners around the area
    for found in (best.target, back.source, result.locate(starts)):
        assert (found >= np.array([left, top]) - 1e-6).all()
        assert (found <= np.array([right, bottom]) + 1e-6).all()
    np.testing.assert_allclose(result.locate(back.target), back.source, atol=1e-3)

    forward, backward = result.flow(), result.flow(direction="backward")
    assert forward.shape == (*source.size, 2)
    assert backward.shape == (80, 100, 2)
    columns, rows = places[seen].astype(int).T
    middles = np.stack([columns, rows], axis=1) + 0.5
    expected = normalised_to_pixels(target.from_picture(middles), source.size)
    np.testing.assert_allclose(middles + backward[rows, columns], expected, atol=0.05)
    columns, rows = starts[seen].clip(0, np.array(source.size[::-1]) - 1).astype(int).T
    middles = np.stack([columns, rows], axis=1) + 0.5
    expected = target.to_picture(pixels_to_normalised(middles, source.size), inside=True)
    np.testing.assert_allclose(middles + forward[rows, columns], expected, atol=0.05)
    everywhere = np.moveaxis(np.indices(source.size)[::-1], 0, -1) + 0.5 + forward
    np.testing.assert_allclose(everywhere.min(axis=(0, 1)), [left, top], atol=1)
    np.testing.assert_allclose(everywhere.max(axis=(0, 1)), [right, bottom], atol=1)

    for start, place in zip(starts[seen][::9], places[seen][::9], strict=True):
        heat = result.heat(start)
        positions = grid_points((heat.shape[0], heat.shape[1]), like=torch.zeros(1, dtype=torch.float64)).numpy()
        found = normalised_to_pixels((heat[..., None] * positions).sum(axis=(0, 1)), (80, 100))
        np.testing.assert_allclose(found, place, atol=4)  # half a position of the grid
        assert heat.sum() == pytest.approx(1, abs=1e-5)

    assert backwards.confidence_at().shape == (80, 100)
    drawn = np.asarray(result.warp()).astype(int)
    inside = np.s_[top + 3 : bottom - 3, left + 3 : right - 3]
    assert np.abs(drawn[inside] - np.asarray(picture)[inside]).mean() < 9  # it was turned, and turned back
    assert np.abs(drawn[inside] - np.asarray(ImageOps.mirror(picture))[inside]).mean() > 20
    beside = np.ones((80, 100), dtype=bool)
    beside[top:bottom, left:right] = False
    assert (drawn[beside] == 255).all()


def test_warps_of_views_are_drawn_where_the_view_lies() -> None:
    picture = Image.effect_noise((40, 40), 60).convert("RGB")
    target = View(unseen((80, 100)).picture, (20, 10, 60, 50))
    warped = MatchResult(torch.eye(64).view(1, 1, 8, 8, 8, 8), View.of(picture), target, SHARP).warp()
    assert warped.size == (100, 80)
    drawn = np.asarray(warped).astype(int)
    assert np.abs(drawn[11:49, 21:59] - np.asarray(picture)[1:-1, 1:-1]).mean() < 3
    assert (drawn[:10] == 255).all()
    assert (drawn[:, 60:] == 255).all()


def test_bad_direction() -> None:
    with pytest.raises(InputError, match="forward or backward"):
        identity().flow(direction="sideways")


def test_confidence_maps() -> None:
    result = identity()
    assert result.confidence.shape == (8, 8)
    assert result.confidence.dtype == np.float32
    assert result.confidence[4, 4] > 0.99
    assert result.confidence[0, 0] == pytest.approx(0.4)  # what lies beyond the border would end there too
    assert result.confidence_at().shape == (60, 120)
    dense = random_result().confidence_at((9, 9))
    assert ((dense >= 0) & (dense <= 1)).all()


# ---------------------------------------------------------------- warp


@pytest.mark.parametrize("method", ["flow", "tps"])
def test_warp_has_the_frame_of_the_target(method: str) -> None:
    result = identity((60, 120), (60, 120))
    warped = result.warp(method)
    assert result.source_picture is not None
    error = np.asarray(warped).astype(int) - np.asarray(result.source_picture)
    assert np.abs(error).mean() < 2
    assert identity().warp(method).size == (240, 300)
    assert identity().warp(method, size=(30, 24)).size == (24, 30)


def test_warp_of_another_picture_and_through_keypoints() -> None:
    result = identity()
    assert result.warp(picture=np.zeros((10, 20), dtype=np.uint8)).getpixel((5, 5)) == (0, 0, 0)
    corners = np.array([[0, 0], [120, 0], [0, 60], [120, 60.0]])
    flipped = Matches(corners, corners[::-1] * (2, 5), np.ones(4))  # turned by half a turn
    warped = np.asarray(result.warp("tps", keypoints=flipped).convert("L")).astype(float)
    straight = np.asarray(result.warp("tps").convert("L")).astype(float)
    assert np.abs(warped[::-1, ::-1] - straight).mean() < 3


def test_warp_refuses() -> None:
    result = identity()
    with pytest.raises(InputError, match="flow or tps"):
        result.warp("magic")
    with pytest.raises(InputError, match="keypoints are for the method tps"):
        result.warp("flow", keypoints=result.matches(5))
    with pytest.raises(InputError, match="holds no pictures"):
        dataclasses.replace(result, source=unseen(result.source_size)).warp()
    with pytest.raises(InputError, match="a size must be"):
        result.warp(size=(0, 5))
    with pytest.raises(InputError, match="at least three matches"):
        result.warp("tps", keypoints=result.matches(2))
    with pytest.raises(InputError, match="in pairs, got 9 of the source and 8"):
        result.warp("tps", keypoints=result.matches(9)._replace(target=result.matches(8).target))


def test_a_few_matches_lie_far_apart_and_the_best_stays_first() -> None:
    result = identity((80, 80), (80, 80))

    def nearest(points: np.ndarray) -> float:
        distances = np.linalg.norm(points[:, None] - points, axis=2)
        return float(distances[~np.eye(len(points), dtype=bool)].min())

    best, spread = result.matches(5), result.matches(5, spread=True)
    assert nearest(best.source) < 12  # neighbours on the grid
    assert nearest(spread.source) > 16
    np.testing.assert_array_equal(spread.source[0], best.source[0])
    assert (np.diff(spread.confidence) <= 0).all()
    assert len(result.matches(1000, spread=True).source) == len(result.matches(1000).source) == 64


# ---------------------------------------------------------------- heat and scales


def test_heat_is_a_distribution_whose_mean_is_the_transfer() -> None:
    result = random_result()
    point = [40.0, 30.0]
    heat = result.heat(point)
    assert heat.shape == (5, 4)
    assert heat.sum() == pytest.approx(1, abs=1e-5)
    grid = grid_points((5, 4), like=torch.zeros(1)).numpy()
    mean = (heat[..., None] * grid).sum((0, 1))
    expected = pixels_to_normalised(result.locate(point), result.target_size)[0]
    np.testing.assert_allclose(mean, expected, atol=1e-5)
    with pytest.raises(InputError, match="one point, got 2"):
        result.heat([[1, 2], [3, 4]])


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_heat_of_a_target_in_another_pose_lies_over_the_target_as_it_is(turn: int, mirrored: bool) -> None:
    result = random_result(target=View(unseen((80, 40)).picture, None, mirrored, turn))
    heat = result.heat([40.0, 30.0])
    assert heat.shape == ((5, 4) if turn % 180 == 0 else (4, 5))
    grid = grid_points(heat.shape, like=torch.zeros(1)).numpy()
    found = normalised_to_pixels((heat[..., None] * grid).sum((0, 1)), (80, 40))
    np.testing.assert_allclose(found, result.locate([40.0, 30.0])[0], atol=1e-3)


def test_heat_of_a_part_lies_in_that_part() -> None:
    result = random_result(target=View(unseen((80, 40)).picture, (10, 40, 30, 80)))
    heat = result.heat([40.0, 30.0])
    assert heat.shape == (9, 7)  # as fine as the grid of the part
    assert heat.sum() == pytest.approx(1, abs=1e-5)
    assert heat[:4].sum() == heat[:, :1].sum() == heat[:, 6:].sum() == 0
    tiny = random_result(target=View(unseen((80_000, 40_000)).picture, (10, 40, 30, 80)))
    assert tiny.heat([40.0, 30.0]).shape == (512, 512)
    assert tiny.heat([40.0, 30.0])[0, 0] == 1


def test_winning_scales() -> None:
    pairs = torch.zeros(1, 2, 2, 2, 2, dtype=torch.int64)
    pairs[0, 1, 1, 0, 0] = 5  # bottom right of the source to top left of the target: second scale, third scale
    result = random_result(scale_pairs=pairs, scales=(0.5, 1.0, 2.0))
    matches = Matches(np.array([[90.0, 50], [0, 0]]), np.array([[0.0, 0], [0, 0]]), np.ones(2))
    np.testing.assert_array_equal(result.winning_scales(matches), [[1.0, 2.0], [0.5, 0.5]])


def test_winning_scales_say_why_there_are_none() -> None:
    with pytest.raises(InputError, match="one scale"):
        random_result().winning_scales(random_result().matches(3))
    with pytest.raises(InputError, match="scales=True"):
        random_result(scales=(1.0, 2.0)).winning_scales(random_result().matches(3))


# ---------------------------------------------------------------- equality and files


def test_equality_is_about_scores_and_sizes() -> None:
    assert random_result() == random_result(source=View.of(Image.new("RGB", (90, 50))))
    assert random_result() != random_result(source=unseen((51, 90)))
    assert random_result() != "something else"


def test_saved_and_loaded_gives_the_same_transfers(tmp_path: Path) -> None:
    result = random_result(
        scale_pairs=torch.randint(0, 4, (1, 3, 3, 2, 2)),
        scales=(0.7, 1.4),
        source=View.of(Image.new("RGB", (90, 50))),
    )
    result = dataclasses.replace(result, keypoints=result.transfer([[3, 4], [50.5, 20]]))
    path = tmp_path / "result.safetensors"
    result.save(path)
    loaded = MatchResult.load(path)
    assert loaded == result
    assert loaded.source_picture is None
    points = np.random.default_rng(0).uniform(0, 50, (20, 2))
    for mine, theirs in zip(result.transfer(points), loaded.transfer(points), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert loaded.keypoints is not None
    assert result.keypoints is not None
    for mine, theirs in zip(result.keypoints, loaded.keypoints, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    torch.testing.assert_close(loaded.scale_pairs, result.scale_pairs)
    assert loaded.scales == result.scales
    with pytest.raises(InputError, match="exists already"):
        result.save(path)
    result.save(path, overwrite=True)
    with pytest.raises(InputError, match=r"must end in \.safetensors"):
        result.save(tmp_path / "result.npz")


def test_the_foreground_is_saved(tmp_path: Path) -> None:
    foreground = torch.rand(1, 3, 4)
    result = random_result(foreground=(foreground, foreground))
    for number, each in enumerate((result, random_result(foreground=(None, foreground)), random_result())):
        each.save(tmp_path / f"{number}.safetensors")
        loaded = MatchResult.load(tmp_path / f"{number}.safetensors")
        for mine, theirs in zip(each.foreground, loaded.foreground, strict=True):
            assert (mine is None) == (theirs is None)
            torch.testing.assert_close(theirs, mine)
        np.testing.assert_array_equal(loaded.matches(5).source, each.matches(5).source)


def test_the_probabilities_of_both_poses_are_saved(tmp_path: Path) -> None:
    random_result(pose_probability=0.33, other_pose_probability=0.22).save(tmp_path / "result.safetensors")
    loaded = MatchResult.load(tmp_path / "result.safetensors")
    assert (loaded.pose_probability, loaded.other_pose_probability) == (0.33, 0.22)


def test_keypoints_that_stay_where_they_are_can_be_saved(tmp_path: Path) -> None:
    points = np.array([[3.0, 4.0]])
    result = random_result(keypoints=Matches(points, points, np.ones(1)))
    result.save(tmp_path / "result.safetensors")
    loaded = MatchResult.load(tmp_path / "result.safetensors").keypoints
    assert loaded is not None
    np.testing.assert_array_equal(loaded.target, points)


def metadata(**changes: str) -> dict[str, str]:
    sound = {
        "format": "chmnet-result-1",
        "source_size": "[50, 90]",
        "target_size": "[80, 40]",
        "config": json.dumps(TransferConfig().to_dict()),
        "scales": "[1.0]",
    }
    return {**sound, **changes}


SOUND = {"correlation": torch.rand(1, 1, 2, 2, 2, 2)}
POINTS = torch.zeros(2, 2)


def test_control_a_sound_file_is_read(tmp_path: Path) -> None:
    save_file(SOUND, tmp_path / "r.safetensors", metadata())
    assert MatchResult.load(tmp_path / "r.safetensors").source_size == (50, 90)


@pytest.mark.parametrize(
    ("stored", "calibration"),
    [
        ("[1, 2, 3, 4]", CalibrationConfig(match=(1, 2, 3, 4))),
        ('{"same_kind": [1, 2, 3]}', CalibrationConfig(same_kind=(1, 2, 3))),
    ],
)
def test_calibrations_of_files(tmp_path: Path, stored: str, calibration: CalibrationConfig) -> None:
    """A list is the calibration of matches alone."""
    views = {"source": '{"size": [50, 90]}', "target": '{"size": [80, 40]}'}
    notes = metadata(format="chmnet-result-2", calibration=stored, **views)
    save_file(SOUND, tmp_path / "r.safetensors", notes)
    assert MatchResult.load(tmp_path / "r.safetensors").calibration == calibration


@pytest.mark.parametrize(
    ("tensors", "notes", "words"),
    [
        (SOUND, {"format": "chmnet-model-1"}, "not a result of matching"),
        ({}, metadata(), "damaged"),
        ({"correlation": torch.rand(2, 2)}, metadata(), "shape"),
        ({"correlation": torch.rand(1, 1, 2, 2, 0, 2)}, metadata(), "shape"),
        ({"correlation": torch.full((1, 1, 1, 1, 1, 1), torch.nan)}, metadata(), "finite"),
        ({"correlation": torch.ones(1, 1, 1, 1, 1, 1, dtype=torch.int64)}, metadata(), "finite"),
        ({"correlation": torch.ones(1, 1, 1, 1, 1, 1).to(torch.float8_e4m3fn)}, metadata(), "damaged"),
        (SOUND, metadata(source_size="[0, 5]"), "size"),
        (SOUND, metadata(source_size="[1e400, 5]"), "size"),
        (SOUND, metadata(target_size="[[[[["), "damaged"),
        (SOUND, metadata(target_size="7"), "damaged"),
        (SOUND, metadata(config='{"temperature": -1}'), "temperature"),
        (SOUND, metadata(config="[]"), "damaged"),
        (SOUND, metadata(scales="[]"), "scales"),
        (SOUND, metadata(scales="[NaN]"), "scales"),
        (SOUND, metadata(facing="[1]"), "damaged"),
        ({**SOUND, "likeness": torch.rand(1, 2, 2)}, metadata(), "likeness has the shape"),
        ({**SOUND, "likeness": torch.full((1, 1, 1, 1, 1), torch.nan)}, metadata(), "likeness is not all finite"),
        ({**SOUND, "scale_pairs": torch.zeros(3)}, metadata(), "scale pairs"),
        ({**SOUND, "scale_pairs": torch.ones(1, 1, 1, 1, 1, dtype=torch.complex64)}, metadata(), "scale pairs"),
        ({**SOUND, "scale_pairs": torch.full((1, 1, 1, 1, 1), 7)}, metadata(), "does not have"),
        ({**SOUND, "foreground.source": torch.rand(2, 2)}, metadata(), "foreground has the shape"),
        ({**SOUND, "foreground.target": torch.full((1, 2, 2), 1.5)}, metadata(), "not all probabilities"),
        ({**SOUND, "foreground.target": torch.full((1, 2, 2), torch.nan)}, metadata(), "not all probabilities"),
        ({**SOUND, "keypoints.source": POINTS}, metadata(), "damaged"),
        (
            {**SOUND, **{f"keypoints.{name}": POINTS for name in ("source", "target", "confidence")}},
            metadata(),
            "do not go together",
        ),
        (
            {
                **SOUND,
                "keypoints.source": POINTS / 0,
                "keypoints.target": POINTS,
                "keypoints.confidence": torch.ones(2),
            },
            metadata(),
            "keypoints are not all finite",
        ),
    ],
)
def test_hostile_files(
    tensors: dict[str, torch.Tensor], notes: dict[str, str], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.safetensors"
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, path, notes)
    with pytest.raises(InputError, match=words) as error:
        MatchResult.load(path)
    assert "\n" not in str(error.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no result file"):
        MatchResult.load(tmp_path / "none.safetensors")
    with pytest.raises(InputError, match="is a folder"):
        MatchResult.load(tmp_path)
    path = tmp_path / "text.safetensors"
    path.write_text("hello")
    with pytest.raises(InputError, match="not a whole safetensors file"):
        MatchResult.load(path)


# ---------------------------------------------------------------- several things


def doubled() -> MatchResult:
    """A result whose target shows the source twice, side by side, less well on the right."""
    scores = torch.zeros(1, 1, 6, 6, 6, 14)
    for row in range(6):
        for column in range(6):
            scores[0, 0, row, column, row, column] = 1
            scores[0, 0, row, column, row, column + 8] = 0.9
    known = {"foreground": (torch.ones(1, 6, 6), torch.ones(1, 6, 14)), "likeness": scores[0]}
    return MatchResult(scores, unseen((50, 50)), unseen((50, 130)), SHARP, **known)


def test_instances_are_results_of_their_own() -> None:
    result = doubled()
    left, right = result.instances()
    assert left.transfer([[20, 30]]).target.tolist() == pytest.approx(np.array([[20.0, 30.0]]))
    assert right.transfer([[20, 30]]).target.tolist() == pytest.approx(np.array([[100.0, 30.0]]))
    assert right.flow((5, 5)).shape == (5, 5, 2)
    groups = result.matches(20, instances=3)
    assert len(groups) == 2
    assert groups[0].target[:, 0].max() <= 60
    assert groups[1].target[:, 0].min() >= 65
    assert len(result.instances(1)) == 1


def test_one_thing_is_the_whole_result() -> None:
    result = identity()
    (only,) = result.instances(3)
    assert only == result
    np.testing.assert_array_equal(result.matches(9, instances=3)[0].target, result.matches(9).target)


def test_no_instances_are_none() -> None:
    with pytest.raises(InputError, match="instances must be at least 1, got 0"):
        identity().matches(instances=0)
