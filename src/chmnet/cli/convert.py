"""``chmnet convert``: the authors' checkpoints into model files, and model files into smaller ones."""

from pathlib import Path
from typing import Annotated

import typer

from chmnet.cli.io import Overwrite, argument, check_outputs, option
from chmnet.errors import InputError


def convert(
    checkpoint: Annotated[
        Path, argument("CHECKPOINT", "A checkpoint of the paper's authors (.pt), or a model file (.safetensors).")
    ],
    output: Annotated[Path, argument("OUTPUT", "Model file to write (.safetensors).")],
    half: Annotated[bool, typer.Option("--half", help="Store weights in half precision.")] = False,
    without_backbone: Annotated[
        str,
        option(
            "ORIGIN",
            "Leave the backbone out of a model file; note where its weights come from: `package` for "
            "that of the default backbone, else a name for people to read.",
        ),
    ] = "",
    overwrite: Overwrite = False,
) -> None:
    """Convert or shrink a model file.

    Turns a checkpoint of the authors' code into a model file of chmnet, or makes a model file smaller. Nothing in
    the checkpoint is executed.

    \b
    Examples:
      chmnet convert pas_psi.pt chmnet-r101-psi.safetensors
      chmnet convert best.safetensors cats.safetensors --half
    """
    check_outputs([checkpoint], [output], overwrite)
    if checkpoint.suffix == ".safetensors":
        from chmnet.weights.models import shrink_model_file

        shrink_model_file(checkpoint, output, half, without_backbone, overwrite)
        typer.echo(f"wrote {output}, {output.stat().st_size / 1e6:.1f} MB")
        return
    if half or without_backbone:
        raise InputError("--half and --without-backbone are for model files (.safetensors); convert to one first")
    from chmnet.weights import convert_reference_checkpoint

    model = convert_reference_checkpoint(checkpoint, output, overwrite)
    kernel = model.config.matching.to_dict()["last_sharing"]
    typer.echo(f"wrote {output}: kernel type {kernel}, both branches of the backbone")
