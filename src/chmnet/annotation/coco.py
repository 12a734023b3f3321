"""Results as COCO keypoints, which annotation tools and pycocotools open."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
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

EDGE_PX = 0.01
"""Points less than this outside a picture are there because of rounding."""

DESCRIPTION = (
    "Keypoints found by chmnet propagate. v = 2: keypoint_confidence is at least minimum_confidence; "
    "v = 1: it is less, or the point was moved in to the picture's edge, please review; "
    "v = 0: no source shows it."
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
    ``score`` (their mean), ``needs_review`` and ``review_keypoints`` (names of the doubtful ones). The box is that
    of the keypoints. File names are relative to the folder of ``output``.

    Args:
        labels: what was propagated.
        found: the results, one a picture.
        output: where the document will be written.
        origin: the model and the threshold.
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
    if include_sources:
        for path in dict.fromkeys(instance.path for instance in labels.instances):
            members = [instance for instance in labels.instances if instance.path == path]
            assert members[0].size is not None, "the labels were not checked"
            image = _add_image(document, path, members[0].size, output)
            for instance in members:
                _add_annotation(document, image, categories[instance.category], _describe_source(instance))
    for result in found:
        image = _add_image(document, result.path, result.size, output)
        for moved in result.objects:
            category = categories[moved.category]
            fields = _describe(moved, result.size, category, origin.minimum_confidence)
            _add_annotation(document, image, category, fields)
    return document


def doubtful_keypoints(moved: Moved, size: Size, minimum_confidence: float) -> np.ndarray:
    """Which keypoints a person should review: not confident, or outside the picture of (height, width).

    Example:
        >>> moved = Moved("cat", np.array([[5.0, 5.0], [5.0, 99.0], [1.0, 1.0]]), np.array([0.9, 0.9, 0.2]))
        >>> doubtful_keypoints(moved, (50, 50), minimum_confidence=0.5).tolist()
        [False, True, True]
    """
    placed = ~np.isnan(moved.points).any(axis=1)
    shift = np.abs(moved.points - clip_points(moved.points, size)).max(axis=1)
    return np.asarray(placed & ((moved.confidence < minimum_confidence) | (shift > EDGE_PX)))


def _describe(moved: Moved, size: Size, category: Category, minimum_confidence: float) -> Json:
    doubtful = doubtful_keypoints(moved, size, minimum_confidence)
    placed = ~np.isnan(moved.points).any(axis=1)
    visibility = np.where(placed, np.where(doubtful, NOT_VISIBLE, VISIBLE), NOT_LABELLED)
    return {
        **_describe_points(clip_points(moved.points, size), visibility, size),
        "score": mean_confidence(moved),
        "keypoint_confidence": moved.confidence.tolist(),
        "needs_review": bool(doubtful.any()),
        "review_keypoints": [
            name for name, review in zip(category.keypoint_names, doubtful, strict=True) if review
        ],
    }


def _describe_source(instance: Instance) -> Json:
    """A labelled object as it was given: certain, and not for review."""
    assert instance.size is not None, "the labels were not checked"
    placed = ~np.isnan(instance.keypoints).any(axis=1)
    return {
        **_describe_points(instance.keypoints, np.where(placed, VISIBLE, NOT_LABELLED), instance.size),
        "score": 1.0,
        "keypoint_confidence": placed.astype(float).tolist(),
        "needs_review": False,
        "review_keypoints": [],
    }


def _describe_points(points: np.ndarray, visibility: np.ndarray, size: Size) -> Json:
    placed = visibility > NOT_LABELLED
    rows = np.where(placed[:, None], points, 0.0).round(POINT_DECIMALS)
    box = _box(rows[placed], size)
    return {
        "keypoints": [
            value for (x, y), v in zip(rows.tolist(), visibility.tolist(), strict=True) for value in (x, y, v)
        ],
        "num_keypoints": int(placed.sum()),
        "bbox": box,
        "area": round(box[2] * box[3], POINT_DECIMALS),
        "iscrowd": 0,
        "segmentation": [],
    }


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
    }


def _add_image(document: Json, path: Path, size: Size, output: Path) -> int:
    height, width = size
    number = len(document["images"]) + 1
    document["images"].append(
        {"id": number, "file_name": _relative(path, output), "width": width, "height": height}
    )
    return number


def _add_annotation(document: Json, image: int, category: Category, fields: Json) -> None:
    number = len(document["annotations"]) + 1
    document["annotations"].append({"id": number, "image_id": image, "category_id": category.identifier, **fields})


def _relative(path: Path, output: Path) -> str:
    """A path as seen from the folder of the output, with forward slashes."""
    folder = os.path.realpath(output.parent)
    picture = Path(os.path.realpath(path.parent), path.name)  # a link to a picture keeps its own name
    try:
        return Path(os.path.relpath(picture, folder)).as_posix()
    except ValueError:  # on another drive
        return picture.as_posix()
