"""Which pictures are meant."""

import os
from pathlib import Path

import pytest

from chmnet.annotation import find_pictures


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_folders_in_order_files_as_named_everything_once(tmp_path: Path) -> None:
    touch(tmp_path, "b.jpg", "a/z.PNG", "a/é.webp", "a/notes.txt", ".git/x.png", "._a.jpg", "c/deep/er/1.tif")
    (tmp_path / "link.jpg").symlink_to(tmp_path / "b.jpg")
    found = find_pictures([tmp_path / "c/deep/er/1.tif", tmp_path, tmp_path / "a", tmp_path / "a" / "notes.txt"])
    names = [path.relative_to(tmp_path).as_posix() for path in found.pictures]
    assert names == ["c/deep/er/1.tif", "b.jpg", "a/z.PNG", "a/é.webp", "a/notes.txt"]
    assert not found.skipped


def test_left_out_by_any_way_to_write_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a.jpg", "b.jpg")
    monkeypatch.chdir(tmp_path)
    found = find_pictures([Path()], leave_out=[tmp_path / "x" / ".." / "a.jpg"])
    assert [path.name for path in found.pictures] == ["b.jpg"]


def test_links_that_go_round_end(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg")
    (tmp_path / "again").symlink_to(tmp_path)
    assert len(find_pictures([tmp_path]).pictures) == 1


def test_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: object) -> None:
        raise PermissionError(13, "Permission denied", os.fspath(folder))  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", refuse)
    found = find_pictures([tmp_path])
    assert not found.pictures
    assert found.skipped[0].reason == f"the folder {tmp_path} cannot be read: Permission denied"
