"""The commands together, and the one place where errors become a sentence and exit code 2."""

import sys
from typing import Annotated

import typer

from chmnet import __version__
from chmnet.cli import (
    benchmark,
    calibrate,
    convert,
    data,
    evaluate,
    experiment,
    info,
    kernels,
    match,
    models,
    propagate,
    serve,
    train,
    warp,
)
from chmnet.errors import ChmnetError

app = typer.Typer(
    name="chmnet",
    help="Find which point in one picture is which point in another: two cats, two motorbikes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("match")(match.match)
app.command("warp")(warp.warp)
app.command("propagate")(propagate.propagate)
app.command("evaluate")(evaluate.evaluate)
app.command("benchmark")(benchmark.benchmark)
app.command("experiment")(experiment.experiment)
app.command("train")(train.train)
app.command("serve")(serve.serve)
app.command("models")(models.models)
app.command("calibrate")(calibrate.calibrate)
app.command("kernels")(kernels.kernels)
app.command("convert")(convert.convert)
app.command("info")(info.info)
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
    """Find which point in one picture is which point in another: two cats, two motorbikes."""


def main() -> None:
    """Run the command line."""
    try:
        app()
    except ChmnetError as error:
        typer.echo(f"chmnet: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"chmnet: {error.strerror or error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("chmnet: interrupted", err=True)
        sys.exit(130)
