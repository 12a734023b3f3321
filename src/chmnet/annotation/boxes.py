"""Where the things are in the pictures to label: boxes that a person drew, from a COCO file."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import NamedTuple

from chmnet.data.coco import BoxEntry, Labels, load_boxes
from chmnet.data.reading import shorten
from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.pictures import Box, Picture


class TargetBox(NamedTuple):
    """An object to label."""

    box: Box
    """Left, top, right, bottom in pixels of the whole picture."""
    category: str | None = None
    """Name of its category; ``None``: every labelled category is looked for in it."""


TargetBoxes = Mapping[Path, Sequence[TargetBox]]
"""The objects of each picture; pictures that are not in it are matched as a whole."""


def load_target_boxes(
    file: str | Path, targets: Sequence[Path], labels: Labels, leave_out: Collection[Path] = ()
) -> dict[Path, list[TargetBox]]:
    """The boxes that a COCO file has for pictures to label.

    A picture is found by its file name. Where several have that name, by as many folders before it as the file
    writes. In a picture with boxes only these are labelled: one whose boxes are all of other categories than the
    labelled ones has nothing to label.

    Args:
        file: see :func:`chmnet.data.coco.load_boxes`.
        targets: the pictures to label.
        labels: which categories are propagated.
        leave_out: other pictures that the file may have boxes of, such as the labelled ones.

    Raises:
        InputError: the file is broken, names an unknown picture, has no box of a labelled category, or a box lies
            outside of its picture.
    """
    entries = load_boxes(file)
    known = {category.name for category in labels.categories}
    others = sorted({entry.category for entry in entries if entry.category is not None} - known)
    if all(entry.category in others for entry in entries):
        raise InputError(
            f"{file} has boxes of {', '.join(map(shorten, others))} only, but {labels.file} labels "
            f"{', '.join(map(shorten, sorted(known)))}; give them the same names, or leave out the categories"
        )
    found: dict[Path, list[TargetBox]] = {}
    sizes: dict[Path, Size | None] = {}
    for entry in entries:
        path = _find_picture(entry, targets)
        if path is None and _ending_with(entry.file_name, leave_out):
            continue
        if path is None:
            raise InputError(
                f"{entry.origin}: {shorten(entry.file_name)} is none of the pictures to label; "
                "name it beside them, or remove its boxes"
            )
        if path not in sizes:
            sizes[path] = _read_size(path)
        _check_box(entry, path, sizes[path])
        boxes = found.setdefault(path, [])
        if entry.category not in others:
            boxes.append(TargetBox(entry.box, entry.category))
    return found


def describe_boxes(boxes: TargetBoxes) -> list[list[object]]:
    """All boxes as JSON, the same for every way to write a path and every order of the pictures."""
    rows: list[list[object]] = [
        [os.path.realpath(path), [[*map(float, each.box), each.category] for each in boxes[path]]]
        for path in boxes
    ]
    return sorted(rows, key=repr)


def _find_picture(entry: BoxEntry, targets: Sequence[Path]) -> Path | None:
    """The picture that is meant; ``None``: none of them."""
    found = _ending_with(entry.file_name, targets)
    if len(found) > 1:
        raise InputError(
            f"{entry.origin}: {shorten(entry.file_name)} may be {found[0]} or {found[1]}; write more of its path"
        )
    return found[0] if found else None


def _ending_with(name: str, pictures: Collection[Path]) -> list[Path]:
    """The pictures of that file name; of several, those in the folders that are named too.

    Example:
        >>> _ending_with("photos/1.png", [Path("old/1.png"), Path("photos/1.png"), Path("photos/2.png")])
        [PosixPath('photos/1.png')]
        >>> _ending_with("elsewhere/2.png", [Path("old/1.png"), Path("photos/1.png"), Path("photos/2.png")])
        [PosixPath('photos/2.png')]
    """
    parts = [part for part in PureWindowsPath(name).parts if part != ".."]  # knows both kinds of slashes
    same = [path for path in pictures if parts and path.name == parts[-1]]
    if len(same) < 2:
        return same
    return [path for path in same if list(path.absolute().parts[-len(parts) :]) == parts]


def _read_size(path: Path) -> Size | None:
    """The size of a picture; ``None`` where it cannot be read, which is told when it is its turn."""
    try:
        return Picture.of(path).size
    except InputError:
        return None


def _check_box(entry: BoxEntry, path: Path, size: Size | None) -> None:
    if size is None:
        return
    (height, width), (left, top, right, bottom) = size, entry.box
    if entry.size not in (None, size):
        said = entry.size or size
        raise InputError(
            f"{entry.origin}, its image: the file says {said[1]}×{said[0]} pixels, but {path} has "
            f"{width}×{height} as seen (upright); boxes must be in its pixels"
        )
    if left >= width or top >= height or right <= 0 or bottom <= 0:
        raise InputError(
            f"{entry.origin}: the box from ({left:g}, {top:g}) to ({right:g}, {bottom:g}) lies outside "
            f"the picture of {width}×{height} pixels; correct or remove it"
        )
