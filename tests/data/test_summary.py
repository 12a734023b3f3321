"""What the summary counts, and what only opening the images tells."""

import json
from pathlib import Path

import pytest
from PIL import Image

from chmnet.data import load_pairs
from chmnet.data.pairs import open_mask
from chmnet.data.summary import summarise
from chmnet.errors import InputError

from . import trees
from .trees import edit_json, replace_text, write

IMAGE = "PF-dataset/car(G)/Cars_001a.png"


def assert_only_problem(root: Path, dataset: str, *words: str) -> None:
    load_pairs(dataset, root)
    problems = summarise(dataset, root).problems
    assert len(problems) == 1, problems
    for word in words:
        assert word in problems[0]


def test_broken_image(tmp_path: Path) -> None:
    trees.make_pf_willow(tmp_path)
    (tmp_path / "PF-WILLOW" / IMAGE).write_bytes(b"this is no picture")
    assert_only_problem(tmp_path, "pf-willow", "test_pairs.csv line 2", "Cars_001a.png is not a picture")


def test_image_cut_off(tmp_path: Path) -> None:
    trees.make_pf_willow(tmp_path)
    file = tmp_path / "PF-WILLOW" / IMAGE
    file.write_bytes(file.read_bytes()[:60])
    assert_only_problem(tmp_path, "pf-willow", "line 2", "Cars_001a.png cannot be read as a picture")


def test_keypoint_outside(tmp_path: Path) -> None:
    trees.make_pf_pascal(tmp_path)
    replace_text(tmp_path / trees.PASCAL_LIST, "14;15;16", "14;15;40.5")
    words = "the keypoint (40.5, 19.0) lies outside 2008_000002.jpg of 40×30 pixels"
    assert_only_problem(tmp_path, "pf-pascal", "test_pairs.csv line 2", words)


def test_keypoint_outside_of_made_pairs(tmp_path: Path) -> None:
    trees.make_coco(tmp_path)
    edit_json(tmp_path / trees.COCO, lambda document: document["annotations"][1]["keypoints"].__setitem__(0, -2))
    assert_only_problem(tmp_path, "coco", "annotations entry 2: left_eye at (-2.0, 6.0) lies outside")


def test_duplicate_pair(tmp_path: Path) -> None:
    trees.make_pf_willow(tmp_path)
    file = tmp_path / trees.WILLOW_LIST
    write(file, file.read_text() + file.read_text().splitlines()[1] + "\n")
    assert_only_problem(tmp_path, "pf-willow", f"{file} line 4: the same pair as {file} line 2")


def test_repeated_training_pairs_are_counted_only(tmp_path: Path) -> None:
    found = summarise("pf-pascal", trees.make_pf_pascal(tmp_path), "train")
    assert found.repeated_pairs == 1
    assert found.problems == ()


def test_unknown_category(tmp_path: Path) -> None:
    trees.make_pf_willow(tmp_path)
    (tmp_path / "PF-WILLOW/PF-dataset/car(G)").rename(tmp_path / "PF-WILLOW/PF-dataset/boat(X)")
    write(tmp_path / trees.WILLOW_LIST, (tmp_path / trees.WILLOW_LIST).read_text().replace("car(G)", "boat(X)"))
    problems = summarise("pf-willow", tmp_path).problems
    assert len(problems) == 2
    assert "line 2: unknown category 'boat(X)'; pf-willow has only car(G), " in problems[0]


def test_image_changed_after_it_was_annotated(tmp_path: Path) -> None:
    trees.make_coco(tmp_path)
    trees.make_image(tmp_path / "images/picture1.png", width=80, height=60)
    assert_only_problem(tmp_path, "coco", "entry 2: the image is said to have 40×30 pixels", "has 80×60")


def test_masks(tmp_path: Path) -> None:
    trees.make_spair(tmp_path)
    folder = tmp_path / "SPair-71k/Segmentation/cat"
    Image.new("L", (9, 9), 1).save(folder / "2007_000001.png")
    Image.new("L", (trees.WIDTH, trees.HEIGHT)).save(folder / "2007_000002.png")
    (folder / "2007_000003.png").write_bytes(b"none")
    problems = "\n".join(summarise("spair-71k", tmp_path).problems)
    assert "2007_000001.png is not of the size of its image" in problems
    assert "2007_000002.png is empty" in problems
    assert "2007_000003.png cannot be read as a mask" in problems
    with pytest.raises(InputError, match="there is no mask"):
        open_mask(folder / "gone.png")


def test_every_problem_is_told_not_only_the_first(tmp_path: Path) -> None:
    trees.make_pf_willow(tmp_path)
    replace_text(tmp_path / trees.WILLOW_LIST, "Cars_000a.png", "gone.png")
    replace_text(tmp_path / trees.WILLOW_LIST, "Cars_002a.png", "lost.png")
    found = summarise("pf-willow", tmp_path)
    assert found.pairs == 0
    assert [problem.partition(": ")[0].rpartition("csv ")[2] for problem in found.problems] == ["line 2", "line 3"]


def test_summary_as_json(tmp_path: Path) -> None:
    found = summarise("spair-71k", trees.make_spair(tmp_path))
    document = json.loads(json.dumps(found.as_json()))
    assert document["pairs"] == document["boxes"] == document["masks"] == 2
    assert document["images"] == 3
    assert document["categories"] == {"cat": 2}
    assert document["keypoints"] == {"smallest": 3, "median": 3, "largest": 3}
    assert document["widths"]["largest"] == trees.WIDTH
    assert document["problems"] == []
