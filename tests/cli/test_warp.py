"""``chmnet warp``: pictures, mixtures, animations, and mistakes."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from typer.testing import CliRunner

from chmnet.cli.main import app
from chmnet.pictures import to_picture
from tests.conftest import REPOSITORY

from .conftest import Run
from .odd_pictures import BAD, ODD, photograph
from .test_cli import assert_one_sentence


def test_help_has_examples() -> None:
    assert "chmnet warp donkey.png" in CliRunner().invoke(app, ["warp", "--help"]).output


@pytest.mark.parametrize("method", ["flow", "tps"])
def test_a_picture_warped_onto_itself_stays(method: str, tmp_path: Path, run: Run, small_model: str) -> None:
    path, out = tmp_path / "a.png", tmp_path / "out.png"
    photograph((120, 120)).save(path)
    code, printed, complaint = run("warp", path, path, "-o", out, "--method", method, "--model", small_model)
    assert (code, printed, complaint) == (0, "", "")
    difference = np.asarray(to_picture(out)).astype(int) - np.asarray(to_picture(path))
    assert np.abs(difference[12:-12, 12:-12]).mean() < 12


def test_blend_and_animation(pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str) -> None:
    for blend in ("0", "0.5", "1"):
        command = ["warp", *pair, "--model", small_model, "--blend", blend, "-o", tmp_path / f"{blend}.png"]
        assert run(*command, "--animate", tmp_path / "morph.gif", "--overwrite")[0] == 0
    none, half, full = (
        np.asarray(to_picture(tmp_path / f"{blend}.png")).astype(int) for blend in ("0", "0.5", "1")
    )
    np.testing.assert_array_equal(none, np.asarray(to_picture(pair[1])))
    assert np.abs(half - (none + full) / 2).max() <= 1
    with Image.open(tmp_path / "morph.gif") as animation:
        assert animation.size == (50, 70)
        assert animation.n_frames == 20
        assert animation.info["loop"] == 0
    assert (tmp_path / "morph.gif").stat().st_size < 200_000


@pytest.mark.parametrize("kind", ODD)
def test_odd_pictures_work(kind: str, pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str) -> None:
    odd = ODD[kind](tmp_path)
    out, animation = tmp_path / "out.png", tmp_path / "out.gif"
    code, _, complaint = run("warp", pair[0], odd, "--model", small_model, "-o", out, "--animate", animation)
    assert (code, complaint) == (0, "")
    assert to_picture(out).size == to_picture(odd).size


@pytest.mark.parametrize("place", [0, 1], ids=["source", "target"])
@pytest.mark.parametrize("kind", BAD)
def test_bad_pictures_are_one_sentence_and_write_nothing(
    kind: str, place: int, pair: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    make, words = BAD[kind]
    folder, out = tmp_path / "bad", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    pictures = list(pair)
    pictures[place] = make(folder)
    code, _, complaint = run("warp", *pictures, "-o", out / "w.png", "--animate", out / "m.gif")
    assert_one_sentence(code, complaint, words)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "OUT/w.xyz"], "picture format"),
        (["-o", "OUT/w.png", "--animate", "OUT/m.png"], "must end in .gif"),
        (["-o", "OUT/w.gif", "--animate", "OUT/w.gif"], "another output"),
        (["-o", "OUT/no/w.png"], "no such folder"),
        (["-o", "OUT/w.png", "--animate", "/proc/m.gif"], "cannot write to the folder /proc"),
        (["-o", "OUT/w.png", "--device", "mps:99"], "device"),
        (["-o", "OUT/w.png", "--model", "wonder"], "there is no model"),
        (["-o", "OUT/w.png", "--backbone-weights", "none.pth"], "backbone"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(
    arguments: list[str], words: str, pair: tuple[Path, Path], tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    code, _, complaint = run("warp", *pair, *(word.replace("OUT", str(out)) for word in arguments))
    assert_one_sentence(code, complaint, words)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["-o", "w.png", "--blend", "2"], ["-o", "w.png", "--method", "magic"]])
def test_wrong_options_exit_with_2(arguments: list[str], pair: tuple[Path, Path]) -> None:
    assert CliRunner().invoke(app, ["warp", *map(str, pair), *arguments]).exit_code == 2


def test_spline_without_matches_is_one_sentence(
    pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chmnet.warping.CONFIDENCE_THRESHOLD", 1.1)  # as if no match were sure
    command = ["warp", *pair, "--model", small_model, "-o", tmp_path / "w.png", "--method", "tps"]
    code, _, complaint = run(*command)
    assert_one_sentence(code, complaint, "at least three matches")
    assert not (tmp_path / "w.png").exists()


def test_a_mirrored_target_is_found_and_boxes_bound_what_is_drawn(tmp_path: Path, run: Run) -> None:
    donkey = to_picture(REPOSITORY / "examples" / "donkey.png")
    ImageOps.mirror(donkey).save(tmp_path / "mirrored.png")
    command = ["warp", REPOSITORY / "examples" / "donkey.png", tmp_path / "mirrored.png"]
    code, printed, complaint = run(*command, "-o", tmp_path / "w.png")
    assert (code, printed) == (0, "")
    assert "mirrored before matching" in complaint
    drawn = np.asarray(to_picture(tmp_path / "w.png")).astype(int)[20:-20, 20:-20]
    same, other = (np.asarray(each)[20:-20, 20:-20] for each in (ImageOps.mirror(donkey), donkey))
    assert np.abs(drawn - same).mean() < 0.5 * np.abs(drawn - other).mean()
    assert run(*command, "-o", tmp_path / "b.png", "--target-box", "20,20,80,120")[0] == 0
    boxed = np.asarray(to_picture(tmp_path / "b.png"))
    assert (boxed[:, 100:] == 255).all()
    assert (boxed[40:100, 30:70] != 255).any()
    code, _, complaint = run(*command, "-o", tmp_path / "c.png", "--source-box", "20,20,80,1200")
    assert_one_sentence(code, complaint, "does not lie within")
