"""``chmnet experiment``: what it refuses, before any work. What it does is in tests/experiments."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chmnet.cli.experiment import NAMES
from chmnet.cli.main import app
from chmnet.experiments import store as store_module
from chmnet.experiments.runner import Experiment
from chmnet.experiments.store import Store
from chmnet.training.loop import CONFIG
from tests.cli.conftest import Run
from tests.cli.test_cli import assert_one_sentence
from tests.data import trees
from tests.training.tiny import tiny_config


@pytest.fixture(autouse=True)
def _no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mistakes are noticed before anything is trained, predicted or measured."""
    monkeypatch.delenv("CHMNET_DATA", raising=False)
    for name in ("train", "predict", "measure_cost"):
        monkeypatch.setattr(store_module, name, lambda *_, **__: pytest.fail("there was work"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Both benchmarks."""
    return trees.make_pf_pascal(trees.make_pf_willow(tmp_path / "data"))


def test_help_names_all_experiments() -> None:
    printed = CliRunner().invoke(app, ["experiment", "--help"]).output
    assert "chmnet experiment kernels --quick" in printed
    joined = re.sub(r"-\n +", "-", printed)  # a line may end at a hyphen
    assert all(name in joined for name in NAMES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["wonder", "--quick"], "there is no experiment 'wonder'; there are main, cost"),
        (["main"], "--root or CHMNET_DATA"),
        (["main", "--quick", "--root", "ROOT"], "leave out --root, or --quick"),
        (["main", "--root", "none"], "there is no folder none"),
        (["main", "--root", "EMPTY"], "PF-PASCAL"),
        (["main", "--quick", "--resnet50", "none.pt"], "there is no file none.pt with the weights of ResNet-50"),
        (["channels", "--quick", "--channels", "1,many"], "channels must be whole numbers"),
        (["channels", "--quick", "--channels", "0,4"], "a layer has at least one channel, got '0,4'"),
        (["main", "--quick", "--resnet50", "EMPTY"], "with the weights of ResNet-50"),
        (["multiple", "--root", "ROOT", "--examples", "EMPTY"], "donkey.png; name the folder of chmnet's example"),
        (["scales", "--root", "ROOT", "--examples", "EMPTY"], "donkey.png; name the folder of chmnet's example"),
        (["qualitative", "--root", "ROOT", "--examples", "EMPTY"], "donkey.png; name the folder of chmnet's"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    places = {"ROOT": root, "EMPTY": tmp_path / "empty"}
    code, printed, complaint = run("experiment", *(places.get(word, word) for word in arguments), "-o", "out")
    assert_one_sentence(code, complaint, words)
    assert printed == ""
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("missing", ["PF-PASCAL", "PF-WILLOW"])
def test_both_benchmarks_are_needed(missing: str, root: Path, tmp_path: Path, run: Run) -> None:
    (root / missing).rename(root / "elsewhere")
    code, _, complaint = run("experiment", "main", "--root", root, "-o", tmp_path / "out")
    assert_one_sentence(code, complaint, missing)
    assert not (tmp_path / "out").exists()


def test_the_output_must_be_a_folder(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    assert_one_sentence(*run("experiment", "main", "--quick", "-o", file)[::2], "is a file; name a folder")
    assert_one_sentence(*run("experiment", "main", "--quick", "-o", file / "below")[::2], "Not a directory")
    assert file.read_text() == "precious"


@pytest.mark.parametrize("ending", [".json", ".md", ".csv", ".png"])
def test_tables_are_kept_without_overwrite(ending: str, tmp_path: Path, run: Run) -> None:
    there = tmp_path / f"kernels{ending}"
    there.write_text("precious")
    code, _, complaint = run("experiment", "kernels", "--quick", "-o", tmp_path)
    assert_one_sentence(code, complaint, f"kernels{ending} exists already")
    assert "--overwrite" in complaint
    assert there.read_text() == "precious"


def test_a_run_of_another_recipe_is_refused(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "runs" / "psi-6d-seed-0"
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(tiny_config().to_toml())
    code, _, complaint = run("experiment", "scales", "--quick", "-o", tmp_path)
    assert_one_sentence(code, complaint, f"{folder} was trained by another recipe; remove it, or name another")
    assert (folder / CONFIG).read_text() == tiny_config().to_toml()


# ---------------------------------------------------------------- what is not a mistake


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """Name, command and data of experiments that would have been run."""
    found: list[tuple[str, str, bool]] = []

    def note(experiment: Experiment, store: Store, command: str, overwrite: bool) -> list[Path]:
        found.append((experiment.name, command, store.setting.quick))
        return [store.folder / f"{experiment.name}.json"]

    monkeypatch.setattr("chmnet.experiments.runner.run_experiment", note)
    return found


def test_a_try_minds_no_variable(
    ran: list[tuple[str, str, bool]], tmp_path: Path, root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHMNET_DATA", f"{root}/")
    assert run("experiment", "main", "--quick", "-o", tmp_path / "out")[0] == 0
    assert ran == [("main", "chmnet experiment main --quick -o out", True)]


def test_data_from_the_environment(
    ran: list[tuple[str, str, bool]], tmp_path: Path, root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHMNET_DATA", str(root))
    weights = tmp_path / "resnet weights.pt"
    weights.write_text("")
    assert run("experiment", "main", "--resnet50", weights, "-o", tmp_path / "out")[0] == 0
    command = "chmnet experiment main --root datasets --resnet50 'resnet weights.pt' -o out"
    assert ran == [("main", command, False)]


def test_the_command_names_the_folder_one_stands_in(
    ran: list[tuple[str, str, bool]], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run("experiment", "cost", "--quick", "-o", ".")[0] == 0
    assert ran[0][1] == "chmnet experiment cost --quick -o here"


def test_all_runs_what_is_not_there(ran: list[tuple[str, str, bool]], tmp_path: Path, run: Run) -> None:
    for name in ("main", "kernels"):
        (tmp_path / f"{name}.json").write_text("{}")
    code, printed, complaint = run("experiment", "all", "--quick", "-o", tmp_path)
    assert code == 0
    assert [name for name, _, _ in ran] == [name for name in NAMES if name not in ("main", "kernels")]
    assert printed.splitlines() == [f"wrote {tmp_path / name}.json" for name, _, _ in ran]
    assert complaint.splitlines() == [f"{tmp_path / name}.json is there already" for name in ("main", "kernels")]
    ran.clear()
    assert run("experiment", "all", "--quick", "--overwrite", "-o", tmp_path)[0] == 0
    assert [name for name, _, _ in ran] == list(NAMES)
