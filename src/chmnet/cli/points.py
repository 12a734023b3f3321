"""Points given on the command line or in a file."""

import json
from pathlib import Path

from chmnet.errors import InputError

Rows = list[tuple[float, float]]


def parse_points(text: str) -> Rows:
    """Points written as "x,y x,y".

    Example:
        >>> parse_points("1,2  3.5,-4")
        [(1.0, 2.0), (3.5, -4.0)]
    """
    rows = []
    for word in text.replace(";", " ").split():
        try:
            x, y = (float(part) for part in word.split(","))
        except ValueError:
            raise InputError(f'points must be written "x,y x,y", got {word!r}') from None
        rows.append((x, y))
    return rows


def read_points(path: Path) -> Rows:
    """Points of a file: JSON, ``[[x, y], …]``, or one point a line, its numbers apart by a comma or white space.

    Empty lines, those that begin with ``#`` and a first line ``x,y`` are passed over.

    Raises:
        InputError: the file cannot be read, holds something else, or no point at all.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the points file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"the points file {path} is not text") from None
    rows = _from_json(text, path) if text.lstrip().startswith(("[", "{")) else _from_lines(text, path)
    if not rows:
        raise InputError(f"the points file {path} holds no points; write one x,y a line")
    return rows


def _from_lines(text: str, path: Path) -> Rows:
    rows: Rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.replace(",", " ").replace(";", " ").split()
        if not words or line.lstrip().startswith("#") or (not rows and [w.lower() for w in words] == ["x", "y"]):
            continue
        try:
            x, y = (float(word) for word in words)
        except ValueError:
            raise InputError(f"{path}, line {number}, must hold a point x,y, got {line.strip()[:40]!r}") from None
        rows.append((x, y))
    return rows


def _from_json(text: str, path: Path) -> Rows:
    wrong = InputError(f"the points file {path} must hold a JSON list of points [[x, y], …]")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(document, list):
        raise wrong
    rows = []
    for point in document:
        numbers = isinstance(point, list) and len(point) == 2 and all(type(part) in (int, float) for part in point)
        if not numbers:
            raise wrong
        try:
            rows.append((float(point[0]), float(point[1])))
        except OverflowError:
            raise wrong from None
    return rows


def check_inside(points: Rows, path: Path, width: int, height: int) -> None:
    """Refuse points that do not lie in the picture, NaN among them.

    Raises:
        InputError: one sentence about the first of them.
    """
    for x, y in points:
        if not (0 <= x <= width and 0 <= y <= height):
            raise InputError(f"the point {x:g},{y:g} lies outside {path}, which has {width}×{height} pixels")
