"""What an experiment writes, whatever it measures."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from PIL import Image

from chmnet.errors import InputError
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table, run_experiment, tables_of
from chmnet.experiments.store import Store

HOSTILE = 'a "quoted", comma | pipe'


def draw(store: Store, figures: Figures) -> dict[str, Drawing]:
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, figures["number"]])
    return {"": figure, "-pairs": Image.new("RGB", (7, 5), "red")}


def tables(figures: Figures) -> list[Table]:
    return [Table(["name", "value"], [[HOSTILE, str(figures["number"])]]), Table(["alone"], [["1"], ["2"]])]


EXPERIMENT = Experiment("small", "A small one", "nowhere", lambda store: {"number": 7}, tables, draw, seeds=3)


def test_four_kinds_of_files(store: Store) -> None:
    written = run_experiment(EXPERIMENT, store, "chmnet experiment small")
    folder = store.folder
    names = ["small.json", "small.md", "small.csv", "small.png", "small-pairs.png"]
    assert written == [folder / name for name in names]
    record = json.loads((folder / "small.json").read_text(encoding="utf-8"))
    assert record["figures"] == {"number": 7}
    assert record["seeds"] == [0, 1]
    text = (folder / "small.md").read_text(encoding="utf-8")
    assert text.startswith("# A small one\n")
    assert tables_of(EXPERIMENT, record) in text
    lines = (folder / "small.csv").read_text(encoding="utf-8").splitlines()
    assert list(csv.reader(lines)) == [["name", "value"], [HOSTILE, "7"], [], ["alone"], ["1"], ["2"]]
    for name, size in (("small.png", (150, 150)), ("small-pairs.png", (7, 5))):
        with Image.open(folder / name) as picture:
            assert picture.format == "PNG"
            assert picture.size == size


def test_a_record_names_no_folder(store: Store) -> None:
    recipe = {**store.setting.recipe, "data": [{"dataset": "coco", "path": "pictures/of/someone", "count": 4}]}
    setting = replace(store.setting, recipe=recipe)
    run_experiment(EXPERIMENT, Store(store.folder, setting), "command")
    record = json.loads((store.folder / "small.json").read_text(encoding="utf-8"))
    assert record["training"]["data"] == [{"dataset": "coco", "count": 4}]
    assert "someone" not in (store.folder / "small.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("there", ["small.json", "small.md", "small.csv", "small.png", "small-pairs.png"])
def test_all_files_or_none(there: str, store: Store) -> None:
    (store.folder / there).write_text("precious")
    before = sorted(store.folder.iterdir())
    with pytest.raises(InputError, match=f"{there} exists already"):
        run_experiment(EXPERIMENT, store, "command")
    assert sorted(store.folder.iterdir()) == before
    assert (store.folder / there).read_text() == "precious"
    run_experiment(EXPERIMENT, store, "command", overwrite=True)
    assert (store.folder / there).read_bytes() != b"precious"


def test_what_cannot_be_drawn_leaves_nothing_half_written(store: Store) -> None:
    class BrokenError(Exception):
        """While a picture is saved."""

    class Broken(Image.Image):
        def save(self, *arguments: object, **options: object) -> None:
            raise BrokenError

    broken = replace(EXPERIMENT, draw=lambda store, figures: {"": Broken()})
    before: list[Path] = sorted(store.folder.iterdir())
    with pytest.raises(BrokenError):
        run_experiment(broken, store, "command")
    assert sorted(store.folder.iterdir()) == before
