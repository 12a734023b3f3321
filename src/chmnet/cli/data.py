"""``chmnet data``: what a data set holds, whether its files are whole, and lists of its pairs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chmnet.cli import label
from chmnet.cli.io import track
from chmnet.config import parse_changes
from chmnet.files import atomic_path, check_writable

if TYPE_CHECKING:
    from chmnet.data.summary import Range, Summary

PROBLEMS_SHOWN = 50

app = typer.Typer(
    help="Look at data sets and check their files.", no_args_is_help=True, rich_markup_mode="markdown"
)

Name = Annotated[str, typer.Argument(help="pf-willow, pf-pascal, spair-71k, animal-pose or coco.")]
Root = Annotated[
    Path,
    typer.Option(help="Folder that holds PF-WILLOW, PF-PASCAL …; for coco the one with annotations.json."),
]
Split = Annotated[str, typer.Option(help="train, val or test.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", help="Option of the data set, such as layout=small or maximum_pairs=200."),
]
Overwrite = Annotated[bool, typer.Option(help="Replace a file that exists.")]


@app.callback()
def data() -> None:
    """Look at data sets and check their files."""


@app.command()
def summary(
    name: Name,
    root: Root,
    split: Split = "test",
    option: Options = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write counts and problems here as JSON.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Count what a data set holds and check every file of it; exit code 1 if something is wrong.

    Examples:

    `chmnet data summary pf-willow --root datasets`

    `chmnet data summary pf-pascal --root datasets --split val --json pf-pascal.json`
    """
    if json_file is not None:
        check_writable(json_file, overwrite)
    from chmnet.data.summary import summarise

    found = summarise(name, root, split, lambda paths: track(paths, "images"), **parse_changes(option or []))
    if json_file is not None:
        with atomic_path(json_file, overwrite) as temporary:
            temporary.write_text(json.dumps(found.as_json(), indent=2) + "\n", encoding="utf-8")
    _print_counts(found)
    _print_problems(found.problems)
    if found.problems:
        raise typer.Exit(1)


@app.command("list")
def list_pairs(
    name: Name,
    root: Root,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the list here.")],
    split: Split = "test",
    option: Options = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the pairs of a data set to a small file, so that others can use exactly the same.

    Examples:

    `chmnet data list coco --root my-pictures -o pairs.json`
    """
    check_writable(output, overwrite)
    from chmnet.data import load_pairs, write_list

    pairs = load_pairs(name, root, split, **parse_changes(option or []))
    write_list(pairs, output, root, overwrite)
    typer.echo(f"{len(pairs)} pairs are in {output}")


app.command("label")(label.label)


def _print_counts(found: "Summary") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(f"{found.dataset}, {found.split}", "", box=None)
    table.add_row("pairs", str(found.pairs))
    if found.repeated_pairs:
        table.add_row("repeated pairs", str(found.repeated_pairs))
    table.add_row("images", str(found.images))
    if found.instances is not None:
        table.add_row("annotated objects", str(found.instances))
    table.add_row("keypoints of a pair", _range_text(found.keypoints))
    table.add_row("image width", _range_text(found.widths))
    table.add_row("image height", _range_text(found.heights))
    table.add_row("pairs with boxes", str(found.boxes))
    table.add_row("pairs with masks", str(found.masks))
    table.add_row("categories", str(len(found.categories)))
    for category, pairs in found.categories.items():
        table.add_row(escape(f"  {category}"), f"{pairs} pairs")
    Console().print(table)


def _range_text(numbers: "Range") -> str:
    return f"{numbers.smallest:g} to {numbers.largest:g}, median {numbers.median:g}"


def _print_problems(problems: Sequence[str]) -> None:
    if not problems:
        typer.echo("All files are well.")
        return
    for problem in problems[:PROBLEMS_SHOWN]:
        typer.echo(problem)
    more = len(problems) - PROBLEMS_SHOWN
    if more > 0:
        typer.echo(f"… and {more} more; --json FILE writes them all.")
    typer.echo(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} found.")
