"""``chmnet train`` as a person uses it."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chmnet.cli.main import app, main
from tests.cli.test_cli import assert_one_sentence
from tests.conftest import REPOSITORY
from tests.data import trees
from tests.training.tiny import tiny_config


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "run.toml"
    path.write_text(tiny_config().to_toml())
    return str(path)


def test_help_has_examples() -> None:
    assert "Example" in CliRunner().invoke(app, ["train", "--help"]).output


def test_train_then_match_with_the_model(tmp_path: Path, config: str) -> None:
    folder = tmp_path / "run"
    result = CliRunner().invoke(app, ["train", config, "-o", str(folder), "--set", "epochs=1"])
    assert result.exit_code == 0, result.output
    assert "2 steps done" in result.stdout
    assert "best validation at step" in result.stdout
    assert "step      0  validation loss" in result.stderr
    assert "step      2  validation loss" in result.stderr
    resumed = CliRunner().invoke(app, ["train", "--resume", str(folder), "--set", "epochs=2"])
    assert "4 steps done" in resumed.stdout
    pictures = [str(REPOSITORY / "examples" / name) for name in ("sedan.png", "sportscar.png")]
    matched = CliRunner().invoke(app, ["match", *pictures, "--model", str(folder / "last.safetensors")])
    assert matched.exit_code == 0, matched.output


def test_root_from_the_environment(tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = trees.make_animal_pose(tmp_path / "data")
    monkeypatch.setenv("CHMNET_DATA", str(root))
    changes = [
        "--set",
        "data=[{dataset='animal-pose', count=4}]",
        "--set",
        "epochs=1",
        "--set",
        "augmentation.flip=0.5",
    ]
    result = CliRunner().invoke(app, ["train", config, "-o", str(tmp_path / "run"), *changes])
    assert result.exit_code == 0, result.output
    assert "1 steps done" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name a configuration file, or a run to --resume"),
        (["CONFIG"], "name a folder for the run: -o runs/NAME"),
        (["none.toml", "-o", "OUT"], "cannot read the configuration none.toml"),
        (["CONFIG", "-o", "FULL"], "exists already"),
        (["CONFIG", "-o", "OUT", "--set", "epoch=3"], "did you mean 'epochs'?"),
        (["CONFIG", "-o", "OUT", "--set", "data=[{}]"], "where is pf-pascal?"),
        (["CONFIG", "-o", "OUT", "--set", "data=[{}]", "--root", "none"], "none"),
        (["--resume", "none"], "none holds no run"),
        (["--resume", "FULL", "--set", "seed=3"], "seed would change; only epochs"),
        (["--resume", "FULL", "-o", "OUT"], "stays in its folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_one_sentence(
    tmp_path: Path,
    config: str,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("CHMNET_DATA", raising=False)
    full = tmp_path / "full"
    full.mkdir()
    (full / "config.toml").write_text(tiny_config().to_toml())
    places = {"CONFIG": config, "OUT": str(tmp_path / "out"), "FULL": str(full)}
    monkeypatch.setattr(sys, "argv", ["chmnet", "train", *(places.get(word, word) for word in arguments)])
    with pytest.raises(SystemExit) as ending:
        main()
    assert_one_sentence(ending.value.code, capsys.readouterr().err, words)
    assert not (tmp_path / "out").exists()
