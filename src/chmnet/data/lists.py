"""Lists of pairs in a file, so that an evaluation on made pairs can be repeated anywhere.

A list is JSON with one pair a line; images are paths relative to the root that they were read from.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.data.reading import Entry, OnProblem, check_same_number, find_below, read_json, read_pairs, stop
from chmnet.errors import InputError
from chmnet.outputs import atomic_path

FORMAT = "chmnet pairs 1"
FIRST_LINE = 2
"""The line of the first pair in a file that :func:`write_list` wrote."""


def write_list(pairs: Sequence[Pair], path: str | Path, root: str | Path, overwrite: bool = False) -> None:
    """Write pairs to a file that :func:`read_list` reads.

    Raises:
        InputError: an image does not lie below ``root``, or the file exists already or cannot be written.
    """
    lines = [json.dumps(_pair_as_json(pair, Path(root)), ensure_ascii=False) for pair in pairs]
    text = f'{{"format": "{FORMAT}", "pairs": [\n' + ",\n".join(lines) + "\n]}\n"
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_list(path: str | Path, root: str | Path, on_problem: OnProblem = stop) -> list[Pair]:
    """The pairs of a file that :func:`write_list` wrote; the images lie below ``root``.

    Raises:
        InputError: the file or an image is missing or broken; the message names the file and the line.
    """
    path = Path(path)
    document = read_json(path)
    if document.values.get("format") != FORMAT:
        raise InputError(f"{path} is no list of pairs that can be read: 'format' must be {FORMAT!r}")
    entries = document.get("pairs", list)
    if not entries:
        raise InputError(f"{path} lists no pairs")
    folder = _folder(Path(root))
    numbered = enumerate(entries, start=FIRST_LINE)
    return read_pairs(numbered, lambda item: _read_pair(*item, path, folder), on_problem)


def _folder(root: Path) -> Path:
    """The root of a data set is its folder, or a file in it."""
    return root.parent if root.is_file() else root


def _pair_as_json(pair: Pair, root: Path) -> dict[str, object]:
    return {
        "name": pair.name,
        "category": pair.category,
        "source": _side_as_json(pair.source, root),
        "target": _side_as_json(pair.target, root),
        "keypoint_names": pair.keypoint_names,
        "flags": dict(pair.flags),
    }


def _side_as_json(side: AnnotatedImage, root: Path) -> dict[str, object]:
    return {
        "image": _relative(side.path, root),
        "keypoints": side.keypoints.tolist(),
        "box": side.box,
        "mask": None if side.mask is None else _relative(side.mask, root),
    }


def _relative(path: Path, root: Path) -> str:
    folder = _folder(root).absolute()  # not resolved: folders of images are often links
    if not path.absolute().is_relative_to(folder):
        raise InputError(f"{path} is not below {folder}; a list of pairs holds only pictures below its root")
    return path.absolute().relative_to(folder).as_posix()


def _read_pair(line: int, value: object, path: Path, folder: Path) -> Pair:
    origin = f"{path} line {line}"
    entry = Entry.of(value, origin, "the pair")
    source, target = (_read_side(Entry(entry.get(side, dict), origin), folder) for side in ("source", "target"))
    check_same_number(source.keypoints, target.keypoints, origin)
    names = entry.names("keypoint_names")
    if len(names) not in (0, len(source.keypoints)):
        raise InputError(f"{origin}: {len(names)} names for {len(source.keypoints)} keypoints")
    flags = Entry(entry.get("flags", dict), origin)
    levels = {flag: flags.get(flag, int) for flag in flags.values}
    return Pair(entry.get("name", str), entry.get("category", str), source, target, names, levels, origin)


def _read_side(entry: Entry, folder: Path) -> AnnotatedImage:
    path = find_below([folder], entry.get("image", str), "image", entry.origin)
    box = None if entry.values.get("box") is None else entry.box("box")
    mask = None
    if entry.values.get("mask") is not None:
        mask = find_below([folder], entry.get("mask", str), "mask", entry.origin)
    return AnnotatedImage(path, entry.points("keypoints"), box, mask)
