"""The command line as a person uses it: real processes where exit codes and streams matter."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chmnet import __version__
from chmnet.cli.main import app, main
from chmnet.cli.points import check_box, parse_box, parse_points
from chmnet.errors import ChmnetError, InputError
from chmnet.weights import load_model
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
DONKEY, ZEBRA = str(EXAMPLES / "donkey.png"), str(EXAMPLES / "zebra.png")


def assert_one_sentence(code: object, stderr: str, words: str) -> None:
    assert code == 2
    assert words in stderr
    assert len(stderr.strip().splitlines()) == 1
    assert "Traceback" not in stderr


def test_help_and_version() -> None:
    runner = CliRunner()
    assert "match" in runner.invoke(app, ["--help"]).output
    assert runner.invoke(app, ["--version"]).output == f"chmnet {__version__}\n"
    for command in ("match", "benchmark", "models", "info", "convert"):
        assert "Example" in runner.invoke(app, [command, "--help"]).output


def test_info_as_text_and_json() -> None:
    runner = CliRunner()
    text = runner.invoke(app, ["info"]).output
    assert "folded" in text
    assert "native" in text
    facts = json.loads(runner.invoke(app, ["info", "--json"]).output)
    assert facts["chmnet"] == __version__
    assert ("native" in facts["not available"]) == (not facts["instruction sets"])
    assert "chmnet-lite" in facts["models"]


def test_models_are_listed() -> None:
    assert "chmnet-lite (default)" in CliRunner().invoke(app, ["models"]).output


def test_models_are_described_by_their_files() -> None:
    described = json.loads(CliRunner().invoke(app, ["models", "--json", "-"]).output)
    assert [name for name, facts in described.items() if facts["default"]] == ["chmnet-lite"]
    for name in ("chmnet-lite", "hough-prior"):
        assert described[name]["config"] == load_model(name).config.to_dict()
    assert len(described["chmnet-lite"]["config"]["calibration"]["match"]) == 14
    assert "figures" in described["chmnet-lite"]["notes"]


def test_match_writes_picture_and_json(tmp_path: Path) -> None:
    picture, document = tmp_path / "out.png", tmp_path / "out.json"
    command = ["match", DONKEY, ZEBRA, "--points", "10,20 100,80", "-o", str(picture), "--json", str(document)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert picture.stat().st_size > 1000
    matches = json.loads(document.read_text())["matches"]
    assert [row["source"] for row in matches] == [[10, 20], [100, 80]]
    assert all(0 <= row["confidence"] <= 1 for row in matches)
    assert {path.name for path in tmp_path.iterdir()} == {"out.png", "out.json"}


def test_match_without_points_chooses_some() -> None:
    result = CliRunner().invoke(app, ["match", DONKEY, ZEBRA])
    assert result.exit_code == 0
    assert len(result.stdout.strip().splitlines()) == 13


def test_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    path.write_text("precious")
    command = [sys.executable, "-m", "chmnet", "match", DONKEY, ZEBRA, "-o", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert_one_sentence(result.returncode, result.stderr, "exists already")
    assert path.read_text() == "precious"
    assert CliRunner().invoke(app, [*command[3:], "--overwrite"]).exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["match", "none.png", ZEBRA], "there is no picture none.png"),
        (["match", DONKEY, str(EXAMPLES)], "is a folder"),
        (["match", DONKEY, str(REPOSITORY / "LICENSE")], "not a picture"),
        (["match", DONKEY, ZEBRA, "--points", "1,2,3"], "x,y"),
        (["match", DONKEY, ZEBRA, "--points", "nan,2"], "the point nan,2 lies outside"),
        (["match", DONKEY, ZEBRA, "--model", "wonder"], "there is no model 'wonder'"),
        (["match", DONKEY, ZEBRA, "--model", "none.safetensors"], "there is no file"),
        (["match", DONKEY, ZEBRA, "-o", "out.unknown"], "picture format"),
        (["match", DONKEY, ZEBRA, "-o", "out.psd"], "picture format"),
        (["match", DONKEY, ZEBRA, "-o", "out.png", "--json", "out.png"], "is another output already"),
        (["match", DONKEY, ZEBRA, "-o", "out.png", "--json", "no/such/out.json"], "no such folder"),
        (["match", DONKEY, ZEBRA, "-o", DONKEY, "--overwrite"], "is an input already"),
        (["match", DONKEY, ZEBRA, "--points", "500,500"], "lies outside"),
        (["match", DONKEY, ZEBRA, "-o", "no/such/folder/out.png"], "cannot write to the folder"),
        (["convert", "none.pt", "out.safetensors"], "there is no file none.pt"),
        (["convert", "none.safetensors", "out.safetensors", "--half"], "there is no file none.safetensors"),
        (["convert", "none.pt", "out.safetensors", "--half"], "--half and --without-backbone are for model files"),
        (["convert", str(REPOSITORY / "LICENSE"), "out.safetensors"], "not a file of weights"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_one_sentence(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["chmnet", *arguments])
    with pytest.raises(SystemExit) as ending:
        main()
    assert_one_sentence(ending.value.code, capsys.readouterr().err, words)


def test_full_output_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "chmnet", "info"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert_one_sentence(result.returncode, result.stderr, "No space left")


def test_unknown_option_and_command_exit_with_2() -> None:
    assert CliRunner().invoke(app, ["match", DONKEY, ZEBRA, "--nonsense"]).exit_code == 2
    assert CliRunner().invoke(app, ["nonsense"]).exit_code == 2


@pytest.mark.parametrize("text", ["1", "1,2,3", "a,b", "1,2 3"])
def test_parse_points_refuses(text: str) -> None:
    with pytest.raises(InputError, match="x,y"):
        parse_points(text)


def test_parse_box() -> None:
    assert parse_box("", "--source-box") is None
    assert parse_box(" 1, 2,3.5 ,4", "--source-box") == (1, 2, 3.5, 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,3", "left,top,right,bottom"),
        ("1,2,3,4,5", "left,top,right,bottom"),
        ("a,b,c,d", "left,top,right,bottom"),
        ("1 2 3 4", "left,top,right,bottom"),
        (",,,", "left,top,right,bottom"),
        (" ", "left,top,right,bottom"),
        ("5,2,5,4", "left before its right"),
        ("1,4,3,4", "top above its bottom"),
        ("9,2,5,4", "left before its right"),
        ("nan,0,3,4", "left before its right"),
        ("0,0,inf,4", "left before its right"),
    ],
)
def test_parse_box_refuses(text: str, words: str) -> None:
    with pytest.raises(InputError, match=f"^--target-box must.*{words}"):
        parse_box(text, "--target-box")


@pytest.mark.parametrize(
    "box", [(-1, 0, 5, 5), (0, -0.5, 5, 5), (0, 0, 61, 5), (0, 0, 5, 40.5), (-math.inf, 0, 5, 5)]
)
def test_boxes_beyond_the_picture_are_refused(box: tuple[float, float, float, float]) -> None:
    check_box(None, Path("a.png"), 60, 40)
    check_box((0, 0, 60, 40), Path("a.png"), 60, 40)
    with pytest.raises(InputError, match=r"does not lie within a\.png, which has 60×40 pixels"):
        check_box(box, Path("a.png"), 60, 40)


def test_models_as_json(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["models", "--json", "-"])
    known = json.loads(printed.stdout)
    assert known["chmnet-lite"]["default"] is True
    assert known["chmnet-lite"]["notes"]["figures"]["pf-pascal test, img"][0] > 50
    written = CliRunner().invoke(app, ["models", "--json", str(tmp_path / "models.json")])
    assert "hough-prior" in written.stdout
    assert json.loads((tmp_path / "models.json").read_text()) == known
    again = CliRunner().invoke(app, ["models", "--json", str(tmp_path / "models.json")])
    assert isinstance(again.exception, ChmnetError)
