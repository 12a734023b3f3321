"""Anyone's own pictures, with keypoints in COCO's JSON.

The root is a folder with ``annotations.json`` (or ``annotations_train.json``, ``annotations_val.json``,
``annotations_test.json`` for the splits) and the images, beside it or in ``images/``; or the root is such a
JSON file itself. Pairs are made by :func:`chmnet.data.making_pairs.make_pairs`.
"""

import dataclasses
from pathlib import Path

import numpy as np

from chmnet.data.making_pairs import Instance, make_pairs, without_outside
from chmnet.data.pairs import Box, Pair
from chmnet.data.reading import (
    OnProblem,
    expect,
    field,
    find_below,
    numbers,
    read_all,
    read_box,
    read_json,
    stop,
)
from chmnet.errors import InputError
from chmnet.geometry import Size

SPLITS = ("train", "val", "test")
JsonObject = dict[str, object]


def load(
    root: str | Path,
    split: str = "test",
    minimum_common: int = 3,
    maximum_pairs: int = 1000,
    seed: int = 0,
    on_problem: OnProblem = stop,
) -> list[Pair]:
    """Pairs made between the images of one annotation file.

    Raises:
        InputError: a file is missing or broken; the message names the file and the entry.
    """
    return make_pairs(load_instances(root, split, on_problem), minimum_common, maximum_pairs, seed)


def load_instances(root: str | Path, split: str = "test", on_problem: OnProblem = stop) -> list[Instance]:
    """The objects with visible keypoints (v > 0); keypoints outside their image are left out."""
    file = find_annotations(root, split)
    document = read_json(file)
    images = _by_id(document, "images", file, on_problem)
    categories = _by_id(document, "categories", file, on_problem)
    entries = enumerate(field(document, "annotations", list, str(file)), start=1)
    found = read_all(entries, lambda entry: _read_annotation(*entry, images, categories, file), on_problem)
    instances = [instance for instance in found if instance is not None]
    return [dataclasses.replace(one, keypoints=without_outside(one, on_problem)) for one in instances]


def find_annotations(root: str | Path, split: str) -> Path:
    """The annotation file of a split; a single ``annotations.json`` is a test split.

    Raises:
        InputError: there is none.
    """
    root = Path(root)
    if root.is_file():
        return root
    if not root.is_dir():
        raise InputError(f"there is no folder {root}; name the folder that holds annotations.json")
    names = [f"annotations_{split}.json"] + (["annotations.json"] if split == "test" else [])
    found = next((root / name for name in names if (root / name).is_file()), None)
    if found is None:
        held = ", ".join(sorted(path.name for path in root.glob("*.json"))) or "no JSON file"
        raise InputError(f"there is no {' or '.join(names)} in {root}; it holds {held}")
    return found


def _by_id(document: JsonObject, key: str, file: Path, on_problem: OnProblem) -> dict[int, JsonObject]:
    def read(entry: tuple[int, object]) -> tuple[int, JsonObject]:
        origin = f"{file}: {key} entry {entry[0]}"
        values = expect(entry[1], dict, "the entry", origin)
        return field(values, "id", int, origin), values

    return dict(read_all(enumerate(field(document, key, list, str(file)), start=1), read, on_problem))


def _read_annotation(
    index: int, value: object, images: dict[int, JsonObject], categories: dict[int, JsonObject], file: Path
) -> Instance | None:
    """One object; ``None`` if it has no keypoints, or is a crowd."""
    origin = f"{file}: annotations entry {index}"
    entry = expect(value, dict, "the entry", origin)
    if "keypoints" not in entry or entry.get("iscrowd") == 1:
        return None
    category = _refer(entry, "category_id", categories, "category", origin)
    image = _refer(entry, "image_id", images, "image", origin)
    names = tuple(str(name) for name in field(category, "keypoints", list, f"{origin}, its category"))
    keypoints = _read_keypoints(field(entry, "keypoints", list, origin), len(names), origin)
    if np.isnan(keypoints).all():
        return None
    file_name = field(image, "file_name", str, f"{origin}, its image")
    path = find_below([file.parent, file.parent / "images"], file_name, "image", origin)
    return Instance(
        name=f"{path.stem}.{index}",
        category=field(category, "name", str, f"{origin}, its category"),
        path=path,
        keypoints=keypoints,
        keypoint_names=names,
        box=_read_box(entry, origin),
        size=_read_size(image, f"{origin}, its image"),
        origin=origin,
    )


def _refer(entry: JsonObject, key: str, known: dict[int, JsonObject], what: str, origin: str) -> JsonObject:
    identifier = field(entry, key, int, origin)
    if identifier not in known:
        raise InputError(f"{origin}: there is no {what} with the id {identifier}")
    return known[identifier]


def _read_keypoints(values: list[object], count: int, origin: str) -> np.ndarray:
    """COCO's x, y, v of each keypoint in one list; v = 0 is a part without a place."""
    if len(values) != 3 * count:
        raise InputError(
            f"{origin}: 'keypoints' must have {3 * count} numbers (x, y, v of {count}), got {len(values)}"
        )
    rows = np.reshape(numbers(values, "'keypoints'", origin), (count, 3))
    return np.where(rows[:, 2:] > 0, rows[:, :2], np.nan)


def _read_box(entry: JsonObject, origin: str) -> Box | None:
    """COCO's left, top, width, height."""
    if "bbox" not in entry:
        return None
    values = numbers(field(entry, "bbox", list, origin), "'bbox'", origin)
    if len(values) != 4:
        raise InputError(f"{origin}: 'bbox' has 4 numbers, got {len(values)}")
    left, top, width, height = values
    return read_box([left, top, left + width, top + height], origin)


def _read_size(image: JsonObject, origin: str) -> Size | None:
    if "width" not in image or "height" not in image:
        return None
    return field(image, "height", int, origin), field(image, "width", int, origin)
