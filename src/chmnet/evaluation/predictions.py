"""The file of predictions: one line of JSON a pair, added as they come, so that a run can stop and go on."""

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chmnet import __version__
from chmnet.data.pairs import Pair
from chmnet.errors import InputError
from chmnet.metrics import Prediction

FORMAT = "chmnet-predictions-1"


@dataclass(frozen=True)
class Header:
    """What the predictions are of. Two runs with equal headers give equal predictions."""

    dataset: str
    split: str
    pairs: int
    pairs_sha256: str
    """Fingerprint of the list of pairs and their keypoints."""
    model: dict[str, Any]
    """Name, configuration and fingerprint of the weights."""
    clutter: bool = False
    """Whether the matches of a regular grid are kept too, for the clutter measure."""
    chmnet_version: str = __version__

    @staticmethod
    def of(dataset: str, split: str, pairs: list[Pair], model: dict[str, Any], clutter: bool = False) -> "Header":
        """The header of a run over ``pairs``."""
        return Header(dataset, split, len(pairs), fingerprint(pairs), model, clutter)


@dataclass(frozen=True, eq=False)
class GridMatches:
    """Matches of a regular grid in one pair, for the clutter measure."""

    scores: np.ndarray
    source_inside: np.ndarray
    target_inside: np.ndarray


class PredictionFile:
    """Predictions on disk. Opening an existing file reads what is there and drops a last line cut short.

    Args:
        path: the file; it is made by the first :meth:`add`.

    Raises:
        InputError: the file is something else.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header: Header | None = None
        self.predictions: dict[str, Prediction] = {}
        self.grids: dict[str, GridMatches] = {}
        if self.path.is_dir():
            raise InputError(f"{path} is a folder; name a file for the predictions")
        if self.path.exists() and self.path.stat().st_size:
            self._read()

    def start(self, header: Header) -> None:
        """Begin a run, or go on with one that has the same header.

        Raises:
            InputError: the file belongs to another run.
        """
        if self.header is None:
            try:
                self.path.write_text(json.dumps({"format": FORMAT, **asdict(header)}) + "\n", encoding="utf-8")
            except OSError as error:
                raise InputError(f"cannot write the predictions to {self.path}: {error.strerror}") from None
            self.header = header
        elif self.header != header:
            names = [name for name, value in asdict(header).items() if value != getattr(self.header, name)]
            raise InputError(
                f"{self.path} holds predictions of another run (different {', '.join(names)}); "
                "name another file, or delete it"
            )

    def add(self, prediction: Prediction, grid: GridMatches | None = None) -> None:
        """Append one pair's predictions."""
        record: dict[str, Any] = {
            "pair": prediction.pair,
            "points": prediction.points.tolist(),
            "source_size": list(prediction.source_size),
            "target_size": list(prediction.target_size),
        }
        self.predictions[prediction.pair] = prediction
        if grid is not None:
            self.grids[prediction.pair] = grid
            record["grid"] = {
                "scores": _encode(grid.scores.astype("<f4")),
                "source_inside": _encode(np.packbits(grid.source_inside)),
                "target_inside": _encode(np.packbits(grid.target_inside)),
            }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @property
    def complete(self) -> bool:
        """Whether every pair of the run has its predictions."""
        return self.header is not None and len(self.predictions) == self.header.pairs

    def _read(self) -> None:
        content = self.path.read_bytes()
        lines = content.split(b"\n")
        whole = len(content) - len(lines[-1])  # what follows the last newline was cut short
        try:
            first = json.loads(lines[0])
            if first.pop("format") != FORMAT:
                raise ValueError
            self.header = Header(**first)
            for line in lines[1:-1]:
                self._take(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{self.path} is not a file of predictions; name another file, or delete it"
            ) from None
        if whole < len(content):
            with self.path.open("r+b") as file:
                file.truncate(whole)

    def _take(self, record: dict[str, Any]) -> None:
        points = np.array(record["points"], dtype=np.float64).reshape(-1, 2)
        sizes = [(int(height), int(width)) for height, width in (record["source_size"], record["target_size"])]
        self.predictions[record["pair"]] = Prediction(record["pair"], points, *sizes)
        if "grid" in record:
            grid = record["grid"]
            scores = np.frombuffer(base64.b64decode(grid["scores"]), dtype="<f4")
            inside = [
                np.unpackbits(np.frombuffer(base64.b64decode(grid[side]), dtype=np.uint8), count=len(scores)) > 0
                for side in ("source_inside", "target_inside")
            ]
            self.grids[record["pair"]] = GridMatches(scores, *inside)


def fingerprint(pairs: Iterable[Pair]) -> str:
    """SHA-256 of what the predictions depend on: names, image file names and source keypoints."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(f"{pair.name}\0{pair.source.path.name}\0{pair.target.path.name}\0".encode())
        digest.update(np.ascontiguousarray(pair.source.keypoints, dtype="<f8").tobytes())
    return digest.hexdigest()


def _encode(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")
