"""Outputs are written whole or not at all, by one process at a time; links and devices stay what they are."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chmnet.errors import InputError
from chmnet.outputs import PART, atomic_path, check_writable, held, is_standard_output


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    with atomic_path(str(path)) as temporary:
        temporary.write_text("1 2 3")
        assert not path.exists()
        assert temporary.parent == tmp_path  # the same disk: the change of name is one step
        assert temporary.suffix == ".txt"  # writers that choose the format by the name choose the same
    assert path.read_text() == "1 2 3"
    assert names(tmp_path) == ["numbers.txt"]


def test_existing_file_stays_whole_until_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError("stop"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("old")

    def write_half() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half of the")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["numbers.txt"]


def test_full_disk_is_one_sentence(tmp_path: Path) -> None:
    def write_half() -> None:
        with atomic_path(tmp_path / "numbers.txt") as temporary:
            temporary.write_text("half of the")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match=r"cannot write .*numbers.txt: No space left on device$"):
        write_half()
    assert names(tmp_path) == []


def test_existing_file_may_be_protected(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    path.write_text("old")
    with (
        pytest.raises(InputError, match=r"numbers.txt exists already; choose another name"),
        atomic_path(path, False),
    ):
        pytest.fail("the block must not run")
    assert path.read_text() == "old"
    with atomic_path(tmp_path / "new.txt", overwrite=False) as temporary:
        temporary.write_text("new")
    assert names(tmp_path) == ["new.txt", "numbers.txt"]


def test_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder; name a file to write"), atomic_path(tmp_path):
        pytest.fail("the block must not run")


def test_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for parent, reason in ((tmp_path / "none", "there is no such folder"), (file, "there is no such folder")):
        sentence = rf"cannot write to the folder {parent}: {reason}$"
        with pytest.raises(InputError, match=sentence), atomic_path(parent / "numbers.txt"):
            pytest.fail("the block must not run")


def test_name_that_no_file_system_takes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="File name too long"), atomic_path(tmp_path / ("n" * 300)):
        pytest.fail("the block must not run")


def test_permissions_are_those_of_an_ordinary_file(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_text("")
    with atomic_path(tmp_path / "atomic") as temporary:
        temporary.write_text("")
    modes = [(tmp_path / name).stat().st_mode for name in ("ordinary", "atomic")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("link", [False, True], ids=["itself", "a link to it"])
def test_devices_and_pipes_are_never_replaced(tmp_path: Path, link: bool) -> None:
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if link:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with pytest.raises(InputError, match="is a device or a pipe"), atomic_path(path, overwrite=True):
        pytest.fail("the block must not run")
    assert pipe.is_fifo()


# ---------------------------------------------------------------- links


def test_the_file_that_a_link_names_is_written(tmp_path: Path) -> None:
    """The link stays, and what it names is protected as any file."""
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "numbers.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    with pytest.raises(InputError, match=r"link.txt exists already"), atomic_path(link, overwrite=False):
        pytest.fail("the block must not run")
    with atomic_path(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert names(tmp_path / "folder") == ["numbers.txt"]


@pytest.mark.parametrize("target", ["nothing", "link"], ids=["dangling", "to itself"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_links_to_nothing_are_never_replaced(tmp_path: Path, target: str, overwrite: bool) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    with (
        pytest.raises(InputError, match="which does not exist; name the file itself"),
        atomic_path(link, overwrite),
    ):
        pytest.fail("the block must not run")
    assert link.is_symlink()
    assert names(tmp_path) == ["link"]


@pytest.mark.parametrize("through", ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"])
def test_links_to_standard_output_mean_it(tmp_path: Path, through: str) -> None:
    link, far = tmp_path / "link", tmp_path / "far"
    link.symlink_to(through)
    far.symlink_to("link")
    assert is_standard_output(far)
    with pytest.raises(InputError, match="is standard output, which takes JSON only"):
        check_writable(far, overwrite=True)
    assert link.is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may write everywhere")
def test_a_folder_without_permission_is_noticed_before_the_work(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="permission denied"):
        check_writable(tmp_path / "numbers.txt", overwrite=True)


def test_a_folder_without_permission_for_the_administrator_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=rf"cannot write to the folder {tmp_path}: permission denied"):
        check_writable(tmp_path / "numbers.txt", overwrite=True)


# ---------------------------------------------------------------- several processes


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"
    with atomic_path(path) as temporary:
        with pytest.raises(InputError, match=r"another process is writing .*numbers.txt"), atomic_path(path):
            pytest.fail("the block must not run")
        temporary.write_text("first")
    assert path.read_text() == "first"
    with atomic_path(path) as temporary:  # free again
        temporary.write_text("second")
    assert names(tmp_path) == ["numbers.txt"]


def test_a_file_that_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "numbers.txt"

    def write() -> None:
        with atomic_path(path, overwrite=False) as temporary:
            temporary.write_text("ours")
            path.write_text("somebody else's")

    with pytest.raises(InputError, match="exists already"):
        write()
    assert path.read_text() == "somebody else's"
    assert names(tmp_path) == ["numbers.txt"]


WRITER = """
import sys, time
from chmnet.cli import main
from chmnet.outputs import atomic_path

def app():
    with atomic_path(sys.argv[1]) as temporary:
        temporary.write_text("half of the")
        print("writing", flush=True)
        time.sleep(60)

main.app = app
main.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL], ids=str)
def test_a_signal_leaves_nothing_behind_or_for_the_next(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "numbers.txt"
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        with pytest.raises(InputError, match="another process is writing"), atomic_path(path):
            pytest.fail("the block must not run")
        process.send_signal(number)
        process.wait(timeout=20)
    left = names(tmp_path)
    assert left == ([f".numbers{PART}.txt"] if number == signal.SIGKILL else [])
    with atomic_path(path) as temporary:
        assert temporary.read_text() == ""
        temporary.write_text("whole")
    assert names(tmp_path) == ["numbers.txt"]


def test_many_writers_leave_one_whole_file(tmp_path: Path) -> None:
    """Processes that start at once: some are refused, the others' files are whole, and nothing else is left."""
    script = (
        "import sys; from chmnet.outputs import atomic_path\n"
        "for _ in range(50):\n"
        "    try:\n"
        "        with atomic_path(sys.argv[1]) as temporary:\n"
        "            temporary.write_text(sys.argv[2] * 1000)\n"
        "    except Exception as error:\n"
        "        assert 'another process' in str(error), error\n"
    )
    path = tmp_path / "numbers.txt"
    writers = [subprocess.Popen([sys.executable, "-c", script, path, letter]) for letter in "abcd"]
    deadline = time.monotonic() + 60
    while any(writer.poll() is None for writer in writers) and time.monotonic() < deadline:
        if path.exists():
            content = path.read_text()
            assert content == content[0] * 1000
    assert [writer.wait() for writer in writers] == [0] * 4
    assert names(tmp_path) == ["numbers.txt"]


def test_a_folder_is_held_until_it_is_given_up(tmp_path: Path) -> None:
    with (
        held(tmp_path, "training in"),
        pytest.raises(InputError, match="another process is training in"),
        held(tmp_path, "training in"),
    ):
        pytest.fail("the block must not run")
    with held(tmp_path, "training in"):
        assert tmp_path.is_dir()
