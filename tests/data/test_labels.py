"""Labels to propagate: nothing is left out in silence, and every mistake is one sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chmnet.data.coco import load_labels
from chmnet.errors import InputError

from . import trees

EXIF_ORIENTATION = 0x0112


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return trees.make_coco(tmp_path) / trees.COCO


def test_categories_and_objects(file: Path) -> None:
    trees.edit_json(file, lambda document: document["categories"][0].update(skeleton=[[1, 2], [4, 1]]))
    labels = load_labels(file)
    cup, cat = labels.categories  # the third has no keypoints
    assert (cup.identifier, cup.name, cup.skeleton) == (1, "cup", ((1, 2), (4, 1)))
    assert cup.keypoint_names == ("handle", "left rim", "right rim", "foot")
    assert [len(labels.of(category)) for category in (cup, cat)] == [4, 4]
    assert labels.instances[0].size == (trees.HEIGHT, trees.WIDTH)
    assert [one.category for one in load_labels(file, categories=["cat"]).instances] == ["cat"] * 4


def test_pictures_under_another_root_and_anywhere(file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "Ünïcode 図"
    elsewhere.mkdir()
    moved = file.rename(elsewhere / "labels.json")
    with pytest.raises(InputError, match="there is no image"):
        load_labels(moved)
    for picture in (tmp_path / "images").iterdir():
        picture.rename(tmp_path / picture.name)
    assert len(load_labels(moved, images_root=tmp_path).instances) == 8
    trees.edit_json(
        moved, lambda document: [i.update(file_name=f"../{i['file_name']}") for i in document["images"]]
    )
    assert len(load_labels(moved).instances) == 8


def test_keypoints_are_in_pixels_of_the_upright_picture(file: Path) -> None:
    path = file.parent / "picture0.png"
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = 6
    Image.new("RGB", (trees.HEIGHT, trees.WIDTH)).save(path, exif=exif)  # lies on its side
    assert load_labels(file).instances[0].size == (trees.HEIGHT, trees.WIDTH)
    Image.new("RGB", (trees.WIDTH, trees.HEIGHT)).save(path, exif=exif)
    with pytest.raises(InputError, match=r"says 40×30 pixels, but .*picture0.png has 30×40 as seen \(upright\)"):
        load_labels(file)


def annotation(**values: object) -> Callable[[dict], object]:
    return lambda document: document["annotations"][0].update(values)


def test_objects_of_other_categories_may_be_broken(file: Path) -> None:
    trees.edit_json(file, annotation(keypoints=[1, 2]))
    assert len(load_labels(file, categories=["cat"]).instances) == 4
    with pytest.raises(InputError, match="must have 12 numbers"):
        load_labels(file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (annotation(keypoints=[float("nan"), 1, 2] * 4), "'keypoints', value 1, is not a number (NaN)"),
        (annotation(keypoints=[1e300, 1, 2] * 4), "'keypoints', value 1, is 1e+300, larger than any picture"),
        (annotation(keypoints=[10**400, 1, 2] * 4), "larger than any picture"),
        (annotation(keypoints=["left", 1, 2] * 4), "must be a number, got 'left'"),
        (annotation(keypoints=[1, 2, 2]), "must have 12 numbers (x, y, v of 4), got 3"),
        (annotation(keypoints={"x": 1}), "'keypoints' must be a list"),
        (annotation(keypoints=[41, 5, 2] * 4), "handle at (41, 5) lies outside the picture of 40×30 pixels"),
        (annotation(category_id=99), "there is no category with the id 99"),
        (annotation(category_id=[1]), "'category_id' must be a whole number"),
        (annotation(image_id=99), "there is no image with the id 99"),
        (annotation(id=5001), "2 annotations have the id 5001; ids must differ"),
        (
            lambda document: document["images"][1].update(id=100),
            "images entry 2: entry 1 has the id 100",
        ),
        (
            lambda document: document["categories"][1].update(id=1),
            "categories entry 2: entry 1 has the id 1",
        ),
        (lambda document: document["categories"][1].update(name="cup"), "two categories have the name 'cup'"),
        (lambda document: document["categories"][2].update(name=5), "category 9: 'name' must be a text"),
        (
            lambda document: document["categories"][0].update(skeleton=[[1, 9]]),
            "must join two of 1 … 4, got [1, 9]",
        ),
        (lambda document: document["categories"][0].update(skeleton=3), "'skeleton' must be a list"),
        (
            lambda document: document["categories"][0].update(flip_idx=[1, 2, 0, 3]),
            "'flip_idx' must exchange the rows 0 … 3 in pairs, got [1, 2, 0, 3]",
        ),
        (lambda document: document["images"][0].update(file_name="gone.png"), "there is no image"),
        (lambda document: document["images"][0].update(file_name=""), "the image '' must be"),
        (lambda document: document["images"][0].update(width=50), "the file says 50×30 pixels"),
        (lambda document: document.update(annotations=[]), "has no annotation with a visible keypoint (v > 0)"),
        (
            lambda document: [one.pop("keypoints", None) for one in document["annotations"]],
            "has no annotation with a visible keypoint",
        ),
        (lambda document: document.pop("categories"), "there is no 'categories'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes(file: Path, change: Callable[[dict], object], words: str) -> None:
    trees.edit_json(file, change)
    with pytest.raises(InputError) as caught:
        load_labels(file)
    assert words in str(caught.value)
    assert str(file.parent) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_none(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; name a file of COCO keypoints"):
        load_labels(tmp_path)
    with pytest.raises(InputError, match="there is no file"):
        load_labels(tmp_path / "none.json")
    with pytest.raises(
        InputError, match=r"there is no folder .*; name the folder that holds the labelled pictures"
    ):
        load_labels(file, images_root=tmp_path / "none")
    with pytest.raises(InputError, match="has no category 'dog'; it has 'cup', 'cat', 'thing'"):
        load_labels(file, categories=["dog"])
    with pytest.raises(InputError, match="no annotation of 'thing' with a visible keypoint"):
        load_labels(file, categories=["thing"])
    for text, words in (("[1]", "must be an object"), ("{", "not JSON"), ("1" * 5000, "too many digits")):
        file.write_text(text)
        with pytest.raises(InputError, match=words):
            load_labels(file)


def test_broken_picture(file: Path) -> None:
    (file.parent / "picture0.png").write_text("no picture")
    with pytest.raises(InputError, match=r"picture0.png is not a picture"):
        load_labels(file)


def test_hidden_keypoints_have_no_place(file: Path) -> None:
    trees.edit_json(file, annotation(keypoints=[5, 6, 2, 0, 0, 0, 7, 8, 1, 999, 999, 0]))
    expected = [[5, 6], [np.nan, np.nan], [7, 8], [np.nan, np.nan]]
    np.testing.assert_array_equal(load_labels(file).instances[0].keypoints, expected)
    assert json.loads(file.read_text())["annotations"][0]["keypoints"][-1] == 0
