"""Reading the files of data sets: every mistake in one becomes a sentence that names the file and the line."""

import csv
import io
import json
import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import TypeVar

import numpy as np

from chmnet.data.pairs import Pair
from chmnet.errors import InputError
from chmnet.pictures import Box

MAX_COORDINATE = 1_000_000
"""No picture is larger: a coordinate beyond this is a mistake in the file."""

PICTURE_ENDINGS = frozenset(
    {".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"}
    | {".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
"""Files of a folder that count as pictures; a file that is named itself may have any name."""

KIND_NAMES = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}

Item = TypeVar("Item")
Kind = TypeVar("Kind")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class LeftOutError(InputError):
    """Something small that a reader leaves out without stopping, such as a keypoint outside its image."""


OnProblem = Callable[[InputError], None]
"""What a reader calls with each problem it finds: :func:`stop`, or the ``append`` of a list."""


def stop(problem: InputError) -> None:
    """Raise the first problem, except for what the reader merely leaves out."""
    if not isinstance(problem, LeftOutError):
        raise problem
    logger.info("%s", problem)


def read_all(items: Iterable[Item], read: Callable[[Item], Result], on_problem: OnProblem) -> list[Result]:
    """What ``read`` makes of every item that can be read; the problems of the others go to ``on_problem``."""
    results = []
    for item in items:
        try:
            results.append(read(item))
        except InputError as problem:
            on_problem(problem)
    return results


def read_pairs(items: Iterable[Item], read: Callable[[Item], Pair], on_problem: OnProblem) -> list[Pair]:
    """As :func:`read_all`, with unique names."""
    return with_unique_names(read_all(items, read, on_problem))


def with_unique_names(pairs: Iterable[Pair]) -> list[Pair]:
    """The same pairs; the second of a name gets ``:2`` behind it, the third ``:3``."""
    seen: Counter[str] = Counter()
    unique = []
    for pair in pairs:
        seen[pair.name] += 1
        number = seen[pair.name]
        unique.append(pair if number == 1 else replace(pair, name=f"{pair.name}:{number}"))
    return unique


# ---------------------------------------------------------------- folders and files


def dataset_folder(root: str | Path, folder: str) -> Path:
    """``root/folder``, or a sentence that lists what ``root`` holds.

    Raises:
        InputError: one of the two does not exist.
    """
    root = Path(root)
    if not root.is_dir():
        raise InputError(f"there is no folder {root}; name the folder that holds {folder}")
    if (root / folder).is_dir():
        return root / folder
    if Path(os.path.realpath(root)).name == folder:
        raise InputError(f"{root} is the folder {folder} itself; name the folder above it")
    held = ", ".join(sorted(path.name for path in root.iterdir() if path.is_dir())) or "no folders"
    raise InputError(f"there is no folder {root / folder}; {root} holds {held}")


def is_file(path: Path) -> bool:
    """Whether there is such a file; ``False`` for impossible names (too long, a zero byte)."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def find_below(folders: Sequence[Path], name: str, what: str, origin: str, anywhere: bool = False) -> Path:
    """The first of ``folders`` that has the file ``name``.

    Raises:
        InputError: no folder has it, or the name leads out of the folder (``../``, ``/etc``, ``C:``), unless it
            may lead ``anywhere``.
    """
    parts = PureWindowsPath(name)  # knows both kinds of slashes, and drives
    if not name or (not anywhere and (".." in parts.parts or parts.drive or parts.root)):
        raise InputError(f"{origin}: the {what} {shorten(name)} must be a path below {folders[0]}")
    found = next((folder / name for folder in folders if is_file(folder / name)), None)
    if found is None:
        raise InputError(f"{origin}: there is no {what} {folders[0] / name}")
    return found


def read_text(path: Path) -> str:
    """A text file in UTF-8, with or without a byte order mark."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8; save it in that encoding") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def read_json(path: Path) -> "Entry":
    """A JSON file that holds an object."""
    text = read_text(path)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} line {error.lineno}: this is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON that can be read: too many digits, or nested too deeply") from None
    return Entry.of(document, str(path), "the whole")


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    origin: str
    header: tuple[str, ...]
    cells: tuple[str, ...]

    def values(self) -> dict[str, str]:
        """The cells by their columns' names.

        Raises:
            InputError: the line has more or fewer values than the header.
        """
        if len(self.cells) != len(self.header):
            raise InputError(f"{self.origin}: {len(self.cells)} values, but the header names {len(self.header)}")
        return dict(zip(self.header, self.cells, strict=True))


