"""``chmnet convert``: the authors' checkpoints into model files."""

from pathlib import Path
from typing import Annotated

import typer


def convert(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint released by the paper's authors (.pt).")],
    output: Annotated[Path, typer.Argument(help="The model file to write (.safetensors).")],
    overwrite: Annotated[bool, typer.Option(help="Replace the file if it exists.")] = False,
) -> None:
    """Turn a checkpoint of the authors' code into a chmnet model file.

    Nothing in the checkpoint is executed.

    Example:

    `chmnet convert pas_psi.pt chmnet-r101-psi.safetensors`
    """
    from chmnet.weights import convert_reference_checkpoint

    model = convert_reference_checkpoint(checkpoint, output, overwrite)
    typer.echo(f"wrote {output}: kernel type {model.config.last_sharing}, both branches of the backbone")
