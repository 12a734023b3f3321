"""``chmnet experiment NAME --quick`` for every name: what it writes, how long it takes, what it shares."""

import csv
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from chmnet import __version__
from chmnet.cli.experiment import NAMES
from chmnet.experiments import MODULES
from chmnet.experiments import store as store_module
from chmnet.experiments.runner import find_experiment, tables_of
from chmnet.metrics import DEFAULT_PROTOCOLS
from chmnet.training.loop import LAST

from .conftest import QuickRuns

TWO_MINUTES = 120
QUICKEST = "scales"  # two training runs of an epoch; the others are slow tests
every_experiment = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == QUICKEST else pytest.mark.slow) for name in MODULES]
)


def test_the_command_offers_all_experiments() -> None:
    assert tuple(MODULES) == NAMES
    assert all(find_experiment(name).name == name for name in NAMES)


@every_experiment
def test_quick_mode_ends_in_two_minutes(name: str, quick: QuickRuns) -> None:
    done = quick(name)
    assert done.seconds < TWO_MINUTES
    written = done.files()
    assert {f"{name}{ending}" for ending in (".json", ".md", ".csv", ".png")} <= {path.name for path in written}
    assert all(path.parent == quick.folder for path in written)
    assert not [path for path in quick.folder.iterdir() if path.name.startswith(".")]  # nothing half-written


@every_experiment
def test_pictures_are_pictures(name: str, quick: QuickRuns) -> None:
    done = quick(name)
    text = done.file(".md").read_text(encoding="utf-8")
    for path in done.files():
        if path.suffix == ".png":
            with Image.open(path) as picture:
                picture.load()
                assert min(picture.size) > 100
                darkest, lightest = picture.convert("L").getextrema()
                assert lightest - darkest > 100
            assert f"]({path.name})" in text


@every_experiment
def test_tables_are_those_of_the_record(name: str, quick: QuickRuns) -> None:
    done, experiment = quick(name), find_experiment(name)
    record = done.record()
    tables = experiment.tables(record["figures"])
    assert tables
    for table in tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.headings)}
    text = done.file(".md").read_text(encoding="utf-8")
    assert f"\n\n{tables_of(experiment, record)}\n\n" in text
    with done.file(".csv").open(encoding="utf-8", newline="") as file:
        blocks = [list(rows) for filled, rows in itertools.groupby(csv.reader(file), bool) if filled]
    assert blocks == [[table.headings, *table.rows] for table in tables]


@every_experiment
def test_the_record_says_how_it_was_measured(name: str, quick: QuickRuns) -> None:
    done = quick(name)
    record = done.record()
    assert record["experiment"] == name
    assert record["command"] == f"chmnet experiment {name} --quick -o quick"
    assert record["chmnet"] == __version__
    assert record["seeds"] == list(range(len(record["seeds"])))
    assert record["seeds"]
    ((label, data),) = record["data"].items()
    assert data == {"pairs": 6, "split": "test", "protocol": DEFAULT_PROTOCOLS["coco"].describe()}
    assert record["training"]["epochs"] == 1
    assert record["training"]["data"][0]["dataset"] == "coco"
    assert {"threads", "torch", "simd"} <= record["machine"].keys()
    assert record["figures"]
    text = done.file(".md").read_text(encoding="utf-8")
    for fact in (record["command"], label, data["protocol"], record["machine"]["torch"], __version__):
        assert fact in text
    written = "".join(path.read_text(encoding="utf-8") for path in done.files() if path.suffix != ".png")
    assert str(quick.folder.parent) not in written  # nothing says where it was measured


@pytest.mark.slow
def test_repeated_runs_have_a_deviation_and_single_ones_none(quick: QuickRuns) -> None:
    for name in ("kernels", "modules", "channels"):
        record = quick(name).record()
        rows = record["figures"]["rows"].values()
        assert any(row["seeds"] == record["seeds"] for row in rows)
        for row in rows:
            values = [runs for benchmark in row["pck"].values() for runs in benchmark.values()]
            assert {len(runs) for runs in values} == {len(row["seeds"])}
    assert len(quick("kernels").record()["seeds"]) > 1
    assert "±" in quick("kernels").file(".csv").read_text(encoding="utf-8").split("\n\n")[0]


# ---------------------------------------------------------------- nothing is made twice


