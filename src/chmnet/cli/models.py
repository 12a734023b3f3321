"""``chmnet models``: the models that have a name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli.io import Overwrite, check_outputs, option, write_json
from chmnet.outputs import is_standard_output

if TYPE_CHECKING:
    from chmnet.weights import KnownModel


def models(
    json_file: Annotated[
        Path | None, option("FILE", "Write their configurations and notes here; `-` is standard output.", "--json")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """List the models that have a name.

    \b
    Examples:
      chmnet models
      chmnet models --json -
    """
    check_outputs([], [], overwrite, json_file)
    from chmnet.weights import DEFAULT_MODEL, MODELS

    if json_file is not None:
        write_json({name: _describe(name, known) for name, known in MODELS.items()}, json_file, overwrite)
    for name, known in {} if is_standard_output(json_file) else MODELS.items():
        default = " (default)" if name == DEFAULT_MODEL else ""
        typer.echo(f"{name}{default}: {known.description}")


def _describe(name: str, known: "KnownModel") -> dict[str, Any]:
    from chmnet.weights import DEFAULT_MODEL

    return {
        "description": known.description,
        "default": name == DEFAULT_MODEL,
        "config": known.config.to_dict(),
        "notes": known.notes,
    }
