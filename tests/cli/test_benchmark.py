"""``chmnet benchmark`` as a person uses it, on a small network."""

import json
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from chmnet.benchmark import timing
from chmnet.cli.io import parse_whole_numbers
from chmnet.cli.main import app, main
from chmnet.config import BackboneConfig
from chmnet.errors import InputError
from chmnet.nn.chmnet import CHMNet
from chmnet.weights import save_model
from tests.cli.test_cli import assert_one_sentence
from tests.flat import flat_config

SMALL = ["benchmark", "--backbone", "resnet18", "--size", "32", "--repeats", "1"]


@pytest.fixture
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "pair_peak_megabytes", lambda *_: None)


@pytest.mark.usefixtures("_no_processes")
def test_tables_json_and_plot(tmp_path: Path) -> None:
    document, plot = tmp_path / "cost.json", tmp_path / "cost.png"
    command = [*SMALL, "--only", "head,pair,growth", "--sizes", "32,48", "--set", "correlation.scales=[1.0]"]
    before = torch.get_num_threads()
    result = CliRunner().invoke(app, [*command, "--threads", "1", "--json", str(document), "--plot", str(plot)])
    assert result.exit_code == 0, result.output
    assert torch.get_num_threads() == before
    for words in (
        "paper (resnet18, correlation.scales=[1.0]), images of 32 × 32",
        "first vote",
        "48 × 48",
        "cached",
    ):
        assert words in result.stdout
    assert result.stderr == ""
    report = json.loads(document.read_text())
    assert report["machine"]["threads"] == 1
    assert report["model"]["config"]["correlation"]["scales"] == [1.0]
    assert report["parameters"]["votes"] == 110
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"cost.json", "cost.png"}
    for folder in (str(tmp_path), str(Path.home())):
        assert folder not in document.read_text()


def test_configuration_and_model_files(tmp_path: Path) -> None:
    config = flat_config(backbone=BackboneConfig("resnet18"), first_sharing="iso", image_size=(32, 48))
    toml, weights = tmp_path / "mine.toml", tmp_path / "mine.safetensors"
    toml.write_text(config.to_toml())
    save_model(CHMNet(config), weights)
    for option, file in (("--config", toml), ("--model", weights)):
        document = tmp_path / f"{file.name}.json"
        command = ["benchmark", option, str(file), "--only", "head", "--repeats", "1", "--json", str(document)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        report = json.loads(document.read_text())
        assert report["model"]["name"] == file.name
        assert report["model"]["image_size"] == [32, 48]
        assert report["parameters"]["votes"] == 100


def test_known_models_need_no_weights() -> None:
    command = ["benchmark", "--model", "nearest-neighbour", "--backbone", "resnet18", "--size", "32"]
    result = CliRunner().invoke(app, [*command, "--only", "head", "--repeats", "1"])
    assert result.exit_code == 0, result.output
    assert "nearest-neighbour (resnet18)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "speed"], "unknown part 'speed'"),
        (["--repeats", "0"], "repeats must be at least 1, got 0"),
        (["--threads", "-1"], "threads must be at least 1, got -1"),
        (["--size", "-5"], "size must be at least 1, got -5"),
        (["--size", "5000"], "image_size must be at most 4096"),
        (["--sizes", "120,4000"], "would not fit into memory"),
        (["--sizes", "120,big"], "sizes must be whole numbers"),
        (["--sizes", ","], "one or more whole numbers"),
        (["--model", "wonder"], "there is no model 'wonder'"),
        (["--model", "none.safetensors", "--backbone", ""], "there is no file"),
        (["--backbone", "vgg"], "must be one of resnet18"),
        (["--set", "speed=1"], "unknown key 'speed'"),
        (["--set", "speed"], "must be written key=value"),
        (["--config", "none.toml"], "cannot read the configuration none.toml"),
        (["--threads", "99999999"], "threads must be at most"),
        (["--config", "none.toml", "--model", "paper"], "not both"),
        (["--plot", "cost.svg"], "a plot must end in .png"),
        (["--plot", "cost.png", "--only", "head"], "a plot shows pair and growth"),
        (["--json", "cost.png", "--plot", "cost.png"], "is another output already"),
        (["--json", "no/such/cost.json"], "no such folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_one_sentence(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["chmnet", *SMALL, *arguments])
    with pytest.raises(SystemExit) as ending:
        main()
    assert_one_sentence(ending.value.code, capsys.readouterr().err, words)


def test_existing_files_are_kept(tmp_path: Path) -> None:
    document = tmp_path / "cost.json"
    document.write_text("precious")
    command = [*SMALL, "--only", "head", "--json", str(document)]
    assert isinstance(CliRunner().invoke(app, command).exception, InputError)
    assert document.read_text() == "precious"
    assert CliRunner().invoke(app, [*command, "--overwrite"]).exit_code == 0
    assert json.loads(document.read_text())["head"]


def test_parse_whole_numbers() -> None:
    assert parse_whole_numbers(" 120, 240,", "sizes", "120,240") == (120, 240)
    with pytest.raises(InputError, match="whole numbers"):
        parse_whole_numbers("1.5", "sizes", "120,240")
