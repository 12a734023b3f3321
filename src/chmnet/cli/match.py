"""``chmnet match``: find points of one picture in another."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chmnet.atomic import atomic_path
from chmnet.cli.outputs import check_outputs, check_picture_format
from chmnet.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

    from chmnet.matcher import Matches

Rows = list[tuple[float, float]]


def match(
    source: Annotated[Path, typer.Argument(help="Picture whose points are known.")],
    target: Annotated[Path, typer.Argument(help="Picture to find them in.")],
    points: Annotated[
        str, typer.Option(help='Points of the source in pixels: "x,y x,y …". Default: a dozen sure ones.')
    ] = "",
    model: Annotated[str, typer.Option(help="Name from `chmnet models`, or a model file.")] = "",
    backbone_weights: Annotated[
        str, typer.Option(help="Backbone weights for a model without them: a file, or `published`.")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a picture of the matches here.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the matches here as JSON.")] = None,
    memory_mb: Annotated[
        float | None, typer.Option(min=1, help="Most megabytes to use beside the model. Default: no limit.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files that exist.")] = False,
) -> None:
    """Find points of one picture in another.

    Examples:

    `chmnet match horse.png zebra.png -o matches.png`

    `chmnet match horse.png zebra.png --points "20,30 150,80" --json matches.json`
    """
    given = parse_points(points)
    check_outputs([source, target], [output, json_file], overwrite)
    if output is not None:
        check_picture_format(output)
    from chmnet.matcher import Matcher
    from chmnet.pictures import open_picture
    from chmnet.weights import DEFAULT_MODEL, load_model

    pictures = open_picture(source), open_picture(target)
    for x, y in given:
        if not (0 <= x <= pictures[0].width and 0 <= y <= pictures[0].height):
            size = f"{pictures[0].width}×{pictures[0].height}"
            raise InputError(f"the point {x:g},{y:g} lies outside {source}, which has {size} pixels")
    name = model or DEFAULT_MODEL
    result = Matcher(load_model(name, backbone_weights=backbone_weights), memory_mb).match(*pictures)
    found = result.transfer(given) if given else _spread_out(result.matches(top=300), count=12)
    if output is not None:
        _write_drawing(found, pictures, output, overwrite)
    if json_file is not None:
        _write_json(found, source, target, name, json_file, overwrite)
    _print_table(found)


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


def _spread_out(matches: "Matches", count: int) -> "Matches":
    """A few of the sure matches: the surest, then always the one farthest from those already chosen."""
    import numpy as np

    sure = matches.source[: max(count, int((matches.confidence >= 0.5).sum()))]
    chosen = [0]
    while len(chosen) < min(count, len(sure)):
        distances = np.linalg.norm(sure[:, None] - sure[chosen], axis=-1).min(axis=1)
        chosen.append(int(distances.argmax()))
    return type(matches)(*(values[sorted(chosen)] for values in matches))


def _write_drawing(found: "Matches", pictures: "tuple[Image, Image]", output: Path, overwrite: bool) -> None:
    from chmnet.viz import draw_matches

    drawing = draw_matches(*pictures, found.source, found.target)
    with atomic_path(output, overwrite) as temporary:
        drawing.save(temporary)


def _write_json(found: "Matches", source: Path, target: Path, model: str, path: Path, overwrite: bool) -> None:
    rows = [
        {"source": a, "target": b, "confidence": round(c, 4)}
        for a, b, c in zip(found.source.tolist(), found.target.tolist(), found.confidence.tolist(), strict=True)
    ]
    document = {"source": source.name, "target": target.name, "model": model, "matches": rows}
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _print_table(found: "Matches") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("#", "source x, y", "target x, y", "confidence", box=None)
    for number, (a, b, c) in enumerate(zip(*found, strict=True), start=1):
        table.add_row(str(number), f"{a[0]:.1f}, {a[1]:.1f}", f"{b[0]:.1f}, {b[1]:.1f}", f"{c:.2f}")
    Console().print(table)
