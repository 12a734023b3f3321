"""``chmnet kernels``: what the Hough layers of a model have learned, as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from chmnet.cli import io


def kernels(
    model: Annotated[str, io.argument("MODEL", "Name from `chmnet models`, or a model file.")],
    output: Annotated[Path, io.option("FILE", "Picture to write (.png, .jpg).", "--output", "-o")],
    backbone_weights: io.BackboneWeights = "",
    overwrite: io.Overwrite = False,
) -> None:
    """Draw the kernels of a model.

    A kernel of a Hough layer says which neighbours vote for a match, and how strongly.

    \b
    Examples:
      chmnet kernels chmnet-lite -o kernels.png
      chmnet kernels runs/cats/best.safetensors -o cats-kernels.png
    """
    io.check_picture_name(output)
    with io.whole_outputs([Path(model)], [output], overwrite) as files:
        from chmnet.viz.kernels import draw_kernels, titled_kernels
        from chmnet.weights import load_model

        head = load_model(model, backbone_weights=backbone_weights).head
        titled = titled_kernels(Path(model).name, *head.votes())
        io.save_picture(draw_kernels(titled), files[output], output)
    for title, _ in titled:
        typer.echo(title)
    typer.echo(f"wrote {output}")
