"""The page's sampler, run by Node.js, held against that of the library."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import chmnet
from chmnet.cli.io import print_pose
from chmnet.config import TransferConfig
from chmnet.features import describe_view
from chmnet.geometry import Size, normalised_to_pixels, pixels_to_normalised
from chmnet.ops.transfer import sampler_weights
from chmnet.pictures import Picture, View
from chmnet.result import MatchResult
from chmnet.web.app import STATIC
from chmnet.web.container import LIKELIHOOD_STEP, pack, pack_result

from .conftest import DONKEY, ZEBRA

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node, which runs the page's JavaScript, is not installed")

SCRIPT = """
import { readFileSync } from "node:fs";
import { Pair } from "./pair.mjs";

const cases = JSON.parse(readFileSync("cases.json"));
console.log(JSON.stringify(cases.map((points, number) => {
  const file = readFileSync(`${number}.bin`);
  const pair = new Pair(file.buffer.slice(file.byteOffset, file.byteOffset + file.length));
  return {
    transfer: points.map(([x, y]) => pair.transfer(x, y)),
    heat: points.map(([x, y]) => Array.from(pair.heat(x, y))),
    matches: pair.matches(50),
    transform: pair.targetView.transform(),
  };
})));
"""


def run_page(answers: list[bytes], points: np.ndarray, folder: Path) -> list[dict[str, Any]]:
    """What the page computes from each of the server's answers, without a browser."""
    assert NODE is not None
    shutil.copy(STATIC / "pair.js", folder / "pair.mjs")
    (folder / "run.mjs").write_text(SCRIPT, encoding="utf-8")
    (folder / "cases.json").write_text(json.dumps([points.tolist()] * len(answers)), encoding="utf-8")
    for number, answer in enumerate(answers):
        (folder / f"{number}.bin").write_bytes(answer)
    run = subprocess.run([NODE, "run.mjs"], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


def points_of(size: Size) -> np.ndarray:
    """Random points, corners, borders, and points far outside of a picture; none is as near to two grid points."""
    height, width = size
    inside = np.random.default_rng(1).uniform(0, 1, (20, 2))
    marked = [[0, 0], [1, 1], [0, 1], [0.51, 0.52], [1, 0.3], [-0.2, 0.52], [0.51, 1.4], [9, -9], [1e5, 1e5]]
    return np.concatenate([inside, np.array(marked)]) * (width, height)


GRIDS = [(30, 30), (7, 5), (1, 4), (1, 1)]
CONFIGS = [
    TransferConfig(),
    TransferConfig(scale_with_grid=False),
    TransferConfig(scale_with_grid=False, sampler_threshold=0.6),
    TransferConfig(sampler="nearest"),
]
SIZE, TARGET_SIZE = (161, 200), (90, 50)


def random_blocks(grid: Size) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(0)
    blocks = {
        "best": chance.uniform(0, 40, (3, 5)).astype(np.float32),
        "positions": chance.uniform(-1, 1, (*grid, 2)).astype(np.float32),
        "confidence": chance.uniform(0, 1, grid).astype(np.float32),
        "likelihood": chance.integers(0, 256, (grid[0] * grid[1], 6), dtype=np.uint8),
    }
    blocks["likelihood"][:, 0] = 255  # each row has a most likely place
    return blocks


def test_points_are_moved_as_by_the_library(tmp_path: Path) -> None:
    cases = [(grid, config, random_blocks(grid)) for grid in GRIDS for config in CONFIGS]
    answers = []
    for grid, config, blocks in cases:
        header = {
            "source_view": describe_view(View(Picture(None, SIZE))),
            "target_view": describe_view(View(Picture(None, TARGET_SIZE))),
            "source_grid": grid,
            "target_grid": (2, 3),
            "transfer": config.to_dict(),
            "likelihood_step": LIKELIHOOD_STEP,
        }
        answers.append(pack(header, blocks))
    points = points_of(SIZE)
    for (grid, config, blocks), found in zip(cases, run_page(answers, points, tmp_path), strict=True):
        places = pixels_to_normalised(torch.tensor(points), SIZE)[None]
        weights = sampler_weights(places, grid, config)[0].numpy()
        expected = normalised_to_pixels(weights @ blocks["positions"].reshape(-1, 2).astype(float), TARGET_SIZE)
        where = f"grid {grid}, {config}"
        moved = [(each["x"], each["y"]) for each in found["transfer"]]
        np.testing.assert_allclose(moved, expected, atol=1e-9, err_msg=where)
        trust = [each["confidence"] for each in found["transfer"]]
        np.testing.assert_allclose(trust, weights @ blocks["confidence"].ravel(), atol=1e-9, err_msg=where)
        coded = blocks["likelihood"].astype(float)
        likely = np.where(coded > 0, np.exp(LIKELIHOOD_STEP * (coded - 255)), 0)
        heat = weights @ (likely / likely.sum(1, keepdims=True))
        np.testing.assert_allclose(found["heat"], heat, atol=1e-9, err_msg=where)


def middle(view: View) -> tuple[int, int, int, int]:
    """Some of what lies in the middle of a frame."""
    height, width = view.size
    return width // 4, height // 5, width - width // 3, height - height // 4


@pytest.mark.parametrize("source_turn", [0, 90, 33.3])
@pytest.mark.parametrize("target_turn", [0, 90, 180, 270, 45, 200.7])
def test_views_are_mapped_as_by_the_library(source_turn: float, target_turn: float, tmp_path: Path) -> None:
    """Areas, mirrored, turned by any angle, in parts: points are in pixels of the whole pictures."""
    results, points = [], points_of(SIZE)
    for number, (source_area, target_area) in enumerate(((None, (5, 10, 45, 81)), ((30, 20, 170, 150), None))):
        source = View(Picture(None, SIZE), source_area, number == 1, source_turn)
        target = View(Picture(None, TARGET_SIZE), target_area, number == 0, target_turn)
        source, target = (
            replace(view, window=middle(view)) if number == cut and view.turn % 90 else view
            for cut, view in enumerate((source, target))
        )
        scores = torch.rand(1, 1, 7, 5, 6, 4, generator=torch.Generator().manual_seed(number))
        results.append(MatchResult(scores, source, target, TransferConfig(temperature=0.02)))
    for result, found in zip(results, run_page(list(map(pack_result, results)), points, tmp_path), strict=True):
        expected, best = result.transfer(points), result.matches(50)
        moved = [(each["x"], each["y"]) for each in found["transfer"]]
        np.testing.assert_allclose(moved, expected.target, atol=1e-4)
        np.testing.assert_allclose(
            [each["confidence"] for each in found["transfer"]], expected.confidence, atol=1e-6
        )
        for name in ("source", "target", "confidence"):
            np.testing.assert_allclose([each[name] for each in found["matches"]], getattr(best, name), atol=1e-4)
        corners, map_ = np.array([[-1.0, -1.0], [1, -1], [0.3, 0.6]]), np.array(found["transform"]).reshape(3, 2)
        np.testing.assert_allclose(corners @ map_[:2] + map_[2], result.target.to_picture(corners), atol=1e-9)


@pytest.mark.parametrize("model", ["chmnet-lite", "hough-prior", "nearest-neighbour"])
def test_the_page_shows_what_the_library_says(model: str, tmp_path: Path) -> None:
    result = chmnet.match(DONKEY, ZEBRA, model=model)
    points = np.array([[7.0, 72.0], [85.0, 44.0], [178.25, 38.5]])
    (found,) = run_page([pack_result(result)], points, tmp_path)
    moved, best = result.transfer(points), result.matches(50)
    np.testing.assert_allclose([(each["x"], each["y"]) for each in found["transfer"]], moved.target, atol=1e-3)
    np.testing.assert_allclose([each["confidence"] for each in found["transfer"]], moved.confidence, atol=1e-4)
    for name in ("source", "target", "confidence"):
        np.testing.assert_allclose([each[name] for each in found["matches"]], getattr(best, name), atol=1e-3)
    for point, heat in zip(points, np.array(found["heat"]), strict=True):
        expected = result.heat(point)
        assert abs(heat.sum() - 1) < 1e-6
        assert np.abs(heat.reshape(expected.shape) - expected).max() < 0.03 * expected.max() + 1e-4


def run_script(script: str, folder: Path) -> Any:
    """What a line of JavaScript gives that uses the page's functions."""
    assert NODE is not None
    shutil.copy(STATIC / "pair.js", folder / "pair.mjs")
    (folder / "run.mjs").write_text(
        f'import * as page from "./pair.mjs";\nconsole.log(JSON.stringify({script}));', encoding="utf-8"
    )
    run = subprocess.run([NODE, "run.mjs"], cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize(
    ("mirrored", "turn", "probability", "words"),
    [
        (False, 0, None, ""),
        (False, 0, 0.956, "The target was matched as it is, 96% sure."),
        (True, 0, 0.93, "The target was mirrored before matching, 93% sure."),
        (False, 90, 0.5, "The target was turned by 90° counter-clockwise before matching, 50% sure."),
        (True, 315.0, 1, "The target was mirrored, then turned by 45° clockwise before matching, 100% sure."),
    ],
)
def test_poses_in_the_words_of_the_command(
    mirrored: bool,
    turn: float,
    probability: float | None,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pose = json.dumps({"mirrored": mirrored, "turn": turn, "probability": probability})
    assert run_script(f"page.poseInWords({pose})", tmp_path) == words
    view = View(Picture(np.zeros((20, 30, 3), dtype=np.uint8)), mirrored=mirrored, turn=turn)
    scores = torch.zeros(1, 1, 2, 2, 2, 2)
    print_pose(MatchResult(scores, view, view, TransferConfig(), pose_probability=probability))
    said = capsys.readouterr().err.strip()
    assert words == f"T{said[1:]}." if said else "before" not in words


@pytest.mark.parametrize(
    ("same_kind", "words"),
    [(None, ""), (0.7, ""), (0.12, "The pictures seem to show different things, 88% sure.")],
)
def test_doubts_in_words(same_kind: float | None, words: str, tmp_path: Path) -> None:
    assert run_script(f"page.doubtInWords({json.dumps(same_kind)})", tmp_path) == words


@pytest.mark.parametrize(
    ("corners", "least", "box"),
    [
        (((10.2, 20.9), (30.1, 40)), 1, [10, 20, 31, 40]),
        (((30.1, 5), (10.2, 20.9)), 1, [10, 5, 31, 21]),
        (((-9, -9), (500, 500)), 1, [0, 0, 60, 50]),
        (((10, 10), (10, 10)), 1, None),
        (((10, 10), (14, 30)), 6, None),
        (((70, 10), (90, 30)), 1, None),
    ],
)
def test_boxes_between_corners(
    corners: tuple[tuple[float, float], tuple[float, float]], least: float, box: list[int] | None, tmp_path: Path
) -> None:
    first, second = (json.dumps({"x": x, "y": y}) for x, y in corners)
    found = run_script(f"page.boxBetween({first}, {second}, {{ width: 60, height: 50 }}, {least})", tmp_path)
    assert found == box


def test_exported_keypoints_say_the_box_that_was_drawn_and_what_lies_on_the_background(tmp_path: Path) -> None:
    assert NODE is not None
    shutil.copy(STATIC / "coco.js", tmp_path / "coco.mjs")
    point = {"x": 20, "y": 30, "confidence": 0.9, "unmatched": 0.1, "corrected": False, "doubtful": True}
    picture = {"name": "a.png", "width": 100, "height": 80}
    points = [{**point, "foreground": 0.05}, {**point, "x": 50, "foreground": 0.8, "doubtful": False}]
    items = [{"picture": picture, "points": points}, {"picture": picture, "points": points, "box": [5, 6, 70, 60]}]
    script = f'import {{ cocoOf }} from "./coco.mjs"; console.log(cocoOf({json.dumps(items)}, ["a", "b"], {{}}));'
    (tmp_path / "run.mjs").write_text(script, encoding="utf-8")
    run = subprocess.run([NODE, "run.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    plain, boxed = json.loads(run.stdout)["annotations"]
    assert (plain["bbox"], boxed["bbox"]) == ([20, 30, 30, 1], [5, 6, 65, 54])
    assert boxed["keypoint_foreground"] == [0.05, 0.8]
    assert boxed["review_keypoints"] == ["a"]