def read_table(path: Path, columns: Sequence[str]) -> list[Row]:
    """The lines of a CSV file with a header, which must have ``columns`` (and may have more).

    Raises:
        InputError: the file is missing, no text, empty, or lacks a column.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        lines = [(reader.line_num, tuple(cell.strip() for cell in cells)) for cells in reader if any(cells)]
    except csv.Error as error:
        raise InputError(f"{path} line {reader.line_num}: this is not CSV: {error}") from None
    if not lines:
        raise InputError(f"{path} is empty; it should begin with the line {','.join(columns)}")
    header = lines[0][1]
    missing = [column for column in columns if column not in header]
    if missing:
        raise InputError(f"{path} line {lines[0][0]}: the header lacks {', '.join(missing)}")
    if len(lines) == 1:
        raise InputError(f"{path} lists no pairs")
    return [Row(f"{path} line {number}", header, cells) for number, cells in lines[1:]]


# ---------------------------------------------------------------- values


def shorten(value: object) -> str:
    """A value for a message, cut if it is long.

    Example:
        >>> shorten("a" * 100)
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…"
    """
    text = repr(value)
    return text if len(text) <= 37 else text[:36] + "…"


def expect(value: object, kind: type[Kind], what: str, origin: str) -> Kind:
    """The value, if it is of that kind (dict, list, str or int); a boolean is not an int."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{origin}: {what} must be {KIND_NAMES[kind]}, got {shorten(value)}")
    return value


@dataclass(frozen=True)
class Entry:
    """A JSON object, and where it stands, for messages."""

    values: dict[str, object]
    origin: str

    @staticmethod
    def of(value: object, origin: str, what: str = "the entry") -> "Entry":
        """The value, if it is an object."""
        return Entry(expect(value, dict, what, origin), origin)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str, kind: type[Kind]) -> Kind:
        """What stands under a key, of the kind that is expected."""
        if key not in self.values:
            found = ", ".join(map(repr, self.values)) or "nothing"
            raise InputError(f"{self.origin}: there is no {key!r}; found {found}")
        return expect(self.values[key], kind, repr(key), self.origin)

    def each(self, key: str, kind: type[Kind]) -> list[Kind]:
        """A list whose members are all of one kind."""
        return [expect(value, kind, f"each of {key!r}", self.origin) for value in self.get(key, list)]

    def names(self, key: str) -> tuple[str, ...]:
        """A list of names; numbers become text."""
        return tuple(map(str, self.get(key, list)))

    def points(self, key: str) -> np.ndarray:
        """Keypoints from a list of [x, y]."""
        rows = self.get(key, list)
        wrong = [row for row in rows if not isinstance(row, list) or len(row) != 2]
        if wrong:
            raise InputError(f"{self.origin}: each of {key} must be [x, y], got {shorten(wrong[0])}")
        return read_points([row[0] for row in rows], [row[1] for row in rows], key, self.origin)

    def box(self, key: str) -> Box:
        """A box as left, top, right, bottom."""
        return read_box(self.get(key, list), self.origin)


def numbers(values: Sequence[object], what: str, origin: str) -> list[float]:
    """Finite numbers of a reasonable size, written as numbers or as text.

    Example:
        >>> numbers(["2.5", 3], "the size", "pairs.csv line 2")
        [2.5, 3.0]
        >>> numbers(["2.5", "three"], "the size", "pairs.csv line 2")
        Traceback (most recent call last):
        chmnet.errors.InputError: pairs.csv line 2: the size, value 2, must be a number, got 'three'
    """
    results = []
    for index, value in enumerate(values, start=1):
        result: float | None = None
        try:
            if not isinstance(value, bool):
                result = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            pass
        except OverflowError:
            result = math.inf
        if result is None or not abs(result) <= MAX_COORDINATE:
            raise InputError(f"{origin}: {what}, value {index}, {_reason(result, value)}")
        results.append(result)
    return results


def _reason(result: float | None, value: object) -> str:
    if result is None:
        return f"must be a number, got {shorten(value)}"
    return "is not a number (NaN)" if math.isnan(result) else f"is {shorten(value)}, larger than any picture"


def read_points(xs: Sequence[object], ys: Sequence[object], what: str, origin: str) -> np.ndarray:
    """Keypoints from their x and their y: ``n`` rows (x, y), float64.

    Raises:
        InputError: there are none, not as many x as y, or one is not a number.
    """
    if len(xs) != len(ys):
        raise InputError(f"{origin}: {len(xs)} x and {len(ys)} y of {what}; their numbers must be equal")
    if not xs:
        raise InputError(f"{origin}: there are no {what}")
    return np.array([numbers(xs, f"x of {what}", origin), numbers(ys, f"y of {what}", origin)]).T


def check_same_number(source: np.ndarray, target: np.ndarray, origin: str) -> None:
    """Refuse a pair whose sides have different numbers of keypoints."""
    if len(source) != len(target):
        raise InputError(
            f"{origin}: {len(source)} keypoints in the source and {len(target)} in the target; "
            "their numbers must be equal"
        )


def read_box(values: Sequence[object], origin: str) -> Box:
    """A box as left, top, right, bottom; right of left and bottom below top."""
    if len(values) != 4:
        raise InputError(f"{origin}: a box has 4 numbers, got {len(values)}")
    left, top, right, bottom = numbers(values, "the box", origin)
    if left >= right or top >= bottom:
        raise InputError(
            f"{origin}: the box must be left, top, right, bottom with left < right and top < bottom, "
            f"got {left:g}, {top:g}, {right:g}, {bottom:g}"
        )
    return left, top, right, bottom
