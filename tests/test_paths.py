"""How far one pair walks: the files of chmnet in which a function runs, traced while real commands run.

Calls go down the layers only (``tests/test_imports.py`` says what lies below what); what goes up is a callback.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from typer.testing import CliRunner

from chmnet.cli.main import app
from chmnet.matcher import Matcher
from tests.conftest import REPOSITORY
from tests.test_imports import LAYERS, PACKAGE, part_of

EXAMPLES = REPOSITORY / "examples"
HANDED_IN = {("tables", "config"), ("poses", "matcher"), ("place", "matcher")}
"""What goes up: a table makes the dataclass that it was handed, which then checks itself; the searches for
a pose and a place ask the matcher for features and votes."""
PAIR = (EXAMPLES / "donkey.png", EXAMPLES / "zebra.png")


class Trace:
    """The files of chmnet that were entered, and which called which."""

    def __init__(self) -> None:
        self.on = True
        self.files: set[str] = set()
        self.calls: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.on or event != "call" or frame.f_code.co_name == "<module>":
            return
        callee = _module(frame)
        if callee is None:
            return
        self.files.add(callee)
        caller = frame.f_back
        while caller is not None and _module(caller) is None:
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>":
            self.calls.add((str(_module(caller)), callee))


def _module(frame: FrameType) -> str | None:
    """``nn/hough`` for a function of ``nn/hough.py``; ``None`` outside of the package, and for its imports."""
    path = Path(frame.f_code.co_filename)
    if PACKAGE not in path.parents or frame.f_code.co_name == "<module>":
        return None
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


@contextmanager
def traced() -> Iterator[Trace]:
    trace = Trace()
    before = sys.getprofile()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


def height(module: str) -> int | None:
    """The layer of a module, counted from the bottom; ``None`` for what stands beside the tower."""
    part = part_of("chmnet." + module.replace("/", "."))
    return next((number for number, parts in enumerate(LAYERS) if part in parts), None)


def check_calls_go_down(trace: Trace) -> None:
    up = []
    for caller, callee in trace.calls - HANDED_IN:
        lower, upper = height(callee), height(caller)
        if lower is not None and upper is not None and lower > upper:
            up.append((caller, callee))
    assert sorted(up) == []


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    ready = Matcher(device="cpu")
    ready.match(*PAIR).matches()  # what is loaded once is loaded now
    return ready


def test_an_upright_pair_enters_at_most_sixteen_files(matcher: Matcher) -> None:
    with traced() as trace:
        matcher.match(*PAIR, poses="upright").matches()
    assert len(trace.files) <= 16, sorted(trace.files)
    assert {"matcher", "pictures", "nn/fine", "result", "ops/transfer"} <= trace.files
    check_calls_go_down(trace)


def test_a_pair_in_two_poses_enters_one_file_more(matcher: Matcher) -> None:
    with traced() as trace:
        matcher.match(*PAIR).matches()
    assert "poses" in trace.files
    assert len(trace.files) <= 18, sorted(trace.files)
    check_calls_go_down(trace)


def test_the_whole_command_enters_at_most_thirty_two_files(tmp_path: Path) -> None:
    def run(out: str) -> None:
        arguments = ["match", str(PAIR[0]), str(PAIR[1]), "-o", str(tmp_path / out)]
        assert CliRunner().invoke(app, arguments).exit_code == 0

    run("first.png")
    with traced() as trace:
        run("second.png")
    assert (tmp_path / "second.png").is_file()
    assert len(trace.files) <= 32, sorted(trace.files)
    assert {"cli/main", "cli/match", "matcher", "viz/matches"} <= trace.files
    check_calls_go_down(trace)


def test_a_single_pair_hashes_nothing_and_opens_each_picture_once(
    matcher: Matcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("hashlib.sha256", _refuse("hashed"))
    from PIL import Image

    real = Image.open
    monkeypatch.setattr(Image, "open", lambda file, **options: opened.append(str(file)) or real(file, **options))
    result = matcher.match(*PAIR)
    result.matches()
    result.warp()
    assert sorted(opened) == sorted(map(str, PAIR))


def _refuse(word: str) -> Callable[..., Any]:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError(word)

    return refuse


def test_control_a_call_upwards_is_noticed() -> None:
    trace = Trace()
    trace.calls.add(("nn/hough", "matcher"))
    with pytest.raises(AssertionError, match="matcher"):
        check_calls_go_down(trace)
