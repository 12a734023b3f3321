"""Running commands in this process, with a model so small that each takes a moment."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chmnet.cli.main import main
from chmnet.weights import load_model, save_model

from .odd_pictures import photograph

Run = Callable[..., tuple[object, str, str]]


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model file."""
    path = tmp_path_factory.mktemp("model") / "small.safetensors"
    save_model(load_model("nearest-neighbour", changes={"image_size": [64, 64]}), path)
    return str(path)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``chmnet`` with arguments: (exit code, what it printed, what it complained)."""

    def command(*arguments: str | Path) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["chmnet", *map(str, arguments)])
        with pytest.raises(SystemExit) as ending:
            main()
        captured = capsys.readouterr()
        return ending.value.code, captured.out, captured.err

    return command


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two pictures of other sizes, in a folder of their own."""
    folder = tmp_path / "in"
    folder.mkdir()
    photograph((60, 40)).save(folder / "a.png")
    photograph((50, 70)).save(folder / "b.png")
    return folder / "a.png", folder / "b.png"
