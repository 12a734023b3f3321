"""What commands share: options, outputs that are written whole or not at all, and progress."""

import json
import os
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

import typer
import typer.core

from chmnet.config import CONFIDENCE_THRESHOLD
from chmnet.errors import InputError
from chmnet.outputs import atomic_path, check_writable, is_standard_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image
    from rich.progress import Progress

    from chmnet.result import MatchResult

Item = TypeVar("Item")
_command = ExitStack()
"""What is undone when the command ends."""
_documents: list[TextIO] = []
"""Where a command's JSON goes while all else goes to standard error."""

# ---------------------------------------------------------------- options and help


def _check_device(name: str) -> str:
    """Refuse a device that is not there before any work; only then is torch needed so early."""
    if name not in ("auto", "cpu"):
        from chmnet.matcher import choose_device

        choose_device(name)
    return name


def option(metavar: str, text: str, *names: str, **settings: Any) -> Any:
    """An option of a command; its help shows ``metavar`` in the place of its value."""
    return typer.Option(*names, metavar=metavar, help=text, **settings)


def argument(metavar: str, text: str) -> Any:
    """An argument of a command, which its help calls ``metavar``."""
    return typer.Argument(metavar=metavar, help=text)


DATASETS = "pf-willow, pf-pascal, spair-71k, animal-pose or coco."

ModelName = Annotated[str, option("MODEL", "Name from `chmnet models`, or a model file. Default: chmnet-lite.")]
BackboneWeights = Annotated[
    str, option("FILE", "Backbone weights for a model without them: a file, or `published`.")
]
Device = Annotated[
    str, option("DEVICE", "Device that runs the network: auto, cpu, cuda, cuda:1 or mps.", callback=_check_device)
]
Dataset = Annotated[str, option("NAME", DATASETS)]
DataRoot = Annotated[
    Path, option("FOLDER", "Folder with PF-WILLOW, PF-PASCAL …; for coco, the one with annotations.json.")
]
Split = Annotated[str, option("NAME", "train, val or test.")]
DataOptions = Annotated[
    list[str] | None,
    option("KEY=VALUE", "Option of the data set, such as maximum_pairs=200; repeatable.", "--option"),
]


class Poses(str, Enum):
    """In which poses the target is looked at."""

    upright = "upright"
    mirror = "mirror"
    any = "any"


class Place(str, Enum):
    """Which part of the pictures is matched."""

    whole = "whole"
    found = "found"


PoseSearch = Annotated[
    Poses, option("NAME", "The target as it is (upright), mirrored too (mirror), or also turned (any).")
]
PlaceSearch = Annotated[
    Place, option("NAME", "Match the whole pictures (whole), or the thing found in each of them (found).")
]
SourceBox = Annotated[str, option("BOX", 'The thing in the source, in pixels: "left,top,right,bottom".')]
TargetBox = Annotated[str, option("BOX", 'The thing in the target, in pixels: "left,top,right,bottom".')]
JsonOutput = Annotated[
    Path | None, option("FILE", "Write the numbers here as JSON; - is standard output.", "--json")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]


class Command(typer.core.TyperCommand):
    """A command whose help shows no Python types.

    An option shows its ``metavar``. Of an argument, typer shows the type too, whatever its ``metavar``.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _command:
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters; arguments without their types."""
        found = super().get_params(ctx)
        for one in found:
            if one.param_type_name == "argument":
                vars(one)["display_type_rich"] = lambda ctx: None
        return found

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the name of the command in its usage: SOURCE instead of {SOURCE}."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]


def parse_whole_numbers(text: str, what: str, example: str) -> tuple[int, ...]:
    """The numbers of an option that takes several.

    Args:
        text: as a person wrote it.
        what: what the numbers are, for messages.
        example: how to write them, for messages.

    Raises:
        InputError: there are none, or they are something else.

    Example:
        >>> parse_whole_numbers("120, 240", "sizes", "120,240")
        (120, 240)
    """
    try:
        numbers = tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise InputError(f'{what} must be whole numbers, written "{example}", got {text!r}') from None
    if not numbers:
        raise InputError(f'{what} must be one or more whole numbers, written "{example}", got none')
    return numbers


# ---------------------------------------------------------------- outputs


def print_pose(result: "MatchResult") -> None:
    """Say on standard error when the target was matched mirrored or turned, or shows something else, it seems."""
    if result.same_kind is not None and result.same_kind < CONFIDENCE_THRESHOLD:
        typer.echo(f"the pictures seem to show different things, {1 - result.same_kind:.0%} sure", err=True)
    view, probability = result.target, result.pose_probability
    angle = f"{view.turn:g}° counter-clockwise" if view.turn <= 180 else f"{360 - view.turn:g}° clockwise"
    how = ["mirrored"] * view.mirrored + [f"turned by {angle}"] * (view.turn != 0)
    if how and probability is not None:
        typer.echo(f"the target was {', then '.join(how)} before matching, {probability:.0%} sure", err=True)


