"""JSON lines are there after any interruption, and only one process adds to them."""

from pathlib import Path

import pytest

from chmnet.errors import InputError
from chmnet.files import Journal

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
        assert path.read_bytes() == content[:length]  # another process may be in the middle of a line
        again = open_journal(path)
        again.read(lambda number, record: None)
        with again.alone():
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


# ---------------------------------------------------------------- several processes


def test_only_one_process_adds(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first, second = open_journal(path), open_journal(path)
    first.start({})
    with first.alone():
        with pytest.raises(InputError, match=r"another process is writing .*run.jsonl"):
            open_journal(path).start({})
        first.add({"a": 1})
        first.add({"a": 2})
    with pytest.raises(InputError, match=r"another process has changed .*run.jsonl; repeat the command to resume"):
        second.start({})
    assert records(path) == [{}, {"a": 1}, {"a": 2}]


def test_what_another_process_added_is_not_doubled(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    open_journal(path).start({})
    one, other = open_journal(path), open_journal(path)
    for journal in (one, other):
        journal.read(lambda number, record: None)
    one.add({"a": 1})
    with pytest.raises(InputError, match="another process has changed"):
        other.add({"a": 1})
    assert records(path) == [{}, {"a": 1}]


def test_a_removed_file_does_not_come_back_without_its_header(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    journal = open_journal(path)
    journal.start({})
    path.unlink()
    with pytest.raises(InputError, match="cannot write the results"):
        journal.add({"a": 1})
    assert not path.exists()


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    loop, device = tmp_path / "loop", tmp_path / "device"
    loop.symlink_to(loop)
    device.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is a device or a pipe; name a file for the results"):
        records(device)
    with pytest.raises(InputError, match="Too many levels of symbolic links"):
        Journal(loop, "test-1", "results").start({})
