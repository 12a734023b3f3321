"""What was found in each picture, and the file that keeps it until a run is finished."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from chmnet.errors import InputError
from chmnet.files import Journal
from chmnet.geometry import Size
from chmnet.pictures import Box

FORMAT = "chmnet-propagation-3"

POINT_DECIMALS, CONFIDENCE_DECIMALS = 3, 4
"""Numbers are rounded when they are found, so that they are the same before and after being written."""


class Pose(NamedTuple):
    """In which pose a picture was matched with the labelled one."""

    mirrored: bool = False
    turn: float = 0.0
    """Degrees, counter-clockwise, after mirroring."""
    probability: float | None = None
    """That it is the right one; ``None``: no other was tried."""


UPRIGHT = Pose()


class Moved(NamedTuple):
    """The keypoints of one object."""

    category: str
    points: np.ndarray
    """``n`` rows (x, y) in pixels; NaN where no source shows the keypoint."""
    confidence: np.ndarray
    """``n`` numbers, 0 … 1."""
    sources: tuple[int, ...] = ()
    """Which of the category's labelled objects they come from, the best first; empty: they were labelled."""
    pose: Pose = UPRIGHT
    """In which the best of them was matched; where it is mirrored, left and right were exchanged."""
    unmatched: np.ndarray | None = None
    """The probability that each keypoint has no place in the picture, by the best of them that shows
    it, 1 where none does; ``None``: not known."""
    box: Box | None = None
    """Where a person said that the object is; ``None``: nobody did."""
    foreground: np.ndarray | None = None
    """The probability that each keypoint lies on a thing, not on the background; ``None``: not known."""


@dataclass(frozen=True, eq=False)
class Propagated:
    """What was found in one picture."""

    path: Path
    size: Size
    """(height, width) of the picture as seen."""
    objects: list[Moved]


def mean_confidence(moved: Moved) -> float:
    """Mean confidence of the keypoints that have a place.

    Example:
        >>> mean_confidence(Moved("cat", np.array([[1.0, 2.0], [np.nan, np.nan]]), np.array([0.5, 0.0])))
        0.5
    """
    placed = ~np.isnan(moved.points).any(axis=1)
    return round(float(moved.confidence[placed].mean()), CONFIDENCE_DECIMALS) if placed.any() else 0.0


class PartialFile:
    """The results of an unfinished run on disk, one line of JSON a picture.

    The header says everything else that results depend on; each line has the size and the time of its picture's
    file. So results of another run, or of a picture that has changed, are never used.

    Args:
        path: the file; :meth:`start` makes it.

    Raises:
        InputError: the file is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._header: dict[str, Any] | None = None
        self._found: dict[tuple[str, int, int], Propagated] = {}
        self._journal = Journal(path, FORMAT, "results of chmnet propagate")
        self._journal.read(self._take_line)

    def start(self, header: dict[str, Any], restart: bool = False) -> None:
        """Begin a run, or resume one that has the same header: all that the results depend on.

        Args:
            restart: whether the results of another run may be deleted.

        Raises:
            InputError: the file belongs to another run, or cannot be written.
        """
        if self._header is not None and self._header != header and not restart:
            names = [name for name, value in header.items() if value != self._header.get(name)]
            raise InputError(
                f"{self.path} is an unfinished run with other settings (different {', '.join(names)}); "
                "repeat that run's command, delete the file, or start over (--overwrite)"
            )
        if self._header != header:
            self._found.clear()
            self._journal.start(header)
            self._header = header

    def alone(self) -> AbstractContextManager[None]:
        """Hold the file, so that no other process adds to it; see :meth:`chmnet.files.Journal.alone`."""
        return self._journal.alone()

    def get(self, path: Path) -> Propagated | None:
        """What is known of a picture, if its file is still the same."""
        key = _key(path)
        return None if key is None else self._found.get(key)

    def add(self, path: Path, size: Size, objects: list[Moved]) -> Propagated:
        """Keep what was found in a picture; the result has its numbers rounded."""
        key = _key(path)
        if key is None:
            raise InputError(f"{path} was removed while it was read")
        record = {
            "picture": key[0],
            "bytes": key[1],
            "modified": key[2],
            "size": list(size),
            "objects": [
                {
                    "category": moved.category,
                    "points": [None if np.isnan(row).any() else _rounded(row) for row in moved.points],
                    "confidence": moved.confidence.round(CONFIDENCE_DECIMALS).tolist(),
                    "sources": list(moved.sources),
                    "pose": [moved.pose.mirrored, moved.pose.turn, _rounded_probability(moved.pose)],
                    "unmatched": _rounded_values(moved.unmatched),
                    "foreground": _rounded_values(moved.foreground),
                    "box": moved.box,
                }
                for moved in objects
            ],
        }
        self._journal.add(record)
        return self._take_record(record)

    def remove(self) -> None:
        """Delete the file, after the results were written elsewhere."""
        self.path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return len(self._found)

    def _take_line(self, number: int, record: dict[str, Any]) -> None:
        if number == 0:
            self._header = record
        else:
            self._take_record(record)

    def _take_record(self, record: dict[str, Any]) -> Propagated:
        objects = [
            Moved(
                str(entry["category"]),
                np.array([row or (np.nan, np.nan) for row in entry["points"]], dtype=np.float64).reshape(-1, 2),
                np.array(entry["confidence"], dtype=np.float64),
                tuple(map(int, entry["sources"])),
                _read_pose(*entry["pose"]),
                _read_values(entry["unmatched"]),
                _read_box(entry["box"]),
                _read_values(entry["foreground"]),
            )
            for entry in record["objects"]
        ]
        height, width = record["size"]
        found = Propagated(Path(record["picture"]), (int(height), int(width)), objects)
        self._found[str(record["picture"]), int(record["bytes"]), int(record["modified"])] = found
        return found


def _rounded_values(values: np.ndarray | None) -> list[float] | None:
    return None if values is None else values.round(CONFIDENCE_DECIMALS).tolist()


def _read_values(values: list[float] | None) -> np.ndarray | None:
    return None if values is None else np.array(values, dtype=np.float64)


def _rounded_probability(pose: Pose) -> float | None:
    return None if pose.probability is None else round(pose.probability, CONFIDENCE_DECIMALS)


def _read_pose(mirrored: bool, turn: float, probability: float | None) -> Pose:
    return Pose(bool(mirrored), float(turn), None if probability is None else float(probability))


def _read_box(sides: Sequence[float] | None) -> Box | None:
    if sides is None:
        return None
    left, top, right, bottom = map(float, sides)
    return left, top, right, bottom


def _rounded(point: np.ndarray) -> list[float]:
    return [round(float(value), POINT_DECIMALS) for value in point]


def _key(path: Path) -> tuple[str, int, int] | None:
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    return os.path.realpath(path), state.st_size, state.st_mtime_ns
