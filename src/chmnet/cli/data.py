"""``chmnet data``: count and check the files of a data set, list its pairs, label pairs without keypoints."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli import io
from chmnet.cli.changes import parse_changes
from chmnet.errors import InputError

if TYPE_CHECKING:
    from chmnet.annotation.label import Member
    from chmnet.data import Pair
    from chmnet.data.summary import Range, Summary

PROBLEMS_SHOWN = 50
MATCHES_BETWEEN = 15
"""Matches between kept keypoints that a pair needs; these tell already that it shows one pose."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, io.argument("NAME", io.DATASETS)]


@app.callback()
def data() -> None:
    """Count, check, list and label data sets."""


@app.command(cls=io.Command)
def summary(
    name: Name,
    root: io.DataRoot,
    split: io.Split = "test",
    data_option: io.DataOptions = None,
    json_file: io.JsonOutput = None,
    overwrite: io.Overwrite = False,
) -> None:
    """Count and check the files of a data set.

    The exit code is 1 if a file is missing or broken.

    \b
    Examples:
      chmnet data summary pf-willow --root datasets
      chmnet data summary pf-pascal --root datasets --split val --json out.json
    """
    io.check_outputs([], [], overwrite, json_file)
    from chmnet.data.summary import summarise

    options = parse_changes(data_option or [])
    found = summarise(name, root, split, lambda paths: io.track(paths, "images"), **options)
    if json_file is not None:
        io.write_json(found.as_json(), json_file, overwrite)
    _print_counts(found)
    _print_problems(found.problems)
    if found.problems:
        raise typer.Exit(1)


@app.command("list", cls=io.Command)
def list_pairs(
    name: Name,
    root: io.DataRoot,
    output: Annotated[Path, io.option("FILE", "Write the list here (.json).", "--output", "-o")],
    split: io.Split = "test",
    data_option: io.DataOptions = None,
    overwrite: io.Overwrite = False,
) -> None:
    """Write a list of the pairs of a data set.

    Others can then use exactly the same pairs.

    \b
    Examples:
      chmnet data list coco --root my-pictures -o pairs.json
    """
    io.check_outputs([], [output], overwrite)
    from chmnet.data import load_pairs, write_list

    pairs = load_pairs(name, root, split, **parse_changes(data_option or []))
    write_list(pairs, output, root, overwrite)
    typer.echo(f"wrote {len(pairs)} pairs to {output}")


@app.command(cls=io.Command)
def label(
    name: Name,
    root: io.DataRoot,
    output: Annotated[Path, io.option("FILE", "Write the list of pairs here (.json).", "--output", "-o")],
    split: Annotated[str, io.option("NAME", "train or val.")] = "train",
    model: Annotated[
        list[str] | None,
        io.option(
            "MODEL[@SIDE]",
            "Name or file of a model, and the side in pixels to resize pictures to; repeatable. "
            "Default: chmnet-lite and chmnet-lite@320.",
        ),
    ] = None,
    draw: Annotated[
        int,
        io.option(
            "NUMBER",
            "Label this many random pairs instead: two listed pictures of one category, not in any list.",
            min=0,
            show_default=False,
        ),
    ] = 0,
    minimum_confidence: Annotated[
        float, io.option("NUMBER", "Confidence that a match needs to become a keypoint, 0 to 1.")
    ] = 0.8,
    points: Annotated[int, io.option("NUMBER", "Most keypoints that a pair gets.")] = 32,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep the keypoints of pairs that have them, and add matches that agree with them. Only pairs "
            "whose poses are alike, mirrored or not, are labelled.",
        ),
    ] = False,
    data_option: io.DataOptions = None,
    backbone_weights: io.BackboneWeights = "",
    device: io.Device = "auto",
    overwrite: io.Overwrite = False,
) -> None:
    """Label pairs that have no keypoints, or few.

    Models match what is inside the boxes of the objects; their most confident matches become keypoints. The list
    is a source of training pairs: `dataset = "list"`. PF-PASCAL's training pairs that are also in its test list
    are left out.

    \b
    Examples:
      chmnet data label pf-pascal --root data -o labels.json
      chmnet data label pf-pascal --root data -o drawn.json --draw 1600
      chmnet data label pf-pascal --root data -o own.json --model own.safetensors
      chmnet data label animal-pose --root data -o more.json --keep --points 16
    """
    io.check_outputs([], [output], overwrite)
    if split == "test":
        raise InputError("test pairs are not labelled: such lists are for training; use --split train")
    from chmnet.annotation.label import LabellingConfig, label_pairs
    from chmnet.data import write_list

    if keep and draw:
        raise InputError("drawn pairs have no keypoints to keep: use --keep or --draw")
    fewest = MATCHES_BETWEEN if keep else LabellingConfig.minimum_matches
    config = LabellingConfig(minimum_confidence, fewest, points, keep)
    pairs = _pairs(name, root, split, draw, keep, parse_changes(data_option or []))
    members = [_member(word, backbone_weights) for word in model or ["chmnet-lite", "chmnet-lite@320"]]
    found = label_pairs(pairs, members, config, lambda items: io.track(items, "pairs"), device)
    if not found:
        raise InputError(f"none of {len(pairs)} pairs has enough confident matches; lower --minimum-confidence")
    write_list(found, output, root, overwrite)
    typer.echo(f"wrote {len(found)} of {len(pairs)} pairs with keypoints to {output}")


