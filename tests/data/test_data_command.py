"""``chmnet data`` as a person uses it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from chmnet.cli import data, io
from chmnet.cli.main import app, main

from . import trees


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_help_with_examples() -> None:
    assert "summary" in run("--help").output
    for command in ("summary", "list"):
        assert "Example" in run(command, "--help").output


def test_whole_data_set(tmp_path: Path) -> None:
    result = run("summary", "spair-71k", "--root", trees.make_spair(tmp_path))
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert ["pairs", "2"] in lines
    assert ["images", "3"] in lines
    assert ["pairs", "with", "masks", "2"] in lines
    assert ["cat", "2", "pairs"] in lines
    assert "No problems found." in result.output


def test_problems_end_with_code_1(tmp_path: Path) -> None:
    trees.make_pf_willow(tmp_path)
    trees.replace_text(tmp_path / trees.WILLOW_LIST, "Cars_000a.png", "gone.png")
    result = run("summary", "pf-willow", "--root", tmp_path, "--json", tmp_path / "out.json")
    assert result.exit_code == 1
    assert f"{tmp_path / trees.WILLOW_LIST} line 2: there is no image" in result.output.replace("\n", "")
    assert "1 problem found." in result.output
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["dataset"] == "pf-willow"
    assert document["pairs"] == 1
    assert len(document["problems"]) == 1


def test_many_problems_are_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "PROBLEMS_SHOWN", 1)
    trees.make_pf_willow(tmp_path)
    trees.replace_text(tmp_path / trees.WILLOW_LIST, "Cars_000a.png", "gone.png")
    trees.replace_text(tmp_path / trees.WILLOW_LIST, "Cars_002a.png", "lost.png")
    output = run("summary", "pf-willow", "--root", tmp_path).output
    assert "gone.png" in output
    assert "lost.png" not in output
    assert "… and 1 more; --json FILE writes them all." in output
    assert "2 problems found." in output


def test_repeated_and_annotated_objects_are_shown(tmp_path: Path) -> None:
    assert (
        "repeated pairs"
        in run("summary", "pf-pascal", "--root", trees.make_pf_pascal(tmp_path), "--split", "train").output
    )
    assert "annotated objects" in run("summary", "coco", "--root", trees.make_coco(tmp_path)).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["summary", "pf-wilow"], "there is no data set 'pf-wilow'; there are pf-willow"),
        (["summary", "pf-willow", "--split", "train"], "pf-willow has no split 'train'; it has test"),
        (["summary", "pf-pascal"], "there is no folder"),
        (["summary", "pf-willow", "--json", "TAKEN"], "exists already; choose another name"),
        (["list", "pf-willow", "-o", "TAKEN"], "exists already"),
    ],
)
def test_mistakes_end_with_code_2(
    tmp_path: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trees.make_pf_willow(tmp_path)
    taken = tmp_path / "taken.json"
    taken.touch()
    replaced = [str(taken) if argument == "TAKEN" else argument for argument in arguments]
    monkeypatch.setattr("sys.argv", ["chmnet", "data", *replaced, "--root", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_list_is_written(tmp_path: Path) -> None:
    trees.make_coco(tmp_path)
    result = run("list", "coco", "--root", tmp_path, "-o", tmp_path / "pairs.json")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("wrote 12 pairs to")
    assert len(json.loads((tmp_path / "pairs.json").read_text())["pairs"]) == 12


@pytest.mark.parametrize("terminal", [True, False])
def test_bar_hands_everything_through(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    monkeypatch.setattr("time.monotonic", iter(range(0, 1000, 2)).__next__)  # every step takes two seconds
    paths = [Path(str(number)) for number in range(3)]
    assert list(io.track(paths, "images")) == paths
    assert ("images" in capsys.readouterr().err) == terminal
