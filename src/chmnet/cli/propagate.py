"""``chmnet propagate``: the keypoints of a few annotated pictures, found in a folder of others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli import io
from chmnet.config import CONFIDENCE_THRESHOLD
from chmnet.errors import InputError

if TYPE_CHECKING:
    from chmnet.annotation import Outcome, PartialFile, Skipped
    from chmnet.data.coco import Labels


def propagate(
    labels: Annotated[Path, io.argument("LABELS.json", "COCO keypoints (JSON) of one or several pictures.")],
    pictures: Annotated[
        list[Path], io.argument("IMAGES", "Pictures, or folders of pictures, to find the keypoints in.")
    ],
    output: Annotated[Path, io.option("FILE", "COCO keypoints to write (.json).", "--output", "-o")],
    images_root: Annotated[
        Path | None,
        io.option("FOLDER", "Folder of the annotated pictures. Default: beside LABELS.json, or in images/."),
    ] = None,
    category: Annotated[
        list[str] | None, io.option("NAME", "Only this category; repeatable. Default: all categories.")
    ] = None,
    model: io.ModelName = "",
    backbone_weights: io.BackboneWeights = "",
    minimum_confidence: Annotated[
        float, io.option("NUMBER", "Less confident keypoints are marked for review: v = 1.")
    ] = CONFIDENCE_THRESHOLD,
    contact_sheet: Annotated[
        Path | None, io.option("FILE", "Draw the least confident results here (.png, .jpg).")
    ] = None,
    include_sources: Annotated[
        bool, typer.Option("--include-sources", help="Put the annotated pictures into the output, too.")
    ] = False,
    poses: io.PoseSearch = io.Poses.mirror,
    place: io.PlaceSearch = io.Place.whole,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Match the whole annotated pictures, not only the objects' boxes."),
    ] = False,
    target_boxes: Annotated[
        Path | None,
        io.option("BOXES.json", "COCO file with boxes of the objects in IMAGES: each is labelled by itself."),
    ] = None,
    device: io.Device = "auto",
    overwrite: io.Overwrite = False,
) -> None:
    """Copy keypoints to many other pictures.

    Finds the keypoints of annotated pictures in others and writes them as COCO keypoints: v = 2 where the match is
    confident, v = 1 where a person should review it. Of several annotated objects of one category, each picture
    takes the one that matches it best, with those that agree. Where a picture matches better mirrored, left and
    right are exchanged by name (left_eye and right_eye, L_Eye and R_Eye). Every category is looked for in every
    picture; choose with --category where the pictures show only one.

    If you know where the objects are, say so with --target-boxes: each box is matched by itself, with a margin,
    and becomes an annotation of its own. Pictures are found by their file names; those without boxes are matched
    as a whole.

    Pictures that cannot be read are listed and skipped. After an interruption, the same command resumes where it
    stopped.

    \b
    Examples:
      chmnet propagate labels.json photos/ -o out.json --contact-sheet sheet.png
      chmnet propagate labels.json photos/*.jpg -o out.json --category cat
      chmnet propagate labels.json photos/ -o out.json --target-boxes boxes.json
    """
    inputs = [labels] if target_boxes is None else [labels, target_boxes]
    io.check_outputs(inputs, [output, contact_sheet], overwrite)
    io.check_picture_name(contact_sheet)
    if not 0 <= minimum_confidence <= 1:
        raise InputError(f"the minimum confidence must be from 0 to 1, got {minimum_confidence:g}")
    from chmnet.annotation import Origin, PartialFile, draw_sheet, find_pictures, load_target_boxes, to_coco
    from chmnet.data.coco import load_labels

    known = load_labels(labels, images_root, category or [])
    sources = {instance.path for instance in known.instances}
    targets = find_pictures(pictures, leave_out=sources)
    if not targets.pictures:
        names = [*map(str, pictures[:3]), *(["…"] if len(pictures) > 3 else [])]
        raise InputError(f"there are no pictures in {', '.join(names)} beside the annotated ones")
    io.check_outputs([*inputs, *sources, *targets.pictures], [output, contact_sheet], overwrite=True)
    partial = PartialFile(output.with_name(output.name + ".partial"))
    boxes = None if target_boxes is None else load_target_boxes(target_boxes, targets.pictures, known, sources)
    search = {"poses": poses.value, "place": place.value, "whole": whole, "boxes": boxes}
    outcome, facts = _find(known, targets.pictures, partial, model, backbone_weights, device, search, overwrite)
    origin = Origin(facts["name"], facts["weights_sha256"], minimum_confidence)
    document = to_coco(known, outcome.found, output, origin, include_sources)
    sheet = None if contact_sheet is None else draw_sheet(known, outcome.found, minimum_confidence)
    with io.whole_outputs([], [output, contact_sheet], overwrite) as files:  # both files, or neither
        files[output].write_text(format_document(document), encoding="utf-8")
        if sheet is not None and contact_sheet is not None:
            io.save_picture(sheet, files[contact_sheet], contact_sheet)
    partial.remove()
    _print(document, len(outcome.found), [*targets.skipped, *outcome.skipped], output, contact_sheet)


def _find(
    labels: "Labels",
    targets: list[Path],
    partial: "PartialFile",
    model: str,
    backbone_weights: str,
    device: str,
    search: dict[str, Any],
    overwrite: bool,
) -> "tuple[Outcome, dict[str, Any]]":
    """Find the keypoints with a model; also what describes the model."""
    from chmnet.annotation import describe_run, propagate
    from chmnet.evaluation.predict import describe_model
    from chmnet.matcher import choose_device
    from chmnet.weights import DEFAULT_MODEL, load_model

    network = load_model(model or DEFAULT_MODEL, backbone_weights=backbone_weights)
    facts = describe_model(Path(model or DEFAULT_MODEL).name, network)  # the same from every folder
    partial.start(describe_run(labels, facts, str(choose_device(device)), **search), restart=overwrite)
    outcome = propagate(
        labels, targets, network, partial, lambda remaining: _track(remaining, len(targets)), device, **search
    )
    if not outcome.found:
        if not len(partial):
            partial.remove()
        raise InputError(
            f"none of the {len(targets)} pictures could be used: {_printable(outcome.skipped[0].reason)}"
        )
    return outcome, facts


def _track(remaining: list[Path], total: int) -> Iterator[Path]:
    done = total - len(remaining)
    if done:
        typer.echo(f"resuming: {done} of {total} pictures were done before", err=True)
    return io.track(remaining, "pictures")


def format_document(document: dict[str, Any]) -> str:
    """JSON with one line for each picture, annotation and category.

    Example:
        >>> print(format_document({"info": {"version": "1"}, "images": [{"id": 1}, {"id": 2}]}), end="")
        {
        "info": {"version": "1"},
        "images": [
        {"id": 1},
        {"id": 2}
        ]
        }
    """
    parts = []
    for key, value in document.items():
        lines = [json.dumps(entry, allow_nan=False) for entry in value] if isinstance(value, list) else []
        whole = "[\n" + ",\n".join(lines) + "\n]" if lines else json.dumps(value, allow_nan=False)
        parts.append(f"{json.dumps(key)}: {whole}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _print(
    document: dict[str, Any], done: int, skipped: "list[Skipped]", output: Path, sheet_path: Path | None
) -> None:
    if skipped:
        io.print_table(["skipped"], [[_printable(entry.reason)] for entry in skipped])
    annotations = document["annotations"]
    review = {entry["image_id"] for entry in annotations if entry["needs_review"]}
    doubtful = sum(len(entry["review_keypoints"]) for entry in annotations)
    keypoints = sum(entry["num_keypoints"] for entry in annotations)
    mirrored = {entry["image_id"] for entry in annotations if entry.get("pose", {}).get("mirrored")}
    io.print_table(
        ["pictures", "skipped", "mirrored", "to review", "keypoints", "keypoints to review"],
        [[str(count) for count in (done, len(skipped), len(mirrored), len(review), keypoints, doubtful)]],
    )
    written = ", ".join(_printable(str(path)) for path in (output, sheet_path) if path is not None)
    typer.echo(f"wrote {written}")


def _printable(text: str) -> str:
    """File names that are no Unicode cannot be printed as they are."""
    return text.encode("utf-8", "backslashreplace").decode()
