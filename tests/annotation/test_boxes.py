"""Boxes that a person drew around the objects of the pictures to label."""

import json
from pathlib import Path

import numpy as np
import pytest

from chmnet.annotation import (
    Origin,
    PartialFile,
    TargetBox,
    describe_run,
    draw_sheet,
    load_target_boxes,
    propagate,
    to_coco,
)
from chmnet.data.coco import Labels, load_labels
from chmnet.errors import InputError
from chmnet.matcher import Matcher
from chmnet.pictures import to_picture
from tests.data.trees import edit_json

from .tiny import POINTS, noise_picture, small_model, tiny_model, write_labels


def write_boxes(path: Path, boxes: dict[str, list[list[float]]], category: str = "") -> Path:
    """A COCO file with boxes (left, top, width, height) of pictures."""
    document: dict = {"images": [], "annotations": []}
    for number, (name, rows) in enumerate(boxes.items(), start=1):
        document["images"].append({"id": number, "file_name": name})
        document["annotations"] += [{"image_id": number, "bbox": row} for row in rows]
    if category:
        document["categories"] = [{"id": 3, "name": category}]
        document["annotations"] = [{**entry, "category_id": 3} for entry in document["annotations"]]
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def labels(tmp_path: Path) -> Labels:
    noise_picture(tmp_path / "source.png", 0)
    return load_labels(write_labels(tmp_path / "labels.json", ["source.png"]))


@pytest.fixture
def twins(tmp_path: Path, labels: Labels) -> Path:
    """A picture that shows the labelled one twice, on noise."""
    noise_picture(tmp_path / "twins.png", 5, (300, 120))
    thing, canvas = to_picture(tmp_path / "source.png"), to_picture(tmp_path / "twins.png")
    canvas.paste(thing, (20, 30))
    canvas.paste(thing, (200, 50))
    canvas.save(tmp_path / "twins.png")
    return tmp_path / "twins.png"


def test_each_box_becomes_an_annotation_in_pixels_of_the_whole_picture(
    labels: Labels, twins: Path, tmp_path: Path
) -> None:
    file = write_boxes(tmp_path / "boxes.json", {"any/folder/twins.png": [[20, 30, 64, 48], [200, 50, 64, 48]]})
    plain = noise_picture(tmp_path / "plain.png", 2)
    boxes = load_target_boxes(file, [twins, plain], labels)
    assert boxes == {twins: [TargetBox((20, 30, 84, 78)), TargetBox((200, 50, 264, 98))]}
    partial = PartialFile(tmp_path / "partial")
    partial.start({})
    found, whole = propagate(labels, [twins, plain], small_model(), partial, poses="upright", boxes=boxes).found
    assert (found.size, len(whole.objects), whole.objects[0].box) == ((120, 300), 1, None)
    for moved, corner in zip(found.objects, [(20, 30), (200, 50)], strict=True):
        assert np.median(np.abs(moved.points - (np.array(POINTS) + corner))) < 8
    result = Matcher(small_model(), poses="upright").match(
        tmp_path / "source.png", twins, boxes=(None, (200, 50, 264, 98))
    )
    np.testing.assert_allclose(found.objects[1].points, result.transfer(np.array(POINTS)).target, atol=0.01)
    again = PartialFile(tmp_path / "partial").get(twins)
    assert again is not None
    assert [moved.box for moved in again.objects] == [each.box for each in boxes[twins]]
    document = to_coco(labels, [found], tmp_path / "out.json", Origin("small", "", 0.5))
    assert [entry["bbox"] for entry in document["annotations"]] == [[20, 30, 64, 48], [200, 50, 64, 48]]
    assert [entry["image_id"] for entry in document["annotations"]] == [1, 1]


def test_boxes_belong_to_what_describes_a_run(labels: Labels, twins: Path) -> None:
    def describe(*boxes: TargetBox) -> dict:
        return describe_run(labels, {}, "cpu", boxes={twins: list(boxes)})

    one, other = TargetBox((1, 2, 30, 40)), TargetBox((1, 2, 30, 41))
    assert describe(one) == describe(one)
    assert len({describe(*each)["target_boxes"] for each in ([], [one], [other], [one, other])}) == 4
    assert (
        describe_run(labels, {}, "cpu")["target_boxes"]
        == describe_run(labels, {}, "cpu", boxes={})["target_boxes"]
    )


