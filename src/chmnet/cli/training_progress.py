"""What a training run shows while it goes on: a bar on a terminal, a line for each validation everywhere."""

from types import TracebackType
from typing import Any


class TrainingProgress:
    """Called with every record of a run; use it as a context manager."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self.is_main = False
        """Whether this process is the one that speaks."""
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TextColumn("loss {task.fields[loss]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, loss="")

    def __enter__(self) -> "TrainingProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, record: dict[str, Any]) -> None:
        """Show one record."""
        if record["kind"] == "start":
            self.is_main = True
            self._bar.update(self._task, total=record["steps"], completed=record["step"])
            self._bar.start()
        elif record["kind"] == "step":
            self._bar.update(self._task, completed=record["step"], loss=f"{record['loss']:.4f}")
        elif record["kind"] == "validation":
            figures = "  ".join(f"PCK@{alpha} {value:5.1f}" for alpha, value in record["pck"].items())
            loss = f"{record['loss']:.4f}" if record["loss"] is not None else "not finite"
            self._bar.console.print(
                f"step {record['step']:6d}  validation loss {loss}  {figures}  ({record['pairs']} pairs)",
                highlight=False,
            )
