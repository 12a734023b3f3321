"""The record of a run: JSON lines, TensorBoard, and a picture of the curve."""

import json
import logging
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chmnet.errors import InputError
from chmnet.outputs import atomic_path
from chmnet.viz.plots import plot_training

LOG, CURVE, TENSORBOARD = "log.jsonl", "curve.png", "tensorboard"
Record = dict[str, Any]

logger = logging.getLogger(__name__)


class RunLog:
    """Writes what happens in a run into its folder.

    Args:
        folder: of the run.
        last: of a resumed run, its last step and that of its last validation. Later lines are what the
            interruption lost, and are removed; ``None``: a new run.
    """

    def __init__(self, folder: Path, last: tuple[int, int] | None = None) -> None:
        self.folder, self.path = folder, folder / LOG
        self.records = (
            []
            if last is None
            else [one for one in read_log(self.path) if one["step"] <= last[one["kind"] == "validation"]]
        )
        with atomic_path(self.path) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in self.records), encoding="utf-8")
        self._board = _open_board(folder / TENSORBOARD, None if last is None else last[0])

    def add(self, record: Record) -> None:
        """Append one line.

        Raises:
            InputError: the disk is full, or the folder is gone.
        """
        self.records.append(record)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}") from None
        for name, value in scalars(record).items():
            self._add_scalar(name, value, record["step"])

    def _add_scalar(self, name: str, value: float, step: int) -> None:
        if self._board is None:
            return
        try:
            self._board.add_scalar(name, value, step)
        except OSError as error:  # the JSON lines hold the same, so the run continues
            self._board = None
            logger.warning("TensorBoard cannot write to %s any more: %s", self.folder, error.strerror)

    def draw(self) -> None:
        """Draw the curve of all records anew."""
        steps = [one for one in self.records if one["kind"] == "steps"]
        validations = [one for one in self.records if one["kind"] == "validation"]
        alphas = validations[0]["pck"] if validations else {}
        figure = plot_training(
            [(one["step"], one["loss"]) for one in steps],
            [(one["step"], one["loss"]) for one in validations],
            {alpha: [(one["step"], one["pck"][alpha]) for one in validations] for alpha in alphas},
        )
        with atomic_path(self.folder / CURVE) as temporary:
            figure.savefig(temporary, dpi=120)

    def close(self) -> None:
        """Finish the files."""
        if self._board is not None:
            with suppress(OSError):  # as above
                self._board.close()


def read_log(path: Path) -> list[Record]:
    """The complete lines of a log; a last line that was cut off is left out."""
    records = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int) and "kind" in record:
            records.append(record)
    return records


def scalars(record: Record) -> dict[str, float]:
    """The curves that a record adds a point to.

    Example:
        >>> scalars({"kind": "validation", "step": 3, "loss": 0.5, "pck": {"0.1": 40.0}})
        {'validation/loss': 0.5, 'validation/pck@0.1': 40.0}
    """
    if record["kind"] == "validation":
        pck = {f"validation/pck@{alpha}": value for alpha, value in record["pck"].items()}
        loss = {} if record["loss"] is None else {"validation/loss": record["loss"]}  # not a finite number
        return {**loss, **pck}
    if record["kind"] == "steps":
        names = ("loss", "learning_rate", "seconds_a_step")
        return {f"training/{name}": record[name] for name in names}
    return {}


def _open_board(folder: Path, step: int | None) -> Any:
    """A TensorBoard writer, where TensorBoard is installed."""
    if find_spec("tensorboard") is None:
        logger.info("no TensorBoard here: the run is recorded in %s only", LOG)
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder, purge_step=None if step is None else step + 1)
