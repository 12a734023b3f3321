"""The pictures in a list of files and folders."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from chmnet.data.reading import PICTURE_ENDINGS


class Skipped(NamedTuple):
    """A picture that could not be used."""

    path: Path
    reason: str


class Found(NamedTuple):
    """What a list of files and folders led to."""

    pictures: list[Path]
    skipped: list[Skipped]


def find_pictures(paths: Sequence[Path], leave_out: Collection[Path] = ()) -> Found:
    """Every picture once: files as they are named, folders with all below them in the order of their names.

    Hidden files and folders (``.name``) inside of folders are skipped, and so are ``leave_out``.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("b.JPG", "a.png", "notes.txt", ".hidden.png"):
        ...     (folder / name).touch()
        >>> found = find_pictures([folder / "b.JPG", folder], leave_out=[])
        >>> [path.name for path in found.pictures]
        ['b.JPG', 'a.png']
    """
    skipped: list[Skipped] = []
    pictures: dict[str, Path] = {}  # by the path with links followed, the same for every way to write it
    for path in paths:
        for candidate in _below(path, skipped) if path.is_dir() else [path]:
            pictures.setdefault(os.path.realpath(candidate), candidate)
    left_out = set(map(os.path.realpath, leave_out))
    return Found([path for place, path in pictures.items() if place not in left_out], skipped)


def _below(folder: Path, skipped: list[Skipped]) -> list[Path]:
    def note(error: OSError) -> None:
        reason = f"the folder {error.filename} cannot be read: {error.strerror}"
        skipped.append(Skipped(Path(error.filename), reason))

    found = []
    for place, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names = (name for name in sorted(files) if not name.startswith("."))
        found += [Path(place, name) for name in names if Path(name).suffix.lower() in PICTURE_ENDINGS]
    return found
