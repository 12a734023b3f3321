"""What commands share: options, points, outputs that are written whole or not at all, and progress."""

import json
import math
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import typer.core

from chmnet.config import CONFIDENCE_THRESHOLD
from chmnet.errors import InputError
from chmnet.files import atomic_path, check_writable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image
    from rich.progress import Progress

    from chmnet.result import MatchResult

Item = TypeVar("Item")
Rows = list[tuple[float, float]]
Box = tuple[float, float, float, float]

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
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]


class Command(typer.core.TyperCommand):
    """A command whose help shows no Python types.

    An option shows its ``metavar``. Of an argument, typer shows the type too, whatever its ``metavar``.
    """

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


# ---------------------------------------------------------------- points and boxes


def parse_points(text: str) -> Rows:
    """Points written as "x,y x,y".

    Example:
        >>> parse_points("1,2  3.5,-4")
        [(1.0, 2.0), (3.5, -4.0)]
    """
    rows = []
    for word in text.replace(";", " ").split():
        try:
            x, y = (float(part) for part in word.split(","))
        except ValueError:
            raise InputError(f'points must be written "x,y x,y", got {word!r}') from None
        rows.append((x, y))
    return rows


def read_points(path: Path) -> Rows:
    """Points of a file: JSON, ``[[x, y], …]``, or one point a line, its numbers apart by a comma or white space.

    Empty lines, those that begin with ``#`` and a first line ``x,y`` are passed over.

    Raises:
        InputError: the file cannot be read, holds something else, or no point at all.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the points file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"the points file {path} is not text") from None
    rows = _from_json(text, path) if text.lstrip().startswith(("[", "{")) else _from_lines(text, path)
    if not rows:
        raise InputError(f"the points file {path} holds no points; write one x,y a line")
    return rows


def _from_lines(text: str, path: Path) -> Rows:
    rows: Rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.replace(",", " ").replace(";", " ").split()
        if not words or line.lstrip().startswith("#") or (not rows and [w.lower() for w in words] == ["x", "y"]):
            continue
        try:
            x, y = (float(word) for word in words)
        except ValueError:
            raise InputError(f"{path}, line {number}, must hold a point x,y, got {line.strip()[:40]!r}") from None
        rows.append((x, y))
    return rows


def _from_json(text: str, path: Path) -> Rows:
    wrong = InputError(f"the points file {path} must hold a JSON list of points [[x, y], …]")
    try:
        points = json.loads(text)
        lists = isinstance(points, list) and all(isinstance(point, list) and len(point) == 2 for point in points)
        if not lists or any(type(number) not in (int, float) for point in points for number in point):
            raise wrong
        return [(float(x), float(y)) for x, y in points]
    except (ValueError, RecursionError, OverflowError):
        raise wrong from None


def check_inside(points: Rows, path: Path, width: int, height: int) -> None:
    """Refuse points that do not lie in the picture, NaN among them.

    Raises:
        InputError: one sentence about the first of them.
    """
    for x, y in points:
        if not (0 <= x <= width and 0 <= y <= height):
            raise InputError(f"the point {x:g},{y:g} lies outside {path}, which has {width}×{height} pixels")


def parse_box(text: str, name: str) -> Box | None:
    """A box written as "left,top,right,bottom"; ``None`` where nothing is written.

    Args:
        text: as a person wrote it.
        name: of the option, for messages.

    Raises:
        InputError: it is something else, or has no area.

    Example:
        >>> parse_box("10, 20, 30.5, 40", "--source-box")
        (10.0, 20.0, 30.5, 40.0)
    """
    if not text:
        return None
    try:
        left, top, right, bottom = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f'{name} must be "left,top,right,bottom" in pixels, got {text!r}') from None
    if not (left < right < math.inf and top < bottom < math.inf):  # NaN is not less
        raise InputError(f"{name} must have its left before its right and its top above its bottom, got {text!r}")
    return left, top, right, bottom


def check_box(box: Box | None, path: Path, width: int, height: int) -> None:
    """Refuse a box that does not lie in the picture.

    Raises:
        InputError: one sentence.
    """
    if box is not None and not (min(box[:2]) >= 0 and box[2] <= width and box[3] <= height):
        sides = ",".join(f"{side:g}" for side in box)
        raise InputError(f"the box {sides} does not lie within {path}, which has {width}×{height} pixels")


def print_pose(result: "MatchResult") -> None:
    """Say on standard error when the target was matched mirrored or turned, or shows something else, it seems."""
    if result.same_kind is not None and result.same_kind < CONFIDENCE_THRESHOLD:
        typer.echo(f"the pictures seem to show different things, {1 - result.same_kind:.0%} sure", err=True)
    view, probability = result.target, result.pose_probability
    angle = f"{view.turn:g}° counter-clockwise" if view.turn <= 180 else f"{360 - view.turn:g}° clockwise"
    how = ["mirrored"] * view.mirrored + [f"turned by {angle}"] * (view.turn != 0)
    if how and probability is not None:
        typer.echo(f"the target was {', then '.join(how)} before matching, {probability:.0%} sure", err=True)


# ---------------------------------------------------------------- outputs


def check_outputs(inputs: Sequence[Path | None], outputs: Sequence[Path | None], overwrite: bool) -> None:
    """Refuse outputs that cannot be written, that are an input, or that are named twice.

    Args:
        inputs: files that the command reads or keeps.
        outputs: files that it will write; ``None`` is not asked for.
        overwrite: whether existing outputs may be replaced.

    Raises:
        InputError: one sentence about the first output that is refused.
    """
    taken = {path.resolve(): "an input" for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise InputError(f"{path} is {taken[path.resolve()]} already; choose another name")
        taken[path.resolve()] = "another output"
        check_writable(path, overwrite)


@contextmanager
def whole_outputs(
    inputs: Sequence[Path | None], outputs: Sequence[Path | None], overwrite: bool
) -> Iterator[dict[Path, Path]]:
    """Check outputs and give a temporary file for each; all get their names if the block ends well, else none.

    Raises:
        InputError: as :func:`check_outputs`, or a folder cannot be written to.
    """
    check_outputs(inputs, outputs, overwrite)
    with ExitStack() as stack:
        yield {path: stack.enter_context(atomic_path(path, overwrite)) for path in outputs if path is not None}


def write_json(document: Any, path: Path, overwrite: bool) -> None:
    """Write a document to a file, or to standard output where the name is ``-``."""
    text = json.dumps(document, indent=2) + "\n"
    if str(path) == "-":
        typer.echo(text, nl=False)
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
