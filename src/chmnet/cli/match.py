"""``chmnet match``: find points of one picture in another."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli.io import (
    BackboneWeights,
    Device,
    ModelName,
    Overwrite,
    Rows,
    argument,
    check_inside,
    check_picture_name,
    option,
    parse_points,
    print_table,
    read_points,
    save_picture,
    whole_outputs,
)
from chmnet.config import CONFIDENCE_THRESHOLD
from chmnet.errors import InputError

if TYPE_CHECKING:
    from chmnet.result import Matches, MatchResult

COLUMNS = ("source_x", "source_y", "target_x", "target_y", "confidence")


def match(
    source: Annotated[Path, argument("SOURCE", "Picture whose points are known.")],
    target: Annotated[Path, argument("TARGET", "Picture to find them in.")],
    points: Annotated[
        str,
        option(
            "TEXT", 'Points of the source in pixels: "x,y x,y …". Default: twelve confident matches, far apart.'
        ),
    ] = "",
    points_file: Annotated[
        Path | None, option("FILE", "File with points: x,y on each line, or a JSON list [[x, y], …].")
    ] = None,
    output: Annotated[Path | None, option("FILE", "Draw the matches here (.png, .jpg).", "--output", "-o")] = None,
    json_file: Annotated[
        Path | None, option("FILE", "Write the matches here as JSON; `-` is standard output.", "--json")
    ] = None,
    flow: Annotated[
        Path | None, option("FILE", "Write the displacement of every pixel: .flo, or .npz with confidence.")
    ] = None,
    warp: Annotated[Path | None, option("FILE", "Write the source warped onto the target (.png, .jpg).")] = None,
    model: ModelName = "",
    backbone_weights: BackboneWeights = "",
    device: Device = "auto",
    memory_mb: Annotated[
        float | None, option("NUMBER", "Memory limit in MB, beside the model. Default: none.", min=1)
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Find points of one picture in another.

    Prints a table to a terminal, and tab-separated numbers to a pipe.

    \b
    Examples:
      chmnet match donkey.png zebra.png -o matches.png
      chmnet match donkey.png zebra.png --points "20,30 150,80" --json out.json
      chmnet match donkey.png zebra.png --points-file points.csv --json -
      chmnet match donkey.png zebra.png --flow flow.npz --warp warped.png
    """
    given = _given_points(points, points_file)
    to_stdout = str(json_file) == "-"
    outputs = [output, None if to_stdout else json_file, flow, warp]
    _check_names(output, flow, warp)
    with whole_outputs([source, target, points_file], outputs, overwrite) as files:
        result, name = _match_files(source, target, given, model, backbone_weights, device, memory_mb)
        found = result.transfer(given) if given else _spread_out(result.matches(top=300), count=12)
        document = _document(found, result, source, target, name)
        if output is not None:
            save_picture(_drawing(found, result), files[output], output)
        if json_file is not None and not to_stdout:
            files[json_file].write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        if flow is not None:
            _write_flow(result, files[flow])
        if warp is not None:
            save_picture(result.warp(), files[warp], warp)
    if to_stdout:
        typer.echo(json.dumps(document, indent=2))
    else:
        _print_matches(found)


def _given_points(text: str, file: Path | None) -> Rows:
    if text and file is not None:
        raise InputError("give points with --points or with --points-file, not both")
    return parse_points(text) if file is None else read_points(file)


def _check_names(output: Path | None, flow: Path | None, warp: Path | None) -> None:
    check_picture_name(output)
    check_picture_name(warp)
    if flow is not None:
        from chmnet.formats import check_flow_name

        check_flow_name(flow)


def _match_files(
    source: Path,
    target: Path,
    points: Rows,
    model: str,
    backbone_weights: str,
    device: str,
    memory_mb: float | None,
) -> "tuple[MatchResult, str]":
    from chmnet.matcher import Matcher
    from chmnet.pictures import Picture
    from chmnet.weights import DEFAULT_MODEL

    pictures = Picture(source), Picture(target)
    sizes = [picture.image.size for picture in pictures]  # read before the model, which takes longer
    check_inside(points, source, *sizes[0])
    name = model or DEFAULT_MODEL
    matcher = Matcher(name, device, memory_mb, backbone_weights=backbone_weights)
    return matcher.match(*pictures), name


def _spread_out(matches: "Matches", count: int) -> "Matches":
    """A few confident matches: the most confident, then always the one farthest from those already chosen."""
    from chmnet.geometry import spread_out

    confident = matches.source[: max(count, int((matches.confidence >= CONFIDENCE_THRESHOLD).sum()))]
    chosen = spread_out(confident, count)
    return type(matches)(*(values[sorted(chosen)] for values in matches))


def _drawing(found: "Matches", result: "MatchResult") -> Any:
    from chmnet.viz import draw_matches

    pictures = result.source.picture.image, result.target.picture.image
    return draw_matches(*pictures, found.source, found.target, confidence=found.confidence)


def _write_flow(result: "MatchResult", path: Path) -> None:
    from chmnet.formats import DenseFlow, write_flow

    dense = DenseFlow(result.flow(), result.confidence_at(), result.source_size, result.target_size)
    write_flow(path, dense, overwrite=True)


def _document(found: "Matches", result: "MatchResult", source: Path, target: Path, model: str) -> dict[str, Any]:
    rows = [
        {"source": a, "target": b, "confidence": round(c, 4)}
        for a, b, c in zip(found.source.tolist(), found.target.tolist(), found.confidence.tolist(), strict=True)
    ]
    return {
        "source": source.name,
        "target": target.name,
        "source_size": list(result.source_size),
        "target_size": list(result.target_size),
        "model": model,
        "matches": rows,
    }


def _print_matches(found: "Matches") -> None:
    rows = [(*a, *b, c) for a, b, c in zip(*(values.tolist() for values in found), strict=True)]
    if not sys.stdout.isatty():
        typer.echo("\t".join(COLUMNS))
        for *numbers, confidence in rows:
            typer.echo("\t".join([*(f"{number:.2f}" for number in numbers), f"{confidence:.4f}"]))
        return
    print_table(
        ["#", "source x, y", "target x, y", "confidence"],
        [
            [str(number), f"{a:.1f}, {b:.1f}", f"{c:.1f}, {d:.1f}", f"{confidence:.2f}"]
            for number, (a, b, c, d, confidence) in enumerate(rows, start=1)
        ],
    )
