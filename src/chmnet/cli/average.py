"""``chmnet average``: the mean of several trained models."""

from pathlib import Path
from typing import Annotated

import typer

from chmnet.cli import io


def average(
    models: Annotated[list[str], io.argument("MODEL", "Names or files of two models or more, of one network.")],
    output: Annotated[Path, io.option("FILE", "Model file to write (.safetensors).", "--output", "-o")],
    overwrite: io.Overwrite = False,
) -> None:
    """Average models that were trained from one start.

    The mean of their weights is often better than each of them. Its confidence is not calibrated, and it does not
    know where things are: run `chmnet probe` and `chmnet calibrate` afterwards.

    \b
    Examples:
      chmnet average chmnet-lite runs/cats/last.safetensors -o cats.safetensors
    """
    io.check_outputs([Path(model) for model in models], [output], overwrite)
    from chmnet.weights.average import average_models

    average_models(models, output, overwrite)
    typer.echo(f"wrote the mean of {len(models)} models to {output}")
