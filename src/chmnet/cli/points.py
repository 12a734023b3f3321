"""Points and boxes as people write them: in an option, or in a file."""

import json
import math
from pathlib import Path

from chmnet.errors import InputError
from chmnet.files import check_ordinary

Rows = list[tuple[float, float]]
Box = tuple[float, float, float, float]
MOST_BYTES = 16 * 2**20
PIPES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Names of what a shell gives a command to read; other pipes might never end."""


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
        if path.exists() and not str(path).startswith(PIPES):
            check_ordinary(path, "points")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the points file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"the points file {path} is not text") from None
    if len(content) > MOST_BYTES:
        raise InputError(
            f"the points file {path} is longer than {MOST_BYTES // 2**20} MB; it cannot hold points only"
        )
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
        points = json.loads(text)
        lists = isinstance(points, list) and all(isinstance(point, list) and len(point) == 2 for point in points)
        if not lists or any(type(number) not in (int, float) for point in points for number in point):
            raise wrong
        return [(float(x), float(y)) for x, y in points]
    except (ValueError, RecursionError, OverflowError):
        raise wrong from None


def check_inside(points: Rows, path: Path, width: int, height: int) -> None:
    """Refuse points that do not lie in the picture, NaN among them.

    Raises:
        InputError: one sentence about the first of them.
    """
    for x, y in points:
        if not (0 <= x <= width and 0 <= y <= height):
            raise InputError(f"the point {x:g},{y:g} lies outside {path}, which has {width}×{height} pixels")


def parse_box(text: str, name: str) -> Box | None:
    """A box written as "left,top,right,bottom"; ``None`` where nothing is written.

    Args:
        text: as a person wrote it.
        name: of the option, for messages.

    Raises:
        InputError: it is something else, or has no area.

    Example:
        >>> parse_box("10, 20, 30.5, 40", "--source-box")
        (10.0, 20.0, 30.5, 40.0)
    """
    if not text:
        return None
    try:
        left, top, right, bottom = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f'{name} must be "left,top,right,bottom" in pixels, got {text!r}') from None
    if not (left < right < math.inf and top < bottom < math.inf):  # NaN is not less
        raise InputError(f"{name} must have its left before its right and its top above its bottom, got {text!r}")
    return left, top, right, bottom


def check_box(box: Box | None, path: Path, width: int, height: int) -> None:
    """Refuse a box that does not lie in the picture.

    Raises:
        InputError: one sentence.
    """
    if box is not None and not (min(box[:2]) >= 0 and box[2] <= width and box[3] <= height):
        sides = ",".join(f"{side:g}" for side in box)
        raise InputError(f"the box {sides} does not lie within {path}, which has {width}×{height} pixels")
