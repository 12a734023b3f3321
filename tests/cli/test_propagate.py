"""``chmnet propagate`` as a person uses it: whole runs, killed runs, mistakes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from typer.testing import CliRunner, Result

from chmnet.cli.main import app, main
from chmnet.errors import ChmnetError, InputError
from chmnet.pictures import to_picture
from chmnet.weights import save_model
from tests.annotation.tiny import noise_picture, small_model, tiny_model, write_labels
from tests.data.trees import edit_json


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_model(tiny_model(), path)
    return str(path)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A labelled picture among its five targets; the folder is where the command runs."""
    monkeypatch.chdir(tmp_path)
    for number in range(6):
        noise_picture(tmp_path / "photos" / f"{number}.png", number)
    write_labels(tmp_path / "labels.json", ["photos/0.png"])
    return tmp_path


def command(model_file: str, *arguments: str, pictures: str = "photos") -> list[str]:
    return ["propagate", "labels.json", pictures, "-o", "out.json", "--model", model_file, *arguments]


def run(model_file: str, *arguments: str, pictures: str = "photos") -> Result:
    return CliRunner().invoke(app, command(model_file, *arguments, pictures=pictures))


def test_a_folder(world: Path, model_file: str) -> None:
    result = run(model_file, "--contact-sheet", "sheet.png")
    assert result.exit_code == 0, (result.output, result.exception)
    document = json.loads((world / "out.json").read_text())
    names = [f"photos/{number}.png" for number in range(1, 6)]  # without the labelled one
    assert [image["file_name"] for image in document["images"]] == names
    assert document["info"]["sources"] == ["photos/0.png"]
    assert document["info"]["model"] == "tiny.safetensors"
    assert len(document["annotations"]) == 5
    with Image.open(world / "sheet.png") as sheet:
        assert sheet.width > 300
    assert sorted(path.name for path in world.iterdir()) == ["labels.json", "out.json", "photos", "sheet.png"]
    assert result.stdout.splitlines()[1].split()[:2] == ["5", "0"]
    assert result.stderr == ""


def test_mirrored_pictures_are_found_counted_and_said(world: Path) -> None:
    save_model(small_model(), world / "small.safetensors")
    ImageOps.mirror(to_picture(world / "photos" / "0.png")).save(world / "mirrored.png")
    result = run("small.safetensors", pictures="mirrored.png")
    assert result.exit_code == 0, (result.output, result.exception)
    (entry,) = json.loads((world / "out.json").read_text())["annotations"]
    assert entry["source_images"] == ["photos/0.png"]
    assert entry["pose"]["mirrored"] is True
    assert result.stdout.splitlines()[0].split()[:3] == ["pictures", "skipped", "mirrored"]
    assert result.stdout.splitlines()[1].split()[:3] == ["1", "0", "1"]
    again = run("small.safetensors", "--poses", "upright", "--overwrite", pictures="mirrored.png")
    assert again.exit_code == 0, again.exception
    (entry,) = json.loads((world / "out.json").read_text())["annotations"]
    assert entry["pose"] == {"mirrored": False, "turn": 0.0, "probability": None}


def test_boxes_of_the_labels_are_used_unless_whole(world: Path, model_file: str) -> None:
    edit_json(world / "labels.json", lambda document: document["annotations"][0].update(bbox=[9, 10, 43, 32]))
    assert run(model_file).exit_code == 0
    boxed = (world / "out.json").read_text()
    assert run(model_file, "--whole", "--overwrite").exit_code == 0
    assert (world / "out.json").read_text() != boxed


def _write_boxes(world: Path, *boxes: list[float], name: str = "1.png") -> None:
    document = {
        "images": [{"id": 1, "file_name": name}],
        "annotations": [{"image_id": 1, "bbox": box} for box in boxes],
    }
    (world / "boxes.json").write_text(json.dumps(document))


