"""A folder annotated on the page, held against the command line."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chmnet.data.coco import load_labels

from ..conftest import EXAMPLES
from .conftest import SPOTS, Visit

pytestmark = pytest.mark.slow


def test_annotate_a_folder(visit: Callable[..., Visit], tmp_path: Path) -> None:
    person = visit()
    person.page.click("#view-annotate")
    files = [str(EXAMPLES / name) for name in ("donkey.png", "zebra.png", "black-bear.png", "sedan.png")]
    person.page.set_input_files("[data-part=files-input]", files)
    person.wait("chmnet.annotate.items.length === 4")
    assert_clicks_hit_a_picture_before_it_is_painted(person)
    person.page.click(".thumb:has-text('donkey')")
    for spot in SPOTS:
        person.page.mouse.click(*person.at(spot, "[data-part=canvas]"))
    person.page.locator(".names input").first.fill("nose")
    labels = person.evaluate("chmnet.annotate.current.points.map(({x, y}) => [x, y])")
    person.page.click("[data-part=propagate]")
    person.wait("!chmnet.annotate.working && chmnet.annotate.items.every((item) => item.points.length)")
    sure = person.evaluate(
        "chmnet.annotate.order().slice(1).map((item) => Math.min(...item.points.map((point) => point.confidence)))"
    )
    assert sure == sorted(sure)  # the doubtful ones come first
    x, y = person.evaluate("(({x, y}) => chmnet.annotate.stage.toCanvas(x, y))(chmnet.annotate.current.points[0])")
    box = person.page.locator("[data-part=canvas]").bounding_box()
    person.page.mouse.move(box["x"] + x, box["y"] + y)
    person.page.mouse.down()
    person.page.mouse.move(box["x"] + x + 20, box["y"] + y + 20, steps=4)
    person.page.mouse.up()
    person.page.click("[data-part=right]")
    coco = json.loads(person.download(lambda: person.page.click("[data-part=export]")))
    assert coco["categories"][0]["keypoints"][0] == "nose"
    assert len(coco["images"]) == len(coco["annotations"]) == 4
    hand = [each for each in coco["annotations"] if any(each["corrected"])]
    assert len(hand) == 2  # the labelled one and the corrected one
    assert not any(each["needs_review"] for each in hand)
    compare_with_the_command(coco, labels, tmp_path)
    assert "from 2 labelled" in person.page.locator("[data-part=propagate]").inner_text()
    person.page.click("[data-part=propagate]")  # again: what was corrected stays, the others take a vote
    person.wait("!chmnet.annotate.working")
    again = json.loads(person.download(lambda: person.page.click("[data-part=export]")))
    after = {each["image_id"]: each["keypoints"] for each in again["annotations"]}
    names = {each["id"]: each["file_name"] for each in again["images"]}
    before = {each["file_name"]: entry for each, entry in zip(coco["images"], coco["annotations"], strict=True)}
    changed = {names[key]: keypoints != before[names[key]]["keypoints"] for key, keypoints in after.items()}
    assert [name for name, different in changed.items() if not different and any(before[name]["corrected"])]
    assert any(changed.values())
    assert person.errors == []


def assert_clicks_hit_a_picture_before_it_is_painted(person: Visit) -> None:
    """Pictures have different shapes; what was just opened must not be measured by the one before it."""
    places = person.evaluate(
        """chmnet.annotate.items.map((item) => {
          const { stage } = chmnet.annotate;
          chmnet.annotate.open(item);
          const early = stage.toCanvas(10, 20);
          stage.paintNow();
          return [early, stage.toCanvas(10, 20)];
        })"""
    )
    assert [early for early, _ in places] == [late for _, late in places]
    assert len({tuple(late) for _, late in places}) > 1


def compare_with_the_command(coco: dict[str, Any], labels: list[list[float]], tmp_path: Path) -> None:
    """The page's document is one that `chmnet propagate` reads, and says what that command says."""
    for image in coco["images"]:
        shutil.copy(EXAMPLES / image["file_name"], tmp_path)
    file = tmp_path / "page.json"
    file.write_text(json.dumps(coco))
    assert len(load_labels(file).instances) == 4
    flat = [value for x, y in labels for value in (x, y, 2)]
    images = [each for each in coco["images"] if each["file_name"] == "donkey.png"]
    annotation = {"id": 1, "image_id": images[0]["id"], "category_id": 1, "keypoints": flat}
    known = {"images": images, "annotations": [annotation], "categories": coco["categories"]}
    (tmp_path / "labels.json").write_text(json.dumps(known))
    targets = [str(tmp_path / each["file_name"]) for each in coco["images"] if each["file_name"] != "donkey.png"]
    command = [sys.executable, "-m", "chmnet", "propagate", str(tmp_path / "labels.json"), *targets]
    output = tmp_path / "command.json"
    subprocess.run([*command, "-o", str(output)], check=True, stdout=subprocess.DEVNULL)
    theirs = json.loads(output.read_text())
    assert theirs.keys() == coco.keys()
    names = {each["id"]: each["file_name"] for each in coco["images"]}
    ours = {names[each["image_id"]]: each for each in coco["annotations"]}
    for image, expected in zip(theirs["images"], theirs["annotations"], strict=True):
        found = ours[image["file_name"]]
        assert found.keys() == expected.keys() | {"corrected"}
        if any(found["corrected"]):
            continue
        ids = {"id", "image_id", "bbox", "area", "keypoints", "keypoint_confidence", "score", "pose"}
        ids |= {"keypoint_unmatched", "keypoint_foreground"}
        assert {key: found[key] for key in expected if key not in ids} == {
            key: expected[key] for key in expected if key not in ids
        }
        assert found["pose"] == pytest.approx(expected["pose"], abs=0.01)
        for key in ("keypoint_unmatched", "keypoint_foreground"):
            assert (found[key] is None) == (expected[key] is None)
        for key in ("bbox", "keypoints", "keypoint_confidence", "score"):
            np.testing.assert_allclose(found[key], expected[key], atol=0.01)
