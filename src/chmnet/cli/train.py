"""``chmnet train``: a model of one's own, from a configuration file."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli.changes import parse_changes
from chmnet.cli.io import Device, argument, option, progress_bar
from chmnet.errors import ConfigError, InputError

if TYPE_CHECKING:
    from chmnet.training.config import TrainingConfig


def train(
    config: Annotated[
        Path | None, argument("CONFIG", "Configuration of the run (.toml); see the folder configs.")
    ] = None,
    output: Annotated[
        Path | None, option("FOLDER", "Folder of the run: models, log, curve, checkpoint.", "--output", "-o")
    ] = None,
    change: Annotated[
        list[str] | None,
        option("KEY=VALUE", "Change the configuration: epochs=5, model.matching.channels=4; repeatable.", "--set"),
    ] = None,
    resume: Annotated[
        Path | None, option("FOLDER", "Resume the run of this folder; needs no configuration.")
    ] = None,
    root: Annotated[
        Path | None, option("FOLDER", "Folder with PF-PASCAL, AnimalPose_VOC and so on.", envvar="CHMNET_DATA")
    ] = None,
    device: Device = "auto",
) -> None:
    """Train a model.

    A run that was interrupted resumes from its last checkpoint with `--resume`. Several processes divide every
    batch among them: `torchrun --nproc-per-node 2 -m chmnet train …`.

    \b
    Examples:
      chmnet train configs/synthetic.toml -o runs/synthetic
      chmnet train configs/lite.toml --root datasets -o runs/lite
      chmnet train --resume runs/lite --set epochs=20
    """
    changes = parse_changes(change or [])
    folder, settings = _resumed(config, output, resume, changes) if resume else _new(config, output, changes)
    from chmnet.training.loop import BEST, LAST
    from chmnet.training.loop import train as run

    with TrainingProgress() as shown:
        progress = run(settings, folder, root, resume=resume is not None, report=shown, device=device)
    if shown.is_main:
        if progress.best is not None:
            figures = ", ".join(f"PCK@{alpha} {value:.1f}" for alpha, value in progress.best.items())
            typer.echo(f"best validation at step {progress.best_step}: {figures} ({folder / BEST})")
        typer.echo(f"{progress.step} steps done; the last weights are in {folder / LAST}")


def _new(config: Path | None, output: Path | None, changes: dict[str, Any]) -> "tuple[Path, TrainingConfig]":
    from chmnet.training.config import TrainingConfig

    if config is None:
        raise InputError("name a configuration file, or a run to --resume")
    if output is None:
        raise InputError("name a folder for the run: -o runs/NAME")
    first = os.environ.get("RANK", "0") == "0"  # the other processes may find the folder already in use by it
    if first and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(
            f"{output} exists already; resume its run with --resume {output}, or choose another folder"
        )
    return output, TrainingConfig.from_toml(config).replace(**changes)


def _resumed(
    config: Path | None, output: Path | None, resume: Path, changes: dict[str, Any]
) -> "tuple[Path, TrainingConfig]":
    from chmnet.training.config import TrainingConfig

    if output is not None and os.path.realpath(output) != os.path.realpath(resume):
        raise InputError(f"a resumed run stays in its folder {resume}; leave out --output")
    if not (resume / "config.toml").is_file():
        raise InputError(f"{resume} holds no run: there is no config.toml in it")
    stored = TrainingConfig.from_toml(resume / "config.toml")
    wanted = (TrainingConfig.from_toml(config) if config is not None else stored).replace(**changes)
    changed = [key for key in vars(stored) if getattr(stored, key) != getattr(wanted, key)]
    refused = [key for key in changed if key not in CHANGEABLE]
    if refused:
        raise ConfigError(
            f"a resumed run keeps its configuration, but {refused[0]} would change; only "
            f"{', '.join(CHANGEABLE)} may"
        )
    return resume, wanted


CHANGEABLE = ("epochs", "patience", "validate_every", "log_every", "checkpoint_minutes", "cache_megabytes")
"""What may differ when a run is resumed."""


class TrainingProgress:
    """Called with every record of a run; use it as a context manager."""

    def __init__(self) -> None:
        self.is_main = False
        """Whether this process is the one that speaks."""
        self._bar = progress_bar("steps", "loss {task.fields[loss]}")
        self._task = self._bar.add_task("", total=None, loss="")

    def __enter__(self) -> "TrainingProgress":
        return self

    def __exit__(self, *exception: object) -> None:
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
            text = f"step {record['step']:6d}  validation loss {loss}  {figures}  ({record['pairs']} pairs)"
            self._bar.console.print(text, highlight=False)
