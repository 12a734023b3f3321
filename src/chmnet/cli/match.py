"""``chmnet match``: find points of one picture in another."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli import io
from chmnet.errors import InputError

if TYPE_CHECKING:
    from chmnet.result import Matches, MatchResult

COLUMNS = ("source_x", "source_y", "target_x", "target_y", "confidence")


def match(
    source: Annotated[Path, io.argument("SOURCE", "Picture whose points are known.")],
    target: Annotated[Path, io.argument("TARGET", "Picture to find them in.")],
    points: Annotated[
        str,
        io.option(
            "TEXT",
            'Points of the source in pixels: "x,y x,y …". Default: twelve good matches on the thing, far apart.',
        ),
    ] = "",
    points_file: Annotated[
        Path | None, io.option("FILE", "File with points: x,y on each line, or a JSON list [[x, y], …].")
    ] = None,
    output: Annotated[
        Path | None, io.option("FILE", "Draw the matches here (.png, .jpg).", "--output", "-o")
    ] = None,
    json_file: Annotated[
        Path | None, io.option("FILE", "Write the matches here as JSON; `-` is standard output.", "--json")
    ] = None,
    flow: Annotated[
        Path | None, io.option("FILE", "Write the displacement of every pixel: .flo, or .npz with confidence.")
    ] = None,
    warp: Annotated[
        Path | None, io.option("FILE", "Write the source warped onto the target (.png, .jpg).")
    ] = None,
    poses: io.PoseSearch = io.Poses.mirror,
    place: io.PlaceSearch = io.Place.whole,
    source_box: io.SourceBox = "",
    target_box: io.TargetBox = "",
    model: io.ModelName = "",
    backbone_weights: io.BackboneWeights = "",
    device: io.Device = "auto",
    memory_mb: Annotated[
        float | None, io.option("NUMBER", "Memory limit in MB, beside the model. Default: none.", min=1)
    ] = None,
    overwrite: io.Overwrite = False,
) -> None:
    """Find points of one picture in another.

    Prints a table to a terminal, and tab-separated numbers to a pipe.

    \b
    Examples:
      chmnet match donkey.png zebra.png -o matches.png
      chmnet match donkey.png zebra.png --points "20,30 150,80" --json out.json
      chmnet match donkey.png zebra.png --points-file points.csv --json -
      chmnet match donkey.png zebra.png --flow flow.npz --warp warped.png
      chmnet match donkey.png zebra.png --poses any --target-box "10,20,180,150"
      chmnet match donkey.png zebra.png --place found
    """
    if points and points_file is not None:
        raise InputError("give points with --points or with --points-file, not both")
    given = io.parse_points(points) if points_file is None else io.read_points(points_file)
    boxes = io.parse_box(source_box, "--source-box"), io.parse_box(target_box, "--target-box")
    to_stdout = str(json_file) == "-"
    outputs = [output, None if to_stdout else json_file, flow, warp]
    io.check_picture_name(output)
    io.check_picture_name(warp)
    if flow is not None:
        from chmnet.formats import DenseFlow, check_flow_name, write_flow

        check_flow_name(flow)
    with io.whole_outputs([source, target, points_file], outputs, overwrite) as files:
        from chmnet.matcher import Matcher
        from chmnet.pictures import Picture
        from chmnet.viz import draw_matches
        from chmnet.weights import DEFAULT_MODEL

        pictures = Picture(source), Picture(target)
        images = pictures[0].image, pictures[1].image  # read before the model, which takes longer
        io.check_inside(given, source, *images[0].size)
        for box, path, image in zip(boxes, (source, target), images, strict=True):
            io.check_box(box, path, *image.size)
        name = model or DEFAULT_MODEL
        matcher = Matcher(name, device, memory_mb, backbone_weights=backbone_weights, poses=poses.value)
        result = matcher.match(*pictures, boxes=boxes, place=place.value)
        found = result.transfer(given) if given else result.matches(top=12, spread=True)
        document = _document(found, result, source, target, name)
        if output is not None:
            drawing = draw_matches(*images, found.source, found.target, confidence=found.confidence)
            io.save_picture(drawing, files[output], output)
        if json_file is not None and not to_stdout:
            files[json_file].write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        if flow is not None:
            sizes = result.source_size, result.target_size
            dense = DenseFlow(result.flow(), result.confidence_at(), *sizes)
            write_flow(files[flow], dense, overwrite=True)
        if warp is not None:
            io.save_picture(result.warp(), files[warp], warp)
    io.print_pose(result)
    if to_stdout:
        typer.echo(json.dumps(document, indent=2))
    else:
        _print_matches(found)


def _document(found: "Matches", result: "MatchResult", source: Path, target: Path, model: str) -> dict[str, Any]:
    unmatched = result.unmatched_at(found.source)
    hidden = [None] * len(found.source) if unmatched is None else unmatched.tolist()
    rows = [
        {"source": a, "target": b, "confidence": _rounded(c), "unmatched": _rounded(d)}
        for a, b, c, d in zip(*(column.tolist() for column in found), hidden, strict=True)
    ]
    return {
        "source": source.name,
        "target": target.name,
        "source_size": list(result.source_size),
        "target_size": list(result.target_size),
        "source_area": list(result.source.area) if result.source.area else None,
        "target_area": list(result.target.area) if result.target.area else None,
        "pose": {
            "mirrored": result.target.mirrored,
            "turn": result.target.turn,
            "probability": _rounded(result.pose_probability),
        },
        "same_kind": _rounded(result.same_kind),
        "model": model,
        "matches": rows,
    }


def _rounded(probability: float | None) -> float | None:
    return None if probability is None else round(probability, 4)


def _print_matches(found: "Matches") -> None:
    rows = [(*a, *b, c) for a, b, c in zip(*(values.tolist() for values in found), strict=True)]
    if not sys.stdout.isatty():
        typer.echo("\t".join(COLUMNS))
        for *numbers, confidence in rows:
            typer.echo("\t".join([*(f"{number:.2f}" for number in numbers), f"{confidence:.4f}"]))
        return
    io.print_table(
        ["#", "source x, y", "target x, y", "confidence"],
        [
            [str(number), f"{a:.1f}, {b:.1f}", f"{c:.1f}, {d:.1f}", f"{confidence:.2f}"]
            for number, (a, b, c, d, confidence) in enumerate(rows, start=1)
        ],
    )