def test_categories_of_boxes_are_those_of_the_labels(labels: Labels, twins: Path, tmp_path: Path) -> None:
    file = write_boxes(tmp_path / "boxes.json", {"twins.png": [[20, 30, 64, 48]]}, "cat")
    assert load_target_boxes(file, [twins], labels) == {twins: [TargetBox((20, 30, 84, 78), "cat")]}

    def add_dog(document: dict) -> None:
        document["categories"].append({"id": 4, "name": "dog"})
        document["images"].append({"id": 2, "file_name": "plain.png"})
        document["annotations"].append({"image_id": 2, "category_id": 4, "bbox": [1, 1, 9, 9]})

    edit_json(file, add_dog)
    plain = noise_picture(tmp_path / "plain.png", 2)
    boxes = load_target_boxes(file, [twins, plain], labels)
    assert boxes[plain] == []  # it shows a dog, and no cat: nothing to label
    partial = PartialFile(tmp_path / "partial")
    partial.start({})
    outcome = propagate(labels, [twins, plain], tiny_model(), partial, boxes=boxes)
    assert [len(found.objects) for found in outcome.found] == [1, 0]
    document = to_coco(labels, outcome.found, tmp_path / "out.json", Origin("tiny", "", 0.5))
    assert (len(document["images"]), len(document["annotations"])) == (2, 1)
    draw_sheet(labels, outcome.found, 0.5)
    file = write_boxes(tmp_path / "boxes.json", {"twins.png": [[20, 30, 64, 48]]}, "dog")
    with pytest.raises(InputError, match=r"has boxes of 'dog' only, but .*labels\.json labels 'cat'"):
        load_target_boxes(file, [twins], labels)


def test_pictures_of_one_name_are_told_apart_by_their_folders(labels: Labels, tmp_path: Path) -> None:
    first, second = (noise_picture(tmp_path / folder / "1.png", 1) for folder in ("a", "b"))
    file = write_boxes(tmp_path / "boxes.json", {"b/1.png": [[1, 1, 9, 9]]})
    assert list(load_target_boxes(file, [first, second], labels)) == [second]
    file = write_boxes(tmp_path / "boxes.json", {"1.png": [[1, 1, 9, 9]]})
    with pytest.raises(InputError, match=r"'1\.png' may be .*; write more of its path"):
        load_target_boxes(file, [first, second], labels)


def test_labelled_and_unreadable_pictures_are_no_mistake(labels: Labels, tmp_path: Path) -> None:
    good, broken = noise_picture(tmp_path / "good.png", 1), tmp_path / "broken.png"
    broken.write_text("no picture")
    rows = {"good.png": [[1.0, 1, 9, 9]], "broken.png": [[1.0, 1, 9, 9]], "source.png": [[1.0, 1, 9, 9]]}
    file = write_boxes(tmp_path / "boxes.json", rows)
    boxes = load_target_boxes(file, [good, broken], labels, leave_out=[tmp_path / "source.png"])
    assert list(boxes) == [good, broken]
    partial = PartialFile(tmp_path / "partial")
    partial.start({})
    outcome = propagate(labels, [good, broken], tiny_model(), partial, boxes=boxes)
    assert [one.path for one in outcome.found] == [good]
    assert [one.path for one in outcome.skipped] == [broken]


@pytest.mark.parametrize(
    ("boxes", "words"),
    [
        ({"other.png": [[1, 1, 9, 9]]}, "'other.png' is none of the pictures to label"),
        ({"": [[1, 1, 9, 9]]}, "'' is none of the pictures to label"),
        (
            {"a.png": [[64, 1, 9, 9]]},
            r"entry 1: the box from \(64, 1\) to \(73, 10\) lies outside the picture of 64×48",
        ),
        ({"a.png": [[1, 1, 0, 9]]}, "left < right"),
        ({"a.png": [[1, 1, 9]]}, "'bbox' has 4 numbers, got 3"),
        ({"a.png": []}, "has no annotation with a box"),
    ],
)
def test_wrong_boxes_are_refused(boxes: dict, words: str, labels: Labels, tmp_path: Path) -> None:
    target = noise_picture(tmp_path / "a.png", 1)
    with pytest.raises(InputError, match=words):
        load_target_boxes(write_boxes(tmp_path / "boxes.json", boxes), [target], labels)


def test_pictures_of_another_size_and_folders_are_refused(labels: Labels, tmp_path: Path) -> None:
    target = noise_picture(tmp_path / "a.png", 1)
    file = write_boxes(tmp_path / "boxes.json", {"a.png": [[1, 1, 9, 9]]})
    edit_json(file, lambda document: document["images"][0].update(width=640, height=480))
    with pytest.raises(InputError, match=r"the file says 640×480 pixels, but .*a\.png has 64×48"):
        load_target_boxes(file, [target], labels)
    with pytest.raises(InputError, match="is a folder; name a COCO file with boxes"):
        load_target_boxes(tmp_path, [target], labels)
