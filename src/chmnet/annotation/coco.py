"""Results as COCO keypoints, which annotation tools and pycocotools open."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from chmnet import __version__
from chmnet.annotation.records import POINT_DECIMALS, Moved, Propagated, mean_confidence
from chmnet.data.coco import Category, Labels
from chmnet.data.making_pairs import Instance
from chmnet.geometry import Size, clip_points

VISIBLE, NOT_VISIBLE, NOT_LABELLED = 2, 1, 0
"""COCO's v. Here: confident, to be reviewed, and shown by no source."""

HIDDEN = 0.5
"""Keypoints with a higher probability of having no place in the picture are to be reviewed."""

BACKGROUND = 0.1
"""Keypoints that lie on a thing with a lower probability are to be reviewed."""

EDGE_PX = 0.01
"""Points less than this outside a picture are there because of rounding."""

DESCRIPTION = (
    "Keypoints found by chmnet propagate. v = 2: keypoint_confidence is at least minimum_confidence; "
    "v = 1: it is less, or the point was moved in to the picture's edge, or it has no place in the picture "
    "(keypoint_unmatched, a probability), or it lies on the background (keypoint_foreground, a probability), "
    "please review; "
    "v = 0: no source shows it. "
    "source_images: the labelled pictures that the keypoints come from, the best first; "
    "pose: how the picture was seen beside that one. Where it was mirrored, left and right are exchanged by name."
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Origin:
    """Where results come from, for the file's ``info``."""

    model: str
    weights_sha256: str
    minimum_confidence: float


def to_coco(
    labels: Labels, found: Sequence[Propagated], output: Path, origin: Origin, include_sources: bool = False
) -> Json:
    """A COCO keypoints document.

    Each annotation has COCO's own fields and, for the review, ``keypoint_confidence`` (one number a keypoint),
    ``keypoint_unmatched`` (the probability that it is not to be seen; ``null``: not known),
    ``keypoint_foreground`` (that it lies on a thing; likewise), ``score`` (the mean confidence), ``needs_review``
    and ``review_keypoints`` (names of the doubtful ones).
    ``source_images`` are the labelled pictures that it comes from, the best first, and ``pose`` says how the
    picture was matched with that one: ``mirrored``, ``turn`` (degrees), ``probability`` (``null``: no other was
    tried). The box is the one that a person gave, else that of the keypoints. File names are relative to the
    folder of ``output``.

    Args:
        labels: what was propagated.
        found: the results, one a picture.
        output: where the document will be written.
        include_sources: whether the labelled pictures come first, with their own annotations.
    """
    document: Json = {
        "info": {
            "description": DESCRIPTION,
            "version": __version__,
            "model": origin.model,
            "model_sha256": origin.weights_sha256,
            "labels": labels.file.name,
            "sources": sorted({_relative(instance.path, output) for instance in labels.instances}),
            "minimum_confidence": origin.minimum_confidence,
        },
        "licenses": [],
        "images": [],
        "annotations": [],
        "categories": [_describe_category(category) for category in labels.categories],
    }
    categories = {category.name: category for category in labels.categories}
    for result in [*(_as_given(labels) if include_sources else ()), *found]:
        (height, width), image = result.size, len(document["images"]) + 1
        name = _relative(result.path, output)
        document["images"].append({"id": image, "file_name": name, "width": width, "height": height})
        for moved in result.objects:
            category, number = categories[moved.category], len(document["annotations"]) + 1
            fields = _describe(moved, result.size, category, origin.minimum_confidence)
            place = {"id": number, "image_id": image, "category_id": category.identifier}
            document["annotations"].append(place | fields | _describe_origin(moved, labels.of(category), output))
    return document


def doubtful_keypoints(moved: Moved, size: Size, minimum_confidence: float) -> np.ndarray:
    """Which keypoints a person should review: not confident, hidden, on the background, or outside the picture.

    Example:
        >>> moved = Moved("cat", np.array([[5.0, 5.0], [5.0, 99.0], [1.0, 1.0]]), np.array([0.9, 0.9, 0.2]))
        >>> doubtful_keypoints(moved, (50, 50), minimum_confidence=0.5).tolist()
        [False, True, True]
    """
    placed = ~np.isnan(moved.points).any(axis=1)
    shift = np.abs(moved.points - clip_points(moved.points, size)).max(axis=1)
    hidden = False if moved.unmatched is None else moved.unmatched > HIDDEN
    beside = False if moved.foreground is None else moved.foreground < BACKGROUND
    return np.asarray(placed & ((moved.confidence < minimum_confidence) | (shift > EDGE_PX) | hidden | beside))


def _describe(moved: Moved, size: Size, category: Category, minimum_confidence: float) -> Json:
    doubtful = doubtful_keypoints(moved, size, minimum_confidence)
    placed = ~np.isnan(moved.points).any(axis=1)
    visibility = np.where(placed, np.where(doubtful, NOT_VISIBLE, VISIBLE), NOT_LABELLED)
    rows = np.where(placed[:, None], clip_points(moved.points, size), 0.0).round(POINT_DECIMALS)
    box = _box(rows[placed] if moved.box is None else clip_points(np.reshape(moved.box, (2, 2)), size), size)
    return {
        "keypoints": [
            value for point, v in zip(rows.tolist(), visibility.tolist(), strict=True) for value in (*point, v)
        ],
        "num_keypoints": int(placed.sum()),
        "bbox": box,
        "area": round(box[2] * box[3], POINT_DECIMALS),
        "iscrowd": 0,
        "segmentation": [],
        "score": mean_confidence(moved),
        "keypoint_confidence": moved.confidence.tolist(),
        "keypoint_unmatched": None if moved.unmatched is None else moved.unmatched.tolist(),
        "keypoint_foreground": None if moved.foreground is None else moved.foreground.tolist(),
        "needs_review": bool(doubtful.any()),
        "review_keypoints": list(compress(category.keypoint_names, doubtful)),
    }


def _describe_origin(moved: Moved, instances: Sequence[Instance], output: Path) -> Json:
    """Which labelled pictures keypoints come from; nothing where a person labelled them."""
    if not moved.sources:
        return {}
    paths = dict.fromkeys(_relative(instances[number].path, output) for number in moved.sources)
    return {"source_images": list(paths), "pose": moved.pose._asdict()}


def _as_given(labels: Labels) -> list[Propagated]:
    """The labelled pictures as if they had been found, with full confidence."""
    given: dict[Path, Propagated] = {}
    for instance in labels.instances:
        assert instance.size is not None, "the labels were not checked"
        confidence = (~np.isnan(instance.keypoints).any(axis=1)).astype(np.float64)
        picture = given.setdefault(instance.path, Propagated(instance.path, instance.size, []))
        picture.objects.append(Moved(instance.category, instance.keypoints, confidence, box=instance.box))
    return list(given.values())


def _box(points: np.ndarray, size: Size) -> list[float]:
    """Left, top, width, height; at least one pixel wide and high, as one point alone would have no box."""
    height, width = size
    limits = np.array([width, height], dtype=np.float64)
    corner, end = points.min(axis=0), points.max(axis=0)
    extent = np.maximum(end - corner, np.minimum(1.0, limits))
    corner = np.minimum(corner, limits - extent)
    return [round(float(value), POINT_DECIMALS) for value in (*corner, *extent)]


def _describe_category(category: Category) -> Json:
    return {
        "id": category.identifier,
        "name": category.name,
        "supercategory": category.supercategory,
        "keypoints": list(category.keypoint_names),
        "skeleton": [list(bone) for bone in category.skeleton],
    } | ({"flip_idx": list(category.flip)} if category.flip else {})


def _relative(path: Path, output: Path) -> str:
    """A path as seen from the folder of the output, with forward slashes."""
    folder = os.path.realpath(output.parent)
    picture = Path(os.path.realpath(path.parent), path.name)  # a link to a picture keeps its own name
    try:
        return Path(os.path.relpath(picture, folder)).as_posix()
    except ValueError:  # on another drive
        return picture.as_posix()