def check_outputs(
    inputs: Sequence[Path | None], outputs: Sequence[Path | None], overwrite: bool, document: Path | None = None
) -> None:
    """Refuse outputs that cannot be written, that are an input, or that are named twice.

    Args:
        inputs: files that the command reads or keeps.
        outputs: files that it will write; ``None`` is not asked for.
        overwrite: whether existing outputs may be replaced.
        document: what it will write as JSON, which may be standard output (``-``): then whatever else the command
            prints goes to standard error.

    Raises:
        InputError: one sentence about the first output that is refused.
    """
    if is_standard_output(document):
        _documents.append(sys.stdout)
        _command.callback(_documents.pop)
        _command.enter_context(redirect_stdout(sys.stderr))
        document = None
    taken = {os.path.realpath(path): "an input" for path in inputs if path is not None}
    for path in (*outputs, document):
        if path is None:
            continue
        if os.path.realpath(path) in taken:
            raise InputError(f"{path} is {taken[os.path.realpath(path)]} already; choose another name")
        taken[os.path.realpath(path)] = "another output"
        check_writable(path, overwrite)


@contextmanager
def whole_outputs(
    inputs: Sequence[Path | None],
    outputs: Sequence[Path | None],
    overwrite: bool,
    document: Path | None = None,
) -> Iterator[dict[Path, Path]]:
    """Check outputs and give a temporary file for each; all get their names if the block ends well, else none.

    Meanwhile no other process can write them.

    Raises:
        InputError: as :func:`check_outputs`, or a folder cannot be written to.
    """
    check_outputs(inputs, outputs, overwrite, document)
    files = [path for path in (*outputs, document) if path is not None and not is_standard_output(path)]
    with ExitStack() as stack:
        yield {path: stack.enter_context(atomic_path(path, overwrite)) for path in files}


def json_text(document: Any) -> str:
    """A document as JSON.

    Raises:
        InputError: it holds NaN or an infinity, which JSON does not have.
    """
    try:
        return json.dumps(document, indent=2, allow_nan=False) + "\n"
    except ValueError:
        raise InputError("the result holds numbers that are not finite; the model's weights are damaged") from None


def write_json(document: Any, path: Path, overwrite: bool) -> None:
    """Write a document to a file, or to standard output."""
    text = json_text(document)
    if is_standard_output(path):
        (_documents or [sys.stdout])[-1].write(text)
        return
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_picture_name(path: Path | None) -> None:
    """Refuse a name whose ending is no picture format that can be written.

    Raises:
        InputError: it is not.
    """
    if path is None:
        return
    from PIL.Image import SAVE, registered_extensions

    if registered_extensions().get(path.suffix.lower()) not in SAVE:
        raise InputError(f"cannot tell the picture format from {path.name!r}; end the name in .png or .jpg")


def check_ending(path: Path | None, what: str, *endings: str) -> None:
    """Refuse a name with another ending.

    Raises:
        InputError: it has another ending, or none.

    Example:
        >>> check_ending(Path("curve.PNG"), "a plot", ".png")
    """
    if path is not None and path.suffix.lower() not in endings:
        raise InputError(f"{what} must end in {' or '.join(endings)}, got {path.name!r}")


def save_figure(figure: "Figure", path: Path, overwrite: bool) -> None:
    """Save a Matplotlib figure as PNG."""
    with atomic_path(path, overwrite) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def save_picture(picture: "Image", path: Path, name: Path, **options: Any) -> None:
    """Save a picture to ``path``, which will be called ``name``.

    Raises:
        InputError: the format cannot hold it, or the disk is full.
    """
    try:
        picture.save(path, **options)
    except (OSError, ValueError, KeyError, struct.error) as error:  # what Pillow's encoders raise
        raise InputError(f"cannot write the picture {name}: {error}; try another format, such as .png") from None


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; in a pipe, its lines are as wide as they need to be."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*map(escape, headings), box=None)
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console()
    (console if console.is_terminal else Console(width=10_000)).print(table)


# ---------------------------------------------------------------- progress


def progress_bar(unit: str, details: str) -> "Progress":
    """A bar on standard error, with details beside it; only on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = BarColumn(), MofNCompleteColumn(), TextColumn(unit), TextColumn(details), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def track(items: Sequence[Item], unit: str) -> Iterator[Item]:
    """Go through items under a bar with their rate and the time left; it shows up after one second."""
    progress = progress_bar(unit, "{task.fields[rate]}")
    if progress.disable:
        yield from items
        return
    with progress:
        started = time.monotonic()
        task = progress.add_task("", total=len(items), rate="", visible=False)
        for item in items:
            yield item
            speed = progress.tasks[0].speed
            rate = f"{speed:.1f}/s" if speed else ""
            progress.update(task, advance=1, rate=rate, visible=time.monotonic() - started > 1)
