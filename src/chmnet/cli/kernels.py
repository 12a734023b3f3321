"""``chmnet kernels``: what the Hough layers of a model have learned, as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chmnet.cli.outputs import check_picture_name, save_picture, whole_outputs
from chmnet.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from chmnet.nn.chmnet import CHMNet

CHANNELS_DRAWN = 4
"""Of layers with several channels no more kernels than this are drawn."""

SHARING_WORDS = {
    "psi": "shared by offset and positions (psi)",
    "iso": "shared by offset (iso)",
    "full": "none shared (full)",
}


def kernels(
    model: Annotated[str, typer.Argument(help="Name from `chmnet models`, or a model file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture to write.")],
    backbone_weights: Annotated[
        str, typer.Option(help="Backbone weights for a model without them: a file, or `published`.")
    ] = "",
    overwrite: Annotated[bool, typer.Option(help="Replace the file if it exists.")] = False,
) -> None:
    """Draw the kernels of a model's Hough layers: which neighbours vote for a match, and how strongly.

    Examples:

    `chmnet kernels chmnet-lite -o kernels.png`

    `chmnet kernels runs/cats/best.safetensors -o cats-kernels.png`
    """
    check_picture_name(output)
    with whole_outputs([Path(model)], [output], overwrite) as files:
        from chmnet.viz import draw_kernels
        from chmnet.weights import load_model

        titled = titled_kernels(load_model(model, backbone_weights=backbone_weights), Path(model).name)
        save_picture(draw_kernels(titled), files[output], output)
    for title, _ in titled:
        typer.echo(title)
    typer.echo(f"wrote {output}")


def titled_kernels(model: "CHMNet", name: str) -> "list[tuple[str, np.ndarray]]":
    """The kernels of the first and the last Hough layer, each with a title in plain words.

    Raises:
        InputError: the model has no Hough layers.
    """
    from chmnet.nn.hough import HoughMatching

    titled = []
    for title, layer in (("first vote", model.head.first), ("last vote", model.head.last)):
        if not isinstance(layer, HoughMatching):
            continue
        space = "positions" if layer.scale is None else "positions and scales"
        dimensions = "4D" if layer.scale is None else "6D"
        number = layer.groups.number
        words = (
            f"{name}, {title}: pairs of {space} ({dimensions}), {number} weights, {SHARING_WORDS[layer.sharing]}"
        )
        dense = layer.kernel().detach().float().cpu().flatten(0, 1).numpy()
        for channel, kernel in enumerate(dense[:CHANNELS_DRAWN]):
            titled.append((words + (f", channel {channel + 1} of {len(dense)}" if len(dense) > 1 else ""), kernel))
    if not titled:
        raise InputError(
            f"{name} has no Hough layers, so there are no kernels to draw; try chmnet-lite or hough-prior"
        )
    return titled
