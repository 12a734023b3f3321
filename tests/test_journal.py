"""Lines that are there after any interruption; what is not ours is never touched."""

from pathlib import Path

import pytest

from chmnet.errors import InputError
from chmnet.journal import Journal


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