def _pairs(name: str, root: Path, split: str, draw: int, keep: bool, options: dict[str, Any]) -> "list[Pair]":
    from chmnet.annotation.label import draw_pairs
    from chmnet.data import find_dataset, image_names, load_pairs, pf_pascal
    from chmnet.data.posing import choose_poses
    from chmnet.training.datasets import without_test_pairs

    dataset = find_dataset(name, root, split)
    dataset.check_options(options)
    if name == "pf-pascal" and not keep:
        pairs = pf_pascal.load_unlabelled(root, split)
    else:
        pairs = [pair for pair in load_pairs(name, root, split, **options) if not pair.flags.get("flip")]
    if name == "pf-pascal":
        pairs = without_test_pairs(pairs, root)
    if keep:
        pairs = choose_poses(pairs, same_pose=1, mirror=1)
        if not pairs:
            raise InputError(f"no two things of {name} that share keypoints are posed alike")
    if not draw:
        return pairs
    others = [other for other in dataset.splits if other != split]
    listed = {image_names(pair) for other in others for pair in load_pairs(name, root, other)}
    return draw_pairs(pairs, draw, listed)


def _member(word: str, backbone_weights: str) -> "Member":
    from chmnet.annotation.label import Member
    from chmnet.weights import load_model
    from chmnet.weights.models import needs_backbone

    name, at, side = word.rpartition("@")
    if at and not (side.isdecimal() and 16 <= int(side) <= 1024):
        raise InputError(f"the side after @ must be 16 to 1024 pixels, got {word!r}")
    name = name if at else word
    model = load_model(name, backbone_weights=backbone_weights if needs_backbone(name) else "")
    return Member(model, int(side) if at else None)


def _print_counts(found: "Summary") -> None:
    rows = [
        ("pairs", str(found.pairs)),
        *([("repeated pairs", str(found.repeated_pairs))] if found.repeated_pairs else []),
        ("images", str(found.images)),
        *([("annotated objects", str(found.instances))] if found.instances is not None else []),
        ("keypoints of a pair", _range_text(found.keypoints)),
        ("image width", _range_text(found.widths)),
        ("image height", _range_text(found.heights)),
        ("pairs with boxes", str(found.boxes)),
        ("pairs with masks", str(found.masks)),
        ("categories", str(len(found.categories))),
        *((f"  {category}", f"{pairs} pairs") for category, pairs in found.categories.items()),
    ]
    io.print_table([f"{found.dataset}, {found.split}", ""], rows)


def _range_text(numbers: "Range") -> str:
    return f"{numbers.smallest:g} to {numbers.largest:g}, median {numbers.median:g}"


def _print_problems(problems: Sequence[str]) -> None:
    if not problems:
        typer.echo("No problems found.")
        return
    for problem in problems[:PROBLEMS_SHOWN]:
        typer.echo(problem)
    more = len(problems) - PROBLEMS_SHOWN
    if more > 0:
        typer.echo(f"… and {more} more; --json FILE writes them all.")
    typer.echo(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} found.")