def test_boxes_of_targets_are_labelled_one_by_one(
    world: Path, model_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_boxes(world, [2, 2, 20, 20], [30, 10, 30, 30])
    given = "--target-boxes", "boxes.json"
    result = run(model_file, *given, "--contact-sheet", "sheet.png")
    assert result.exit_code == 0, (result.output, result.exception)
    document = json.loads((world / "out.json").read_text())
    assert [entry["image_id"] for entry in document["annotations"]] == [1, 1, 2, 3, 4, 5]
    assert [entry["bbox"] for entry in document["annotations"][:2]] == [[2, 2, 20, 20], [30, 10, 30, 30]]
    points = np.reshape(document["annotations"][1]["keypoints"], (-1, 3))
    assert (points[:, 0] >= 25).all()  # within the box and its margin
    whole = (world / "out.json").rename(world / "whole.json").read_bytes()
    _interrupt(model_file, monkeypatch, *given)
    _write_boxes(world, [2, 2, 20, 20])
    refused = run(model_file, *given)
    assert "unfinished run with other settings (different target_boxes)" in str(refused.exception)
    _write_boxes(world, [2, 2, 20, 20], [30, 10, 30, 30])
    again = run(model_file, *given)
    assert "resuming: 3 of 5" in again.stderr
    assert (world / "out.json").read_bytes() == whole


def test_bad_pictures_are_listed_and_the_rest_goes_on(world: Path, model_file: str) -> None:
    (world / "photos" / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    result = run(model_file, "missing.png", "photos/1.png", "--include-sources")
    assert result.exit_code == 0, result.exception
    assert "photos/broken.jpg" in result.stdout
    assert "there is no picture missing.png" in result.stdout
    assert len(json.loads((world / "out.json").read_text())["images"]) == 6


def test_unicode_and_names_that_are_none(world: Path, model_file: str) -> None:
    noise_picture(world / "fötos 写真" / "猫.png", 3)
    os.rename(world / "photos" / "1.png", os.fsencode(world / "fötos 写真") + b"/\xff.png")  # noqa: PTH104 (bytes)
    (world / "fötos 写真" / "\udcfebad.png").write_text("no picture")
    result = run(model_file, "--contact-sheet", "s.png", pictures="fötos 写真")
    assert result.exit_code == 0, result.exception
    names = [image["file_name"] for image in json.loads((world / "out.json").read_text())["images"]]
    assert names == ["fötos 写真/猫.png", "fötos 写真/\udcff.png"]
    assert (world / names[1]).is_file()
    assert "\\udcfebad.png" in result.stdout


def test_several_categories_and_one_of_them(world: Path, model_file: str) -> None:
    def add(document: dict) -> None:
        document["categories"].append({"id": 9, "name": "dog", "keypoints": ["paw"]})
        document["annotations"].append({"id": 5, "image_id": 1, "category_id": 9, "keypoints": [5, 5, 2]})

    edit_json(world / "labels.json", add)
    assert run(model_file, "--contact-sheet", "s.png").exit_code == 0
    both = json.loads((world / "out.json").read_text())
    assert [entry["category_id"] for entry in both["annotations"]] == [7, 9] * 5
    assert run(model_file, "--category", "dog", "--overwrite").exit_code == 0
    one = json.loads((world / "out.json").read_text())
    assert [entry["category_id"] for entry in one["annotations"]] == [9] * 5
    assert one["annotations"][0]["keypoints"] == both["annotations"][1]["keypoints"]


def test_equals_the_evaluation_of_the_same_file(world: Path, model_file: str) -> None:
    assert run(model_file).exit_code == 0
    edit_json(world / "labels.json", _label_all)
    options = ["--threshold", "bbox-kp", "--predictions", "p.jsonl", "--model", model_file]
    evaluated = CliRunner().invoke(app, ["evaluate", "--dataset", "coco", "--root", "labels.json", *options])
    assert evaluated.exit_code == 0, evaluated.exception
    lines = [json.loads(line) for line in (world / "p.jsonl").read_text().splitlines()[1:]]
    points = {line["pair"]: line["points"] for line in lines}
    document = json.loads((world / "out.json").read_text())
    compared = 0
    for entry, number in zip(document["annotations"], range(1, 6), strict=True):
        expected = points.get(f"0.1-{number}.{number + 1}:cat")  # pairs go one way only, chosen at random
        if expected is not None:
            found = np.reshape(entry["keypoints"], (-1, 3))[:, :2]
            np.testing.assert_allclose(found, expected, atol=0.01)
            compared += 1
    assert compared


def _label_all(document: dict) -> None:
    for number in range(1, 6):
        document["images"].append({**document["images"][0], "id": number + 1, "file_name": f"photos/{number}.png"})
        document["annotations"].append({**document["annotations"][0], "id": number + 1, "image_id": number + 1})


# ---------------------------------------------------------------- interruptions


@pytest.mark.slow
def test_killed_and_started_again_gives_the_same_bytes(world: Path, model_file: str) -> None:
    for number in range(6, 80):
        noise_picture(world / "photos" / f"{number}.png", number)
    assert run(model_file).exit_code == 0
    whole = (world / "out.json").rename(world / "whole.json").read_bytes()
    arguments = command(model_file)
    partial = world / "out.json.partial"
    process = subprocess.Popen([sys.executable, "-m", "chmnet", *arguments])
    limit = time.monotonic() + 120
    while not (partial.exists() and partial.read_bytes().count(b"\n") > 3) and time.monotonic() < limit:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (world / "out.json").exists()
    before = partial.read_bytes()
    partial.write_bytes(before[:-7])  # as if the last line had been cut short
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.exception
    done = before[:-7].count(b"\n") - 1
    assert f"resuming: {done} of 79 pictures were done before" in result.stderr
    assert (world / "out.json").read_bytes() == whole
    assert not partial.exists()


def test_interrupted_and_started_again_gives_the_same_bytes(
    world: Path, model_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(model_file).exit_code == 0
    whole = (world / "out.json").rename(world / "whole.json").read_bytes()
    _interrupt(model_file, monkeypatch)
    partial = world / "out.json.partial"
    partial.write_bytes(partial.read_bytes()[:-7])  # as if the last line had been cut short
    assert run(model_file).exit_code == 0
    assert (world / "out.json").read_bytes() == whole


def test_changed_labels_do_not_mix(world: Path, model_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _interrupt(model_file, monkeypatch)
    edit_json(world / "labels.json", lambda document: document["annotations"][0]["keypoints"].__setitem__(0, 11.0))
    refused = run(model_file)
    assert isinstance(refused.exception, InputError)
    assert "unfinished run with other settings (different labels)" in str(refused.exception)
    assert (world / "out.json.partial").exists()
    again = run(model_file, "--overwrite")
    assert again.exit_code == 0, again.exception
    assert "resuming" not in again.stderr


def test_other_thresholds_and_pictures_go_on(
    world: Path, model_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt(model_file, monkeypatch)
    noise_picture(world / "photos" / "6.png", 6)
    result = run(model_file, "--minimum-confidence", "0.9")
    assert result.exit_code == 0, result.exception
    assert "resuming: 3 of 6 pictures" in result.stderr


def _interrupt(model_file: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """A run that ends after three pictures."""

    def stop_after_three(items: list, unit: str) -> object:
        yield from items[:3]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("chmnet.cli.io.track", stop_after_three)
        assert run(model_file, *arguments).exit_code == 130
    assert Path("out.json.partial").read_text().count("\n") == 4


def test_finished_output_is_kept(world: Path, model_file: str) -> None:
    (world / "out.json").write_text("precious")
    refused = run(model_file)
    assert "exists already" in str(refused.exception)
    assert (world / "out.json").read_text() == "precious"
    assert run(model_file, "--overwrite").exit_code == 0


# ---------------------------------------------------------------- mistakes


def _break_labels(change: Callable[[dict], object]) -> Callable[[Path], object]:
    return lambda world: edit_json(world / "labels.json", change)


MISTAKES: dict[str, tuple[Callable[[Path], object] | None, list[str], str]] = {
    "no labels": (lambda world: (world / "labels.json").unlink(), [], "there is no file labels.json"),
    "labels are no JSON": (lambda world: (world / "labels.json").write_text("{"), [], "this is not JSON"),
    "no keypoints": (
        _break_labels(lambda document: document["annotations"][0].pop("keypoints")),
        [],
        "has no annotation with a visible keypoint",
    ),
    "NaN": (
        _break_labels(lambda document: document["annotations"][0]["keypoints"].__setitem__(0, float("nan"))),
        [],
        "is not a number (NaN)",
    ),
    "outside": (
        _break_labels(lambda document: document["annotations"][0]["keypoints"].__setitem__(0, 65)),
        [],
        "nose at (65, 12) lies outside the picture of 64×48 pixels",
    ),
    "labelled picture is missing": (
        lambda world: (world / "photos" / "0.png").unlink(),
        [],
        "there is no image photos/0.png",
    ),
    "category": (None, ["--category", "dog"], "has no category 'dog'; it has 'cat'"),
    "images root": (None, ["--images-root", "nowhere"], "there is no folder nowhere"),
    "output is the labels": (None, ["-o", "labels.json", "--overwrite"], "labels.json is an input already"),
    "output is a target": (None, ["-o", "photos/1.png", "--overwrite"], "photos/1.png is an input already"),
    "sheet is the labelled one": (
        None,
        ["--contact-sheet", "photos/0.png", "--overwrite"],
        "photos/0.png is an input already",
    ),
    "sheet is the output": (None, ["--contact-sheet", "out.json"], "is another output already"),
    "sheet is no picture": (None, ["--contact-sheet", "sheet.doc"], "cannot tell the picture format"),
    "output folder": (None, ["-o", "no/out.json"], "cannot write to the folder no"),
    "output is a folder": (None, ["-o", "photos"], "photos is a folder"),
    "partial is a folder": (
        lambda world: (world / "out.json.partial").mkdir(),
        [],
        "out.json.partial is a folder",
    ),
    "partial is something else": (
        lambda world: (world / "out.json.partial").write_text("precious\n"),
        [],
        "is not a file of results of chmnet propagate",
    ),
    "no boxes": (None, ["--target-boxes", "boxes.json"], "there is no file boxes.json"),
    "boxes are no JSON": (
        lambda world: (world / "boxes.json").write_text("[1"),
        ["--target-boxes", "boxes.json"],
        "boxes.json line 1: this is not JSON",
    ),
    "boxes are a list": (
        lambda world: (world / "boxes.json").write_text("[1]"),
        ["--target-boxes", "boxes.json"],
        "boxes.json: the whole must be an object",
    ),
    "box outside": (
        lambda world: _write_boxes(world, [70, 1, 5, 5]),
        ["--target-boxes", "boxes.json"],
        "lies outside the picture of 64×48 pixels",
    ),
    "box of an unknown picture": (
        lambda world: _write_boxes(world, [7, 1, 5, 5], name="unknown.png"),
        ["--target-boxes", "boxes.json"],
        "'unknown.png' is none of the pictures to label",
    ),
    "output is the boxes": (
        lambda world: _write_boxes(world, [7, 1, 5, 5]),
        ["--target-boxes", "boxes.json", "-o", "boxes.json", "--overwrite"],
        "boxes.json is an input already",
    ),
    "model": (None, ["--model", "wonder"], "there is no model 'wonder'"),
    "device": (None, ["--device", "toaster"], "there is no device 'toaster'"),
    "confidence is no number": (None, ["--minimum-confidence", "nan"], "must be from 0 to 1, got nan"),
    "confidence in percent": (None, ["--minimum-confidence", "50"], "must be from 0 to 1, got 50"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes_are_one_sentence_and_write_nothing(
    world: Path, model_file: str, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, arguments, words = MISTAKES[kind]
    if spoil is not None:
        spoil(world)
    before = {path: path.read_bytes() for path in world.rglob("*") if path.is_file()}
    monkeypatch.setattr(sys, "argv", ["chmnet", *command(model_file, *arguments)])
    with pytest.raises(SystemExit) as ending:
        main()
    told = capsys.readouterr()
    assert ending.value.code == 2
    assert words in told.err
    assert len(told.err.strip().splitlines()) == 1
    assert told.out == ""
    assert {path: path.read_bytes() for path in world.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("pictures", "words"),
    [
        ("empty", "there are no pictures in empty beside the annotated"),
        ("photos/0.png", "there are no pictures in photos/0.png"),
        ("labels.json", "none of the 1 pictures could be used: labels.json is not a picture"),
        ("*.gif", "none of the 1 pictures could be used: there is no picture *.gif"),
    ],
)
def test_no_pictures(world: Path, model_file: str, pictures: str, words: str) -> None:
    (world / "empty").mkdir()
    result = run(model_file, pictures=pictures)
    assert isinstance(result.exception, ChmnetError)
    assert words in str(result.exception)
    assert sorted(path.name for path in world.iterdir()) == ["empty", "labels.json", "photos"]


def test_place_that_cannot_be_written(world: Path, model_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: Path, *rest: Any, **options: Any) -> int:
        if str(path).endswith(".partial"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    result = run(model_file)
    assert "out.json.partial: Permission denied" in str(result.exception)
    assert isinstance(result.exception, InputError)


def test_help_has_examples() -> None:
    result = CliRunner().invoke(app, ["propagate", "--help"])
    assert "Examples" in result.output
    assert "--contact-sheet" in result.output
