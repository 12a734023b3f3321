"""The file of predictions: one line of JSON a pair, so that an interrupted run can be resumed."""

import base64
import hashlib
import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from chmnet import __version__
from chmnet.data.pairs import Pair
from chmnet.errors import InputError
from chmnet.files import DAMAGED, Journal, cache_folder
from chmnet.metrics import Prediction

FORMAT = "chmnet-predictions-1"
GRID_SIDE = 20
"""Candidate matches of the clutter measure: a regular grid of this many points a side."""
_SIDES = ("source_inside", "target_inside")


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
    search: dict[str, Any] = field(default_factory=dict)
    """How the thing was looked for, where not as published protocols do: ``poses``, ``place``, ``boxes``."""
    chmnet_version: str = __version__

    @staticmethod
    def of(
        dataset: str,
        split: str,
        pairs: list[Pair],
        model: dict[str, Any],
        clutter: bool = False,
        search: dict[str, Any] | None = None,
    ) -> "Header":
        """The header of a run over ``pairs``."""
        return Header(dataset, split, len(pairs), fingerprint(pairs), model, clutter, search or {})


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
        self.seconds = 0.0
        """Time that all predictions together took, in every run that added to the file."""
        self._journal = Journal(path, FORMAT, "predictions")
        self._journal.read(self._take_line)

    def start(self, header: Header) -> None:
        """Begin a run, or resume one that has the same header; it may also keep the matches of a grid in addition.

        Raises:
            InputError: the file belongs to another run.
        """
        if self.header is None:
            self._journal.start(asdict(header))
            self.header = header
        elif self.header not in (header, replace(header, clutter=True)):
            names = [name for name, value in asdict(header).items() if value != getattr(self.header, name)]
            other = f"another run (different {', '.join(names)})"
            raise InputError(f"{self.path} holds predictions of {other}; name another file, or delete it")

    def alone(self) -> AbstractContextManager[None]:
        """Hold the file, so that no other process adds to it; see :meth:`chmnet.files.Journal.alone`."""
        return self._journal.alone()

    def add(self, prediction: Prediction, grid: GridMatches | None = None, seconds: float = 0.0) -> None:
        """Append one pair's predictions; grids stay on disk, see :meth:`grids`."""
        record: dict[str, Any] = {
            "pair": prediction.pair,
            "points": prediction.points.tolist(),
            "source_size": list(prediction.source_size),
            "target_size": list(prediction.target_size),
            "seconds": round(seconds, 4),
        }
        self.predictions[prediction.pair] = prediction
        self.seconds += record["seconds"]
        if grid is not None:
            sides = {side: np.packbits(getattr(grid, side)) for side in _SIDES}
            arrays = {"scores": grid.scores.astype("<f4"), **sides}
            record["grid"] = {name: base64.b64encode(array.tobytes()).decode() for name, array in arrays.items()}
        self._journal.add(record)

    @property
    def complete(self) -> bool:
        """Whether every pair of the run has its predictions."""
        return self.header is not None and len(self.predictions) == self.header.pairs

    def grids(self) -> dict[str, GridMatches]:
        """The grid matches of every pair, read from the file.

        Raises:
            InputError: they were not kept, or are damaged.
        """
        with self.path.open("rb") as file:
            file.readline()
            try:
                return {record["pair"]: _decode_grid(record["grid"]) for record in map(json.loads, file)}
            except DAMAGED:
                raise InputError(f"{self.path} holds no grid matches; evaluate again with --clutter") from None

    def _take_line(self, number: int, record: dict[str, Any]) -> None:
        if number == 0:
            if not isinstance(record["model"], dict) or not isinstance(record.get("search", {}), dict):
                raise TypeError
            self.header = Header(**record)
            return
        points = np.array(record["points"], dtype=np.float64).reshape(-1, 2)
        sizes = [(int(height), int(width)) for height, width in (record["source_size"], record["target_size"])]
        self.predictions[str(record["pair"])] = Prediction(str(record["pair"]), points, *sizes)
        self.seconds += float(record["seconds"])


def open_predictions(header: Header, path: Path | None = None) -> PredictionFile:
    """The file of a run, to begin or to resume; complete, there is nothing left to predict.

    Without a ``path`` it lies in the cache folder, with a name that only this run has.

    Raises:
        InputError: the file is something else or belongs to another run, or it cannot be written.
    """
    if path is None:
        folder = cache_folder() / "unfinished"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"{error.strerror}; name a file with --predictions"
            raise InputError(f"cannot make the folder {folder}: {reason}") from None
        path = folder / f"{hashlib.sha256(repr(header).encode()).hexdigest()[:32]}.jsonl"
    file = PredictionFile(path)
    file.start(header)
    return file


def open_finished(
    path: Path, dataset: str, split: str, pairs: list[Pair], clutter: bool = False
) -> PredictionFile | None:
    """A complete file of predictions, to be scored without the model; ``None`` where pairs remain to be predicted.

    Raises:
        InputError: the file is of other pairs, or lacks the grid matches that ``clutter`` needs.
    """
    file = PredictionFile(path)
    if file.header is None or not file.complete:
        return None
    known = (file.header.dataset, file.header.split, file.header.pairs_sha256)
    if known != (dataset, split, fingerprint(pairs)):
        raise InputError(f"{path} holds predictions of other pairs ({known[0]}, {known[1]}); name another file")
    if clutter and not file.header.clutter:
        raise InputError(f"{path} holds no grid matches for --clutter; name another file, and the model")
    return file


def fingerprint(pairs: Iterable[Pair]) -> str:
    """SHA-256 of the pairs: names, images (folder, name, size in bytes), keypoints, boxes and masks."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(pair.name.encode())
        for side in (pair.source, pair.target):
            size = side.path.stat().st_size if side.path.is_file() else -1
            mask = side.mask.name if side.mask is not None else ""
            digest.update(f"\0{side.path.parent.name}/{side.path.name}\0{size}\0{side.box}\0{mask}\0".encode())
            digest.update(np.ascontiguousarray(side.keypoints, dtype="<f8").tobytes())
    return digest.hexdigest()


def _decode_grid(grid: dict[str, str]) -> GridMatches:
    scores = np.frombuffer(base64.b64decode(grid["scores"]), dtype="<f4")
    packed = [np.frombuffer(base64.b64decode(grid[side]), dtype=np.uint8) for side in _SIDES]
    return GridMatches(scores, *(np.unpackbits(bits, count=len(scores)) > 0 for bits in packed))
