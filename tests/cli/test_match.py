"""``chmnet match``: every output, points from everywhere, odd pictures, and mistakes."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from chmnet import pictures
from chmnet.cli.match import _print_areas
from chmnet.cli.points import MOST_BYTES, read_points
from chmnet.config import TransferConfig
from chmnet.errors import InputError
from chmnet.features import FeatureCache
from chmnet.formats import read_flo, read_npz
from chmnet.pictures import Picture, View, to_picture
from chmnet.poses import mirrored
from chmnet.result import MatchResult
from chmnet.turns import turned
from tests.conftest import REPOSITORY

from .conftest import Run
from .odd_pictures import BAD, ODD, photograph
from .test_cli import assert_one_sentence

DONKEY = REPOSITORY / "examples" / "donkey.png"


def test_every_output_at_once(pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    code, printed, complaint = run(
        *("match", *pair, "--model", small_model, "--points", "10,20 60,40", "--device", "cpu"),
        *("-o", out / "m.png", "--json", out / "m.json", "--flow", out / "f.npz", "--warp", out / "w.jpg"),
    )
    assert (code, complaint) == (0, "")
    assert {path.name for path in out.iterdir()} == {"m.png", "m.json", "f.npz", "w.jpg"}
    document = json.loads((out / "m.json").read_text())
    assert document["source_size"] == [40, 60]
    assert [row["source"] for row in document["matches"]] == [[10, 20], [60, 40]]
    dense = read_npz(out / "f.npz")
    assert dense.flow.shape == (40, 60, 2)
    assert dense.confidence.shape == (40, 60)
    assert to_picture(out / "w.jpg").size == (50, 70)
    lines = [line.split("\t") for line in printed.splitlines()]
    assert lines[0] == ["source_x", "source_y", "target_x", "target_y", "confidence"]
    expected = [[*row["source"], *row["target"], row["confidence"]] for row in document["matches"]]
    np.testing.assert_allclose(np.array(lines[1:], dtype=float), expected, atol=0.006)


def test_json_to_standard_output_is_all_that_is_printed(
    pair: tuple[Path, Path], run: Run, small_model: str
) -> None:
    code, printed, complaint = run("match", *pair, "--model", small_model, "--json", "-")
    assert (code, complaint) == (0, "")
    assert len(json.loads(printed)["matches"]) == 12


def test_flo_opens_as_such(pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str) -> None:
    assert run("match", *pair, "--model", small_model, "--flow", tmp_path / "f.flo")[0] == 0
    assert read_flo(tmp_path / "f.flo").shape == (40, 60, 2)


@pytest.mark.parametrize(
    "text",
    ["10,20\n60,40\n", "x,y\n10 20\n\n# comment\n60\t40", "[[10, 20], [60, 40.0]]", "\ufeff10; 20\r\n60; 40"],
)
def test_points_files(text: str, pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str) -> None:
    file = tmp_path / "points.csv"
    file.write_text(text, encoding="utf-8")
    code, printed, _ = run("match", *pair, "--model", small_model, "--points-file", file, "--json", "-")
    assert code == 0
    assert [row["source"] for row in json.loads(printed)["matches"]] == [[10, 20], [60, 40]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no points"),
        (b"[]", "holds no points"),
        (b"1,2\n3\n", "line 2"),
        (b"1,2,3\n", "line 1"),
        (b"a,b\n", "line 1"),
        (b"[[1, 2], [3]]", "JSON list"),
        (b"[[1, true]]", "JSON list"),
        (b'{"a": 1}', "JSON list"),
        (b"[[1, 2]", "JSON list"),
        (b"[" * 100_000, "JSON list"),
        (b"[[1" + b"0" * 400 + b", 2]]", "JSON list"),
        (b"\xff\xfe\x00", "not text"),
    ],
)
def test_bad_points_files(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "points"
    file.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_points(file)


@pytest.mark.parametrize("kind", ODD)
def test_odd_pictures_work(kind: str, pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str) -> None:
    odd, out = ODD[kind](tmp_path), tmp_path / "out"
    out.mkdir()
    outputs = ["-o", out / "m.png", "--flow", out / "f.flo", "--warp", out / "w.png"]
    code, printed, complaint = run("match", odd, pair[1], "--model", small_model, *outputs)
    assert (code, complaint) == (0, "")
    assert "nan" not in printed
    assert len(list(out.iterdir())) == 3
    width, height = to_picture(odd).size
    assert read_flo(out / "f.flo").shape == (height, width, 2)
    if kind == "rotated by EXIF":
        assert (width, height) == (40, 60)  # as seen, not as stored


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
    outputs = ["-o", out / "m.png", "--json", out / "m.json", "--flow", out / "f.flo", "--warp", out / "w.png"]
    code, printed, complaint = run("match", *pictures, *outputs)
    assert_one_sentence(code, complaint, words)
    assert printed == ""
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--points", "61,5"], "lies outside"),
        (["--points", "nan,5"], "lies outside"),
        (["--points", "5,inf"], "lies outside"),
        (["--points", "1"], "x,y"),
        (["--points", "1,2", "--points-file", "points.csv"], "not both"),
        (["--points-file", "none.csv"], "cannot read the points file"),
        (["--points-file", "."], "is a folder; name a file for points"),
        (["--flow", "OUT/f.png"], "must end in .flo or .npz"),
        (["--warp", "OUT/w.flo"], "picture format"),
        (["-o", "OUT/m.xyz"], "picture format"),
        (["-o", "OUT/m.png", "--warp", "OUT/m.png"], "another output"),
        (["-o", "OUT/m.png", "--flow", "OUT/no/f.flo"], "no such folder"),
        (["-o", "OUT/m.png", "--json", "/proc/m.json"], "cannot write to the folder /proc"),
        (["-o", "OUT/m.png", "--json", "OUT"], "is a folder"),
        (["-o", "OUT/m.png", "--device", "quantum"], "there is no device"),
        (["-o", "OUT/m.png", "--model", "wonder"], "there is no model"),
        (["-o", "OUT/m.png", "--source-box", "1,2,3"], "--source-box must be"),
        (["-o", "OUT/m.png", "--target-box", "5,5,5,9"], "--target-box must have"),
        (["-o", "OUT/m.png", "--source-box", "0,0,61,40"], "does not lie within"),
        (["-o", "OUT/m.png", "--target-box", "-1,0,50,40"], "does not lie within"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(
    arguments: list[str], words: str, pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    model = [] if "--model" in arguments else ["--model", small_model]
    code, _, complaint = run("match", *pair, *model, *(word.replace("OUT", str(out)) for word in arguments))
    assert_one_sentence(code, complaint, words)
    assert list(out.iterdir()) == []


def test_a_mirrored_target_is_said_and_its_points_are_in_its_own_pixels(
    tmp_path: Path, run: Run, small_model: str
) -> None:
    for name, picture in (
        ("m.png", ImageOps.mirror(Image.open(DONKEY))),
        ("t.png", Image.open(DONKEY).rotate(90)),
    ):
        picture.save(tmp_path / name)
    command = [
        "match",
        DONKEY,
        tmp_path / "m.png",
        "--model",
        small_model,
        "--points",
        "60,50 150,80",
        "--json",
        "-",
    ]
    code, printed, complaint = run(*command)
    document = json.loads(printed)
    assert code == 0
    assert complaint.startswith("the target was mirrored before matching, ")
    assert complaint.endswith("% sure\n")
    assert document["pose"]["mirrored"]
    assert document["pose"]["turn"] == 0
    assert document["pose"]["probability"] > 0.5
    np.testing.assert_allclose([row["target"] for row in document["matches"]], [[140, 50], [50, 80]], atol=12)
    code, printed, complaint = run(*command, "--poses", "upright")
    assert (code, complaint) == (0, "")
    assert json.loads(printed)["pose"] == {"mirrored": False, "turn": 0, "probability": None}
    asked = json.loads(run(*command, "--mirrored")[1])
    assert asked["pose"] == {"mirrored": True, "turn": 0, "probability": None}
    assert asked["matches"][0]["target"] == document["matches"][0]["target"]
    for poses in ("mirror", "any"):
        code, _, complaint = run(*command, "--mirrored", "--poses", poses)
        assert code == 2
        assert_one_sentence(code, complaint, "--mirrored or --poses, not both")
    command[2] = tmp_path / "t.png"
    code, printed, complaint = run(*command, "--poses", "any")
    assert complaint.startswith("the target was turned by 90° clockwise before matching, ")
    assert json.loads(printed)["pose"]["turn"] == 270


def test_the_middle_of_a_turned_picture_is_not_said_to_be_found(capsys: pytest.CaptureFixture[str]) -> None:
    view = View(Picture(np.zeros((100, 200, 3), dtype=np.uint8)))
    found = replace(view, area=(20, 20, 90, 80), turn=30)
    words = {view: "the whole picture", found: "from (20, 20) to (90, 80)"}
    words[mirrored(turned(view, 30))] = words[turned(view, 30)] = "the middle of the picture, which was turned"
    for target, expected in words.items():
        result = MatchResult(torch.zeros(1, 1, 2, 2, 2, 2), view, target, TransferConfig())
        _print_areas(result, Path("a.png"), Path("b.png"))
        assert capsys.readouterr().err == f"a.png: matched the whole picture\nb.png: matched {expected}\n"


def test_boxes_are_matched_inside_and_answered_for_the_whole_picture(tmp_path: Path, run: Run) -> None:
    wide = Image.new("RGB", (500, 300), "grey")
    wide.paste(to_picture(DONKEY), (250, 100))
    wide.save(tmp_path / "wide.png")
    command = ["match", DONKEY, tmp_path / "wide.png", "--points", "60,50 150,80", "--json", "-"]
    code, printed, complaint = run(*command, "--target-box", "250,100,450,261", "--source-box", "0,0,200,161")
    assert (code, complaint) == (0, "")
    document = json.loads(printed)
    assert document["source_area"] == [0, 0, 200, 161]
    left, top, right, bottom = document["target_area"]
    assert left <= 250 < 450 <= right
    assert top <= 100 < 261 <= bottom
    np.testing.assert_allclose([row["target"] for row in document["matches"]], [[310, 150], [400, 180]], atol=12)
    assert json.loads(run(*command)[1])["target_area"] is None
    assert run(*command, "--poses", "sideways")[0] == 2
    assert run(*command, "--place", "nowhere")[0] == 2


def test_the_thing_is_found_and_answered_for_the_whole_picture(tmp_path: Path, run: Run) -> None:
    wide = Image.new("RGB", (700, 500), "white")
    wide.paste(to_picture(DONKEY), (420, 250))
    wide.save(tmp_path / "wide.png")
    command = ["match", DONKEY, tmp_path / "wide.png", "--points", "60,50 150,80", "--json", "-"]
    code, printed, complaint = run(*command, "--place", "found")
    document = json.loads(printed)
    assert code == 0
    left, top, right, bottom = document["target_area"]
    assert f"wide.png: matched from ({left}, {top}) to ({right}, {bottom})\n" in complaint
    assert "donkey.png: matched " in complaint
    assert 300 < left < 480
    assert 150 < top < 310
    assert (right, bottom) > (560, 350)
    np.testing.assert_allclose([row["target"] for row in document["matches"]], [[480, 300], [570, 330]], atol=15)


@pytest.mark.parametrize("text", ["", " ; "])
def test_no_points_are_not_the_default_points(
    pair: tuple[Path, Path], run: Run, small_model: str, text: str
) -> None:
    code, _, complaint = run("match", *pair, "--model", small_model, "--points", text)
    assert_one_sentence(code, complaint, "--points names no point")


def test_existing_outputs_stay_unless_allowed(
    pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str
) -> None:
    precious = tmp_path / "f.flo"
    precious.write_text("precious")
    command = ["match", *pair, "--model", small_model, "-o", tmp_path / "m.png", "--flow", precious]
    code, _, complaint = run(*command)
    assert_one_sentence(code, complaint, "exists already")
    assert precious.read_text() == "precious"
    assert not (tmp_path / "m.png").exists()
    assert run(*command, "--overwrite")[0] == 0
    assert precious.read_bytes().startswith(b"PIEH")


def test_picture_formats_that_cannot_hold_it_are_one_sentence(
    pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str
) -> None:
    photograph((1, 66_000)).save(tmp_path / "long.png")
    code, _, complaint = run(
        "match", pair[0], tmp_path / "long.png", "--model", small_model, "--warp", tmp_path / "w.jpg"
    )
    assert_one_sentence(code, complaint, "cannot write the picture")
    assert not (tmp_path / "w.jpg").exists()


def test_a_terminal_gets_a_table(
    pair: tuple[Path, Path], run: Run, small_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    _, printed, _ = run("match", *pair, "--model", small_model, "--points", "10,20")
    assert "source x, y" in printed
    assert "10.0, 20.0" in printed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["large.jpg", "large.png"])
def test_a_hundred_megapixels_take_seconds_and_not_much_memory(name: str, tmp_path: Path) -> None:
    """Both commands, in processes of their own; processor time, because others may use the machine too."""
    picture = photograph((12_000, 8_400))
    picture.save(tmp_path / name, **({"compress_level": 1} if name.endswith("png") else {}))
    del picture
    photograph().save(tmp_path / "small.png")
    command = [sys.executable, "-c", MEASURE, sys.executable, "-m", "chmnet"]
    for arguments in (
        ["match", name, "small.png", "-o", "m.png", "--warp", "w.png"],
        ["warp", "small.png", name, "-o", "large-out.jpg"],
    ):
        printed = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        seconds, megabytes = map(float, printed.stdout.split())
        assert seconds < 60
        assert megabytes < 2500
    assert to_picture(tmp_path / "large-out.jpg").size == (12_000, 8_400)


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def test_each_picture_is_read_once_and_nothing_is_hashed_or_kept(
    pair: tuple[Path, Path], tmp_path: Path, run: Run, small_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()

    def counted(owner: object, name: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: (calls.update([name]), real(*a, **k))[1])

    counted(Image, "open")
    counted(pictures, "to_rgb")
    counted(hashlib, "sha256")
    counted(FeatureCache, "get")
    command = ["match", *pair, "--model", small_model, "--points", "10,20 60,40", "-o", tmp_path / "m.png"]
    assert run(*command)[0] == 0
    assert calls == {"open": 2, "to_rgb": 2}


def test_several_things(herd: Path, tmp_path: Path, run: Run) -> None:
    outputs = ["-o", tmp_path / "m.png", "--json", tmp_path / "m.json"]
    code, printed, complaint = run("match", DONKEY, herd, "--instances", "3", "--points", "85,44 20,42", *outputs)
    assert (code, complaint) == (0, "")
    rows = json.loads((tmp_path / "m.json").read_text())["matches"]
    assert [row["instance"] for row in rows] == [1, 1, 2, 2]
    assert [row["target"][0] > 240 for row in rows] == [False, False, True, True]
    assert printed.splitlines()[0].split("\t")[:2] == ["instance", "source_x"]
    assert [line.split("\t")[0] for line in printed.splitlines()[1:]] == ["1", "1", "2", "2"]
    assert to_picture(tmp_path / "m.png").width > 480


def test_one_thing_is_one_instance(pair: tuple[Path, Path], run: Run, small_model: str) -> None:
    code, printed, _ = run("match", *pair, "--model", small_model, "--instances", "1", "--json", "-")
    assert code == 0
    assert {row["instance"] for row in json.loads(printed)["matches"]} == {1}
    code, _, complaint = run("match", *pair, "--model", small_model, "--instances", "0")
    assert code == 2
    assert "instances" in complaint


def test_points_come_through_a_pipe_of_the_shell_but_never_without_an_end(tmp_path: Path) -> None:
    pipe, loop, long = tmp_path / "pipe", tmp_path / "loop", tmp_path / "long.csv"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    with long.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    for path, sentence in (
        (pipe, "is a device or a pipe"),
        (Path("/dev/zero"), "is a device or a pipe"),
        (loop, "Too many levels of symbolic links"),
        (long, "is longer than 16 MB"),
    ):
        with pytest.raises(InputError, match=sentence):
            read_points(path)
    reading, writing = os.pipe()
    os.write(writing, b"1,2\n3,4\n")
    os.close(writing)
    assert read_points(Path(f"/dev/fd/{reading}")) == [(1, 2), (3, 4)]
    os.close(reading)
