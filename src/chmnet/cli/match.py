"""``chmnet match``: find points of one picture in another."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from chmnet.cli import io
from chmnet.cli.points import check_box, check_inside, parse_box, parse_points, read_points
from chmnet.errors import InputError
from chmnet.outputs import is_standard_output

if TYPE_CHECKING:
    import numpy as np

    from chmnet.result import Matches, MatchResult

COLUMNS = ("source_x", "source_y", "target_x", "target_y", "confidence")


def match(
    source: Annotated[Path, io.argument("SOURCE", "Picture whose points are known.")],
    target: Annotated[Path, io.argument("TARGET", "Picture to find them in.")],
    points: Annotated[
        str | None,
        io.option(
            "TEXT",
            'Points of the source in pixels: "x,y x,y …". Default: twelve good matches on the thing, far apart.',
        ),
    ] = None,
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
    instances: Annotated[
        int | None,
        io.option("NUMBER", "Match each of at most so many things of the target by itself.", min=1, max=20),
    ] = None,
    poses: Annotated[
        io.Poses | None,
        io.option(
            "NAME", "The target as it is (upright), mirrored too (mirror), or also turned (any). Default: mirror."
        ),
    ] = None,
    mirrored: Annotated[
        bool, typer.Option("--mirrored", help="Match the mirror image of the target, and try no other pose.")
    ] = False,
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
      chmnet match donkey.png zebras.png --instances 3 -o matches.png
    """
    if mirrored and poses is not None:
        raise InputError("give --mirrored or --poses, not both: --mirrored tries no other pose")
    if points is not None and points_file is not None:
        raise InputError("give points with --points or with --points-file, not both")
    given = parse_points(points or "") if points_file is None else read_points(points_file)
    if points is not None and not given:
        raise InputError('--points names no point; write "x,y x,y", or leave it out for good matches on the thing')
    boxes = parse_box(source_box, "--source-box"), parse_box(target_box, "--target-box")
    to_stdout = is_standard_output(json_file)
    outputs = [output, flow, warp]
    io.check_picture_name(output)
    io.check_picture_name(warp)
    if flow is not None:
        from chmnet.formats import DenseFlow, check_flow_name, write_flow

        check_flow_name(flow)
    with io.whole_outputs([source, target, points_file], outputs, overwrite, json_file) as files:
        from chmnet.matcher import Matcher
        from chmnet.pictures import Picture, View
        from chmnet.viz import draw_matches
        from chmnet.weights import DEFAULT_MODEL

        pictures = Picture(source), Picture(target)
        images = pictures[0].image, pictures[1].image  # read before the model, which takes longer
        check_inside(given, source, *images[0].size)
        for box, path, image in zip(boxes, (source, target), images, strict=True):
            check_box(box, path, *image.size)
        name = model or DEFAULT_MODEL
        matcher = Matcher(
            name, device, memory_mb, backbone_weights=backbone_weights, poses=(poses or io.Poses.mirror).value
        )
        views = View(pictures[0]), View(pictures[1], mirrored=mirrored)
        result = matcher.match(*views, boxes=boxes, place=place.value)
        found = _find(result, given, instances)
        document = _document(found, result, source, target, name)
        if output is not None:
            drawing = draw_matches(*images, *found.matches[:2], **found.drawn())
            io.save_picture(drawing, files[output], output)
        if json_file is not None and not to_stdout:
            files[json_file].write_text(io.json_text(document), encoding="utf-8")
        if flow is not None:
            sizes = result.source_size, result.target_size
            dense = DenseFlow(result.flow(), result.confidence_at(), *sizes)
            write_flow(files[flow], dense, overwrite=True)
        if warp is not None:
            io.save_picture(result.warp(), files[warp], warp)
    io.print_pose(result)
    if place is io.Place.found:
        _print_areas(result, source, target)
    if json_file is not None and to_stdout:
        io.write_json(document, json_file, overwrite)
    else:
        _print_matches(found)


def _print_areas(result: "MatchResult", source: Path, target: Path) -> None:
    """Say on standard error what was looked at."""
    for path, view in ((source, result.source), (target, result.target)):
        if view.area is None:  # nothing was found
            area = "the whole picture" if view.window is None else "the middle of the picture, which was turned"
        else:
            area = "from ({}, {}) to ({}, {})".format(*view.area)
        typer.echo(f"{path.name}: matched {area}", err=True)


class _Found(NamedTuple):
    """Matches, row by row; of several things one after the other."""

    matches: "Matches"
    unmatched: "np.ndarray | None"
    instance: list[int] | None
    """Number of the thing of each match, from 1 on; ``None``: they were not asked for."""

    def drawn(self) -> dict[str, Any]:
        """How they are drawn: things in colours of their own, each with numbers from 1 on."""
        if self.instance is None:
            return {"confidence": self.matches.confidence}
        labels = [str(self.instance[:row].count(number) + 1) for row, number in enumerate(self.instance)]
        groups = [number - 1 for number in self.instance]
        return {"confidence": self.matches.confidence, "labels": labels, "groups": groups}


def _find(result: "MatchResult", given: list[tuple[float, float]], instances: int | None) -> _Found:
    import numpy as np

    from chmnet.result import Matches

    results = [result] if instances is None else result.instances(instances)
    groups = [each.transfer(given) if given else each.matches(top=12, spread=True) for each in results]
    hidden = [each.unmatched_at(group.source) for each, group in zip(results, groups, strict=True)]
    known = [values for values in hidden if values is not None]
    numbers = [place for place, group in enumerate(groups, start=1) for _ in group.source]
    return _Found(
        Matches(*(np.concatenate(columns) for columns in zip(*groups, strict=True))),
        np.concatenate(known) if known else None,
        None if instances is None else numbers,
    )


def _document(found: _Found, result: "MatchResult", source: Path, target: Path, model: str) -> dict[str, Any]:
    from chmnet.turns import seen_area

    count = len(found.matches.source)
    hidden = [None] * count if found.unmatched is None else found.unmatched.tolist()
    rows = [
        {"source": a, "target": b, "confidence": _rounded(c), "unmatched": _rounded(d)}
        for a, b, c, d in zip(*(column.tolist() for column in found.matches), hidden, strict=True)
    ]
    if found.instance is not None:
        rows = [{"instance": number, **row} for number, row in zip(found.instance, rows, strict=True)]
    return {
        "source": source.name,
        "target": target.name,
        "source_size": list(result.source_size),
        "target_size": list(result.target_size),
        "source_area": seen_area(result.source),
        "target_area": seen_area(result.target),
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


def _print_matches(found: _Found) -> None:
    rows = [(*a, *b, c) for a, b, c in zip(*(values.tolist() for values in found.matches), strict=True)]
    things = [[]] * len(rows) if found.instance is None else [[str(number)] for number in found.instance]
    heading = [] if found.instance is None else ["instance"]
    if not sys.stdout.isatty():
        typer.echo("\t".join([*heading, *COLUMNS]))
        for thing, (*numbers, confidence) in zip(things, rows, strict=True):
            typer.echo("\t".join([*thing, *(f"{number:.2f}" for number in numbers), f"{confidence:.4f}"]))
        return
    io.print_table(
        ["#", *heading, "source x, y", "target x, y", "confidence"],
        [
            [str(number), *thing, f"{a:.1f}, {b:.1f}", f"{c:.1f}, {d:.1f}", f"{confidence:.2f}"]
            for number, (thing, (a, b, c, d, confidence)) in enumerate(zip(things, rows, strict=True), start=1)
        ],
    )
