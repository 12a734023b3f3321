"""``chmnet data label``: keypoints for pairs that have none, found by models inside the objects' boxes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chmnet.cli.io import track
from chmnet.errors import InputError
from chmnet.files import check_writable

if TYPE_CHECKING:
    from chmnet.annotation.label import Member
    from chmnet.data import Pair


def label(
    name: Annotated[str, typer.Argument(help="pf-willow, pf-pascal, spair-71k, animal-pose or coco.")],
    root: Annotated[Path, typer.Option(help="Folder that holds PF-WILLOW, PF-PASCAL …")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the list of pairs here.")],
    split: Annotated[str, typer.Option(help="train or val.")] = "train",
    model: Annotated[
        list[str] | None,
        typer.Option(help="Name or file of a model, and @SIDE to resize pictures to; may be given several times."),
    ] = None,
    draw: Annotated[
        int,
        typer.Option(
            min=0, help="Label so many other pairs instead: two listed pictures of one category, not in any list."
        ),
    ] = 0,
    minimum_confidence: Annotated[float, typer.Option(help="Of a match that becomes a keypoint, 0 to 1.")] = 0.8,
    points: Annotated[int, typer.Option(help="Most keypoints of a pair.")] = 32,
    overwrite: Annotated[bool, typer.Option(help="Replace a file that exists.")] = False,
) -> None:
    """Find keypoints for pairs that have none, with models that see only what is inside the objects' boxes.

    The list is a source of training pairs: `dataset = "list"`. Of PF-PASCAL's training list, all pairs are
    labelled that its test list does not have too.

    Examples:

    `chmnet data label pf-pascal --root datasets -o labels.json`

    `chmnet data label pf-pascal --root datasets -o drawn.json --draw 1600`

    `chmnet data label pf-pascal --root datasets -o labels.json --model mine.safetensors --model chmnet-lite@320`
    """
    check_writable(output, overwrite)
    if split == "test":
        raise InputError("test pairs are not labelled: such lists are for training; use --split train")
    from chmnet.annotation.label import LabellingConfig, label_pairs
    from chmnet.data import write_list

    config = LabellingConfig(minimum_confidence, most_points=points)
    pairs = _pairs(name, root, split, draw)
    members = [_member(word) for word in model or ["chmnet-lite", "chmnet-lite@320"]]
    found = label_pairs(pairs, members, config, lambda items: track(items, "pairs"))
    if not found:
        raise InputError(f"none of {len(pairs)} pairs has enough sure matches; lower --minimum-confidence")
    write_list(found, output, root, overwrite)
    typer.echo(f"{len(found)} of {len(pairs)} pairs have keypoints in {output}")


def _pairs(name: str, root: Path, split: str, draw: int) -> "list[Pair]":
    from chmnet.annotation.label import draw_pairs
    from chmnet.data import find_dataset, image_names, load_pairs, pf_pascal
    from chmnet.training.sources import without_test_pairs

    splits = find_dataset(name, root, split).splits
    if name == "pf-pascal":
        pairs = without_test_pairs(pf_pascal.load_unlabelled(root, split), root)
    else:
        pairs = load_pairs(name, root, split)
    if not draw:
        return pairs
    others = [other for other in splits if other != split]
    listed = {image_names(pair) for other in others for pair in load_pairs(name, root, other)}
    return draw_pairs(pairs, draw, listed)


def _member(word: str) -> "Member":
    from chmnet.annotation.label import Member
    from chmnet.weights import load_model

    name, at, side = word.rpartition("@")
    if not at:
        return Member(load_model(word))
    if not (side.isdecimal() and 16 <= int(side) <= 1024):
        raise InputError(f"after @ comes the side in pixels, 16 to 1024, got {word!r}")
    return Member(load_model(name), int(side))
