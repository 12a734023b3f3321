"""``chmnet kernels`` as a person uses it."""

import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from chmnet.cli.main import app, main


def test_kernels_of_the_default_model(tmp_path: Path) -> None:
    path = tmp_path / "kernels.png"
    result = CliRunner().invoke(app, ["kernels", "chmnet-lite", "-o", str(path)])
    assert result.exit_code == 0, result.output
    assert "chmnet-lite, first vote: pairs of positions (4D), 55 weights" in result.output
    assert "last vote" in result.output
    assert "chmnet-lite, fine vote: pairs of positions (4D), 55 weights" in result.output
    with Image.open(path) as picture:
        assert picture.width > 1500
        darkest, lightest = picture.convert("L").getextrema()
        assert (darkest < 60, lightest) == (True, 255)  # ink on paper
    assert [file.name for file in tmp_path.iterdir()] == ["kernels.png"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nearest-neighbour", "-o", "k.png"], "nearest-neighbour has no Hough layers"),
        (["wonder", "-o", "k.png"], "there is no model 'wonder'"),
        (["none.safetensors", "-o", "k.png"], "there is no file none.safetensors"),
        (["chmnet-lite", "-o", "k.unknown"], "picture format"),
        (["chmnet-lite", "-o", "no/such/k.png"], "no such folder"),
        (["chmnet-lite", "-o", "taken.png"], "taken.png exists already"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken.png").write_text("precious")
    monkeypatch.setattr(sys, "argv", ["chmnet", "kernels", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    stderr = capsys.readouterr().err
    assert stopped.value.code == 2
    assert words in stderr
    assert len(stderr.strip().splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["taken.png"]
    assert Path("taken.png").read_text() == "precious"


def test_help_has_examples() -> None:
    printed = CliRunner().invoke(app, ["kernels", "--help"]).output
    assert "chmnet kernels chmnet-lite -o kernels.png" in printed
