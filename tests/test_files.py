"""Files are written whole or not at all; JSON lines are there after any interruption."""

import errno
import os
from pathlib import Path

import pytest

from chmnet.errors import InputError
from chmnet.files import Journal, atomic_path


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


# ---------------------------------------------------------------- JSON lines


def open_journal(path: Path) -> Journal:
    return Journal(path, "test-1", "results")


def records(path: Path) -> list[dict]:
    found: list[dict] = []
    open_journal(path).read(lambda number, record: found.append(record))
    return found


def test_every_cut_leaves_the_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    journal = open_journal(path)
    journal.start({"seed": 1})
    journal.add({"name": "Käse"})
    journal.add({"name": "b"})
    content = path.read_bytes()
    everything = records(path)
    assert everything == [{"seed": 1}, {"name": "Käse"}, {"name": "b"}]
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        whole = content[:length].count(b"\n")
        assert records(path) == everything[:whole]
        assert path.read_bytes() == b"".join(content.splitlines(keepends=True)[:whole])


def test_no_file_is_no_lines(tmp_path: Path) -> None:
    assert records(tmp_path / "none.jsonl") == []
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.parametrize("content", ["hello\n", "{}\n", "[1]\n", '{"format": "test-2"}\n', "no newline"])
def test_foreign_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match="line 1, is not a file of results; name another file, or delete it"):
        records(path)
    assert path.read_text() == content


def test_line_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "run.jsonl")
    journal.start({})
    journal.add({"a": 1})
    with pytest.raises(InputError, match="line 2, is not a file of results"):
        journal.read(lambda number, record: record["b"] if number else None)


def test_folder_and_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; name a file for the results"):
        open_journal(tmp_path)
    with pytest.raises(InputError, match="cannot write the results to"):
        open_journal(tmp_path / "no" / "run.jsonl").start({})
