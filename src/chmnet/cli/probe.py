"""``chmnet probe``: teach a model where the thing is, and which way it faces."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from chmnet.cli import io
from chmnet.errors import InputError

Item = TypeVar("Item")
MOST = 600
"""Pictures of each data set that the foreground is fitted to."""


def probe(
    model: Annotated[Path, io.argument("MODEL", "A model file.")],
    dataset: Annotated[list[str], io.option("NAME", f"{io.DATASETS}; repeatable.")],
    root: Annotated[
        list[Path], io.option("FOLDER", "Folder with the data set; one for all, or one for each data set.")
    ],
    output: Annotated[Path, io.option("FILE", "Write the model here.", "--output", "-o")],
    split: io.Split = "train",
    without: Annotated[
        list[Path] | None,
        io.option("FOLDER", "Leave out pictures that have the name of one below this folder; repeatable."),
    ] = None,
    backbone_weights: io.BackboneWeights = "",
    device: io.Device = "auto",
    overwrite: io.Overwrite = False,
) -> None:
    """Fit what tells a thing from its background, and which way it faces.

    The features of the model stay as they are: two small parts learn to read them. The first needs boxes of
    objects, the second also names of keypoints that tell front from back or left from right (nose, tail, front,
    left). Matches are then shown on the thing, and a target that faces the other way is matched mirrored.
    Run `chmnet calibrate` afterwards.

    \b
    Examples:
      chmnet probe a.safetensors --dataset coco --root cats -o b.safetensors
    """
    io.check_outputs([model], [output], overwrite)
    for name in (str(model), str(output)):
        if Path(name).suffix != ".safetensors":
            raise InputError(f"probes are stored in a model file (.safetensors), got {name!r}")
    if len(root) not in (1, len(dataset)):
        raise InputError(
            f"there are {len(dataset)} data sets and {len(root)} roots; give one root, or one for each"
        )
    from chmnet.data import find_dataset
    from chmnet.data.boxes import load_boxes
    from chmnet.evaluation.facing import fit_facing
    from chmnet.evaluation.foreground import fit_foreground
    from chmnet.weights import load_model, save_probe

    network = load_model(model, backbone_weights=backbone_weights)
    held_out = {path.name for folder in without or [] for path in folder.rglob("*") if path.is_file()}
    pictures, instances = [], []
    for name, folder in zip(dataset, root * len(dataset) if len(root) == 1 else root, strict=False):
        pictures += _evenly(load_boxes(name, folder, split, held_out), MOST)
        found = find_dataset(name, folder, split)
        if found.load_instances is not None:
            instances += [each for each in found.load_instances(folder, split) if each.path.name not in held_out]
    names = ", ".join(dataset)
    foreground = fit_foreground(network, pictures, lambda items: io.track(items, "boxes"), device)
    facing = fit_facing(network, instances, lambda items: io.track(items, "facing"), device)
    save_probe(model, foreground, output, f"{len(pictures)} pictures of {names}", overwrite)
    save_probe(output, facing, output, f"{len(instances)} things of {names}", overwrite=True)
    typer.echo(f"wrote the model with both to {output}")


def _evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many, from everywhere in the list."""
    return list(items[:: max(1, len(items) // most)][:most])
