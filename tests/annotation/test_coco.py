"""COCO keypoints as the ecosystem reads them."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chmnet.annotation import Moved, Origin, Pose, Propagated, draw_sheet, to_coco
from chmnet.data.coco import Labels, load_labels

from .tiny import NAMES, noise_picture, write_labels

ORIGIN = Origin("nearest-neighbour", "abc", 0.5)
NAN = np.nan


@pytest.fixture
def labels(tmp_path: Path) -> Labels:
    noise_picture(tmp_path / "source.png", 0)
    return load_labels(write_labels(tmp_path / "labels.json", ["source.png"], [[2, 2, 1, 0]]))


def result(path: Path, points: list, confidence: list[float]) -> Propagated:
    return Propagated(path, (48, 64), [Moved("cat", np.array(points, dtype=float), np.array(confidence))])


def test_fields(labels: Labels, tmp_path: Path) -> None:
    found = result(tmp_path / "more" / "é.png", [[1, 2], [30.5, 40], [70, -3], [NAN, NAN]], [0.9, 0.4, 0.8, 0.0])
    output = tmp_path / "results" / "out.json"
    document = to_coco(labels, [found], output, ORIGIN)
    assert document["images"] == [{"id": 1, "file_name": "../more/é.png", "width": 64, "height": 48}]
    annotation = document["annotations"][0]
    # Confident; not confident; outside, and so moved to the edge and marked; shown by no source.
    assert annotation["keypoints"] == [1, 2, 2, 30.5, 40, 1, 64, 0, 1, 0, 0, 0]
    assert annotation["num_keypoints"] == 3
    assert annotation["review_keypoints"] == ["tail", "left ear"]
    assert annotation["needs_review"] is True
    assert annotation["bbox"] == [1, 0, 63, 40]
    assert annotation["area"] == 63 * 40
    assert annotation["score"] == pytest.approx(0.7)
    assert annotation["keypoint_confidence"] == [0.9, 0.4, 0.8, 0.0]
    assert (annotation["category_id"], annotation["iscrowd"]) == (7, 0)
    category = document["categories"][0]
    assert category["keypoints"] == list(NAMES)
    assert category["skeleton"] == [[1, 2], [1, 3]]
    info = document["info"]
    assert info["sources"] == ["../source.png"]
    assert (info["model"], info["minimum_confidence"]) == ("nearest-neighbour", 0.5)


def test_keypoints_that_are_hidden_are_to_be_reviewed(labels: Labels, tmp_path: Path) -> None:
    points, sure = np.array([[1.0, 2], [3, 4], [5, 6], [NAN, NAN]]), np.array([0.9, 0.9, 0.9, 0.0])
    hidden = Moved("cat", points, sure, unmatched=np.array([0.1, 0.7, 0.5, 0.0]))
    document = to_coco(labels, [Propagated(tmp_path / "a.png", (48, 64), [hidden])], tmp_path / "out.json", ORIGIN)
    annotation = document["annotations"][0]
    assert annotation["keypoint_unmatched"] == [0.1, 0.7, 0.5, 0.0]
    assert annotation["keypoints"][2::3] == [2, 1, 2, 0]


def test_keypoints_on_the_background_are_to_be_reviewed(labels: Labels, tmp_path: Path) -> None:
    points, sure = np.array([[1.0, 2], [3, 4], [5, 6], [NAN, NAN]]), np.array([0.9, 0.9, 0.9, 0.0])
    moved = Moved("cat", points, sure, foreground=np.array([0.9, 0.05, 0.1, 0.0]))
    document = to_coco(labels, [Propagated(tmp_path / "a.png", (48, 64), [moved])], tmp_path / "out.json", ORIGIN)
    annotation = document["annotations"][0]
    assert annotation["keypoint_foreground"] == [0.9, 0.05, 0.1, 0.0]
    assert annotation["keypoints"][2::3] == [2, 1, 2, 0]
    assert annotation["review_keypoints"] == ["tail"]


def test_where_keypoints_come_from(tmp_path: Path) -> None:
    for number in range(3):
        noise_picture(tmp_path / f"{number}.png", number)
    labels = load_labels(write_labels(tmp_path / "labels.json", ["0.png", "1.png"]))
    points, sure = np.ones((4, 2)), np.full(4, 0.9)
    found = Propagated(tmp_path / "2.png", (48, 64), [Moved("cat", points, sure, (1, 0), Pose(True, 0.0, 0.75))])
    document = to_coco(labels, [found], tmp_path / "results" / "out.json", ORIGIN, include_sources=True)
    assert [entry.get("source_images") for entry in document["annotations"]] == [
        None,
        None,
        ["../1.png", "../0.png"],
    ]
    assert document["annotations"][2]["pose"] == {"mirrored": True, "turn": 0.0, "probability": 0.75}
    assert "exchanged by name" in document["info"]["description"]


def test_counterparts_of_the_file_are_kept(tmp_path: Path) -> None:
    noise_picture(tmp_path / "source.png", 0)
    labels = load_labels(write_labels(tmp_path / "labels.json", ["source.png"], flip_idx=[1, 0, 2, 3]))
    assert labels.categories[0].counterparts() == [1, 0, 2, 3]
    found = result(tmp_path / "a.png", [[1, 2]] * 4, [0.9] * 4)
    document = to_coco(labels, [found], tmp_path / "out.json", ORIGIN)
    assert document["categories"][0]["flip_idx"] == [1, 0, 2, 3]


def test_all_confident_needs_no_review_and_one_point_has_a_box(labels: Labels, tmp_path: Path) -> None:
    found = result(tmp_path / "a.png", [[64.000001, 48], *[[NAN, NAN]] * 3], [0.5, 0, 0, 0])
    annotation = to_coco(labels, [found], tmp_path / "out.json", ORIGIN)["annotations"][0]
    assert annotation["needs_review"] is False  # outside by rounding only
    assert annotation["bbox"] == [63, 47, 1, 1]
    assert annotation["keypoints"][:3] == [64, 48, 2]


def test_sources_come_first_where_asked_for(labels: Labels, tmp_path: Path) -> None:
    found = result(tmp_path / "a.png", [[1, 2]] * 4, [0.9] * 4)
    document = to_coco(labels, [found], tmp_path / "out.json", ORIGIN, include_sources=True)
    assert [image["file_name"] for image in document["images"]] == ["source.png", "a.png"]
    assert [entry["image_id"] for entry in document["annotations"]] == [1, 2]
    assert document["annotations"][0]["keypoints"] == [10, 12, 2, 50.5, 12, 2, 10, 40.25, 2, 0, 0, 0]
    assert document["annotations"][0]["score"] == 1
    (tmp_path / "out.json").write_text(json.dumps(document))
    noise_picture(tmp_path / "a.png", 1)
    assert len(load_labels(tmp_path / "out.json").instances) == 2  # results can be labels again


def test_pycocotools_opens_shows_and_evaluates_it(
    labels: Labels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    points = [[10, 10], [30, 12], [12, 30], [33, 34]]
    found = [result(tmp_path / f"{number}.png", points, [0.9, 0.9, 0.3, 0.9]) for number in range(3)]
    output = tmp_path / "out.json"
    output.write_text(json.dumps(to_coco(labels, found, output, ORIGIN)))
    truth = COCO(str(output))
    assert truth.getImgIds() == [1, 2, 3]
    annotations = truth.loadAnns(truth.getAnnIds(catIds=truth.getCatIds(catNms=["cat"])))
    assert [entry["num_keypoints"] for entry in annotations] == [4, 4, 4]
    pyplot.imshow(np.zeros((48, 64, 3)))
    truth.showAnns(annotations)
    pyplot.close("all")
    results = truth.loadRes(json.loads(output.read_text())["annotations"])
    evaluation = COCOeval(truth, results, "keypoints")
    evaluation.params.kpt_oks_sigmas = np.full(len(NAMES), 0.05)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    assert evaluation.stats[0] == pytest.approx(1)  # against itself
    assert "Average Precision" in capsys.readouterr().out


def test_sheet_has_labels_first_then_the_least_certain(labels: Labels, tmp_path: Path) -> None:
    points = [[10, 10], [30, 12], [12, 30], [NAN, NAN]]
    found = [
        result(noise_picture(tmp_path / f"{number}.png", number), points, [number / 10, 0.9, 0.9, 0])
        for number in (8, 1, 5)
    ]
    found.append(result(tmp_path / "vanished.png", points, [0.1] * 4))
    sheet = draw_sheet(labels, found, 0.5)
    assert isinstance(sheet, Image.Image)
    one = draw_sheet(labels, found[:1], 0.5)
    assert one.width < sheet.width
    assert draw_sheet(labels, found[:3], 0.5, most=1).size == one.size