@pytest.mark.slow
def test_runs_are_shared(quick: QuickRuns) -> None:
    for name in MODULES:
        quick(name)
    trained = [run for done in quick.done.values() for run in done.trained]
    assert sorted(trained) == sorted(set(trained))
    assert {path.name for path in (quick.folder / "runs").iterdir()} == set(trained)
    assert all((quick.folder / "runs" / run / LAST).is_file() for run in trained)
    assert {"psi-6d-seed-0", "rhm-seed-0", "psi-4d-16-channels-seed-0", "consensus-1-seed-0"} <= set(trained)


@pytest.mark.slow
def test_predictions_are_shared(quick: QuickRuns) -> None:
    """Also where tables call one model by different names."""
    for name in MODULES:
        quick(name)
    predicted = [pair for done in quick.done.values() for pair in done.predicted]
    assert len(predicted) == len(set(predicted))
    assert len(predicted) == 6 * len(list((quick.folder / "predictions").iterdir()))


def test_a_second_time_is_the_same_and_computes_nothing(quick: QuickRuns) -> None:
    first = quick(QUICKEST).record()
    again = quick.run(QUICKEST, "--overwrite")
    assert (again.trained, again.predicted) == ([], [])
    assert again.record()["figures"] == first["figures"]


@pytest.mark.slow
def test_all_leaves_out_what_is_there(quick: QuickRuns) -> None:
    """So that ``experiment all`` can be stopped, and resumed."""
    written = [path for name in MODULES for path in quick(name).files()]
    before = {path: path.stat().st_mtime_ns for path in written}
    again = quick.run("all")
    assert again.result.exit_code == 0, again.result.exception
    assert "wrote" not in again.result.output
    assert {path: path.stat().st_mtime_ns for path in written} == before


@pytest.mark.slow
def test_interrupted_experiments_resume(quick: QuickRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class StopError(Exception):
        """In the middle of the second run."""

    train, started = store_module.train, []

    def stop(record: dict[str, Any]) -> None:
        if record["kind"] == "step" and len(started) == 2:
            raise StopError

    def interrupted(*arguments: Any, **options: Any) -> Any:
        started.append(arguments[1].name)
        return train(*arguments, report=stop, **options)

    whole, parts = quick("clutter"), QuickRuns(tmp_path / "parts")
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "train", interrupted)
        broken = parts.run("clutter")
    assert isinstance(broken.result.exception, StopError)
    assert len(started) == 2
    assert {path.name for path in parts.folder.iterdir()} == {"synthetic", "runs"}
    resumed = parts.run("clutter")
    assert started[0] not in resumed.trained
    assert started[1] in resumed.trained
    assert len(resumed.trained) == len(list((parts.folder / "runs").iterdir())) - 1
    assert resumed.record()["figures"] == whole.record()["figures"]


def test_a_folder_may_be_moved(quick: QuickRuns, tmp_path: Path) -> None:
    quick("scales")
    moved = QuickRuns(tmp_path / "moved")
    for part in ("runs", "synthetic"):
        shutil.copytree(quick.folder / part, moved.folder / part)
    assert moved("scales").trained == []
    assert moved("scales").record()["figures"] == quick("scales").record()["figures"]


# ---------------------------------------------------------------- what is there stays


def test_overwrite_replaces(quick: QuickRuns, tmp_path: Path) -> None:
    quick("scales")
    copy = QuickRuns(tmp_path / "copy")
    for part in ("runs", "synthetic"):
        shutil.copytree(quick.folder / part, copy.folder / part)
    pictures = [path.name for path in quick("scales").files() if path.suffix == ".png"]
    for name in ("scales.json", *pictures):
        (copy.folder / name).write_text("old")
    refused = copy.run("scales")
    assert "exists already" in str(refused.result.exception)
    replaced = copy.run("scales", "--overwrite")
    assert json.loads(replaced.file(".json").read_text())["experiment"] == "scales"
    for name in pictures:
        assert (copy.folder / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_other_channels_on_request(quick: QuickRuns) -> None:
    quick("channels")  # what it trained is there
    asked = quick.run("channels", "--channels", "3,1", "--overwrite")
    record = asked.record()
    assert record["figures"]["channels"] == [1, 3]
    assert asked.trained == [f"{sharing}-4d-3-channels-seed-0" for sharing in ("psi", "iso", "full")]
    assert "--channels 3,1" in record["command"]
