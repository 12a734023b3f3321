"""``chmnet probe``."""

import json
from functools import partial
from pathlib import Path

import pytest

from chmnet.evaluation import facing
from chmnet.weights import load_model, save_model
from chmnet.weights.models import read_notes
from tests.cli.conftest import Run
from tests.evaluation.test_facing import draw_arrow


@pytest.fixture
def arrows(tmp_path: Path) -> Path:
    """A COCO data set of arrows."""
    folder = tmp_path / "arrows"
    folder.mkdir()
    things = [draw_arrow(folder / f"{number}.png", number % 2 == 0, number) for number in range(56)]
    images, annotations = [], []
    for number, thing in enumerate(things, start=1):
        assert thing.box is not None
        left, top, right, bottom = thing.box
        images.append({"id": number, "file_name": thing.path.name, "width": 96, "height": 96})
        points = [value for x, y in thing.keypoints for value in (float(x), float(y), 2)]
        box = [left, top, right - left, bottom - top]
        ids = {"id": number, "image_id": number, "category_id": 1}
        annotations.append({**ids, "bbox": box, "keypoints": points, "num_keypoints": 2})
    categories = [{"id": 1, "name": "arrow", "keypoints": ["nose", "tail"], "skeleton": []}]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations_train.json").write_text(json.dumps(document))
    return folder


def test_both_probes_are_fitted_and_told_of(
    run: Run, arrows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facing, "fit_facing", partial(facing.fit_facing, steps=30))
    before, after = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_model(load_model("nearest-neighbour", changes={"image_size": (96, 96)}), before)
    arguments = ["probe", before, "--dataset", "coco", "--root", arrows, "-o", after]
    code, _, complaint = run(*arguments)
    assert code == 0, complaint
    model = load_model(after)
    assert model.foreground is not None
    assert model.facing is not None
    assert "56" in read_notes(after)["foreground"]
    assert "56" in read_notes(after)["facing"]
    assert run(*arguments)[0] == 2  # nothing is overwritten


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chmnet-lite", "--dataset", "coco", "--root", "x"], "model file"),
        (["a.safetensors", "--dataset", "coco", "--root", "x", "--root", "y"], "2 roots"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, arguments: list[str], message: str, tmp_path: Path) -> None:
    code, _, complaint = run("probe", *arguments, "-o", tmp_path / "b.safetensors")
    assert code == 2
    assert message in complaint
    assert len(complaint.strip().splitlines()) == 1
