"""The commands together, and the one place where errors become a sentence and exit code 2."""

import signal
import sys
from typing import Annotated, NoReturn

import typer

from chmnet import __version__
from chmnet.cli import data
from chmnet.cli.average import average
from chmnet.cli.benchmark import benchmark
from chmnet.cli.calibrate import calibrate
from chmnet.cli.convert import convert
from chmnet.cli.evaluate import evaluate
from chmnet.cli.experiment import experiment
from chmnet.cli.info import info
from chmnet.cli.io import Command
from chmnet.cli.kernels import kernels
from chmnet.cli.match import match
from chmnet.cli.models import models
from chmnet.cli.probe import probe
from chmnet.cli.propagate import propagate
from chmnet.cli.serve import serve
from chmnet.cli.train import train
from chmnet.cli.warp import warp
from chmnet.errors import ChmnetError

# Plain help: it never cuts the name of an option, and examples in it can be copied.
app = typer.Typer(
    name="chmnet",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (
    match,
    warp,
    propagate,
    evaluate,
    calibrate,
    probe,
    train,
    average,
    serve,
    models,
    kernels,
    convert,
    benchmark,
    experiment,
    info,
):
    app.command(cls=Command)(command)
app.add_typer(data.app, name="data")


def _print_version(wanted: bool | None) -> None:
    if wanted:
        typer.echo(f"chmnet {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = None,
) -> None:
    """Find the points of one picture in another picture of the same kind of thing: two cats, two motorbikes.

    \b
    Examples:
      chmnet match donkey.png zebra.png -o matches.png
      chmnet warp donkey.png zebra.png -o warped.png
      chmnet propagate labels.json photos/ -o keypoints.json
      chmnet serve
    """


def _end(number: int, frame: object) -> NoReturn:
    """End as an error does, so that half-written files are removed."""
    raise SystemExit(128 + number)


def main() -> None:
    """Run the command line."""
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _end)
    try:
        app()
    except ChmnetError as error:
        typer.echo(f"chmnet: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"chmnet: {where}{error.strerror or error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("chmnet: interrupted", err=True)
        sys.exit(130)
