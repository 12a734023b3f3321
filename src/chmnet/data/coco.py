"""Anyone's own pictures, with keypoints in COCO's JSON.

The root is a folder with ``annotations.json`` (or ``annotations_train.json``, ``annotations_val.json``,
``annotations_test.json`` for the splits) and the images, beside it or in ``images/``; or the root is such a
JSON file itself. Pairs are made by :func:`chmnet.data.making_pairs.make_pairs`.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from chmnet.data.making_pairs import Instance, load_made, outside, without_outside
from chmnet.data.pairs import mirrored_rows
from chmnet.data.reading import Entry, OnProblem, find_below, numbers, read_all, read_box, read_json, shorten, stop
from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.pictures import Box, to_picture

SPLITS = ("train", "val", "test")


def load_instances(root: str | Path, split: str = "test", on_problem: OnProblem = stop) -> list[Instance]:
    """The objects with visible keypoints (v > 0); keypoints outside their image are left out."""
    tables = _read_tables(find_annotations(root, split), on_problem)
    found = read_all(tables.annotations, lambda entry: _read_annotation(*entry, tables), on_problem)
    return [without_outside(instance, on_problem) for instance in found if instance is not None]


load = partial(load_made, load_instances)


@dataclasses.dataclass(frozen=True)
class Category:
    """A kind of object and the names of its keypoints."""

    identifier: int
    name: str
    keypoint_names: tuple[str, ...]
    skeleton: tuple[tuple[int, int], ...] = ()
    """Keypoints that a line joins, counted from 1 as in COCO."""
    supercategory: str = ""
    flip: tuple[int, ...] = ()
    """Of each keypoint the row of its counterpart in a mirror, where the file says (``flip_idx``)."""

    def counterparts(self) -> list[int | None]:
        """Of each keypoint the row of its counterpart in a mirror: as the file says, else by the names.

        See :func:`chmnet.data.pairs.mirrored_rows`.

        Example:
            >>> Category(1, "cat", ("left_eye", "right_eye", "nose")).counterparts()
            [1, 0, 2]
            >>> Category(1, "cat", ("a", "b", "c"), flip=(2, 1, 0)).counterparts()
            [2, 1, 0]
        """
        return list(self.flip) if self.flip else mirrored_rows(self.keypoint_names)


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """Annotated pictures, checked one by one: their files open, and every keypoint lies in its picture."""

    file: Path
    categories: tuple[Category, ...]
    """Those that have annotations, in the file's order; no two have one name."""
    instances: tuple[Instance, ...]
    """In the file's order; ``size`` is that of the picture as seen."""

    def of(self, category: Category) -> list[Instance]:
        """The annotated objects of a category."""
        return [instance for instance in self.instances if instance.category == category.name]


def load_labels(file: str | Path, images_root: str | Path | None = None, categories: Sequence[str] = ()) -> Labels:
    """Read a file of COCO keypoints strictly: every picture is opened, and a wrong label is an error.

    :func:`load_instances` leaves out keypoints outside of their image instead.

    Args:
        file: a JSON file; crowds and objects without keypoints are skipped.
        images_root: where the pictures lie; ``None``: beside the file, or in ``images/``. File names may lead
            anywhere from there, as in files that :mod:`chmnet.annotation` writes.
        categories: names of the categories wanted; none: all.

    Raises:
        InputError: something is missing, broken, or contradicts the pictures; the message names file and entry.
    """
    file = Path(file)
    if file.is_dir():
        raise InputError(f"{file} is a folder; name a file of COCO keypoints")
    if images_root is not None and not Path(images_root).is_dir():
        raise InputError(f"there is no folder {images_root}; name the folder that holds the labelled pictures")
    folders = (file.parent, file.parent / "images") if images_root is None else (Path(images_root),)
    tables = dataclasses.replace(_read_tables(file, stop), folders=folders, anywhere=True)
    _check_annotation_ids(tables)
    wanted = _choose_categories(tables, categories)
    others = tables.categories.keys() - wanted
    read = (
        _read_annotation(index, entry, tables)
        for index, entry in tables.annotations
        if not (isinstance(entry, dict) and repr(entry.get("category_id")) in map(repr, others))
    )
    instances = tuple(_check_picture(instance) for instance in read if instance is not None)
    if not instances:
        which = f" of {' or '.join(map(shorten, categories))}" if categories else ""
        raise InputError(f"{file} has no annotation{which} with a visible keypoint (v > 0); label a picture first")
    found = {instance.category for instance in instances}
    used = [entry for key, entry in tables.categories.items() if key in wanted and entry.values["name"] in found]
    return Labels(file, tuple(map(_read_category, used)), instances)


@dataclasses.dataclass(frozen=True)
class BoxEntry:
    """A box that a file has for a picture."""

    file_name: str
    """Of the picture, as the file writes it."""
    box: Box
    category: str | None
    """Name of its category; ``None``: the file does not say."""
    size: Size | None
    """(height, width) of the picture, if the file says it."""
    origin: str
    """File and entry, for messages."""


def load_boxes(file: str | Path) -> list[BoxEntry]:
    """The boxes (``bbox``) of a COCO file, in its order; it needs neither keypoints nor categories.

    Annotations without a box, and crowds, are skipped.

    Raises:
        InputError: the file is missing or broken, or has no box; the message names file and entry.
    """
    file = Path(file)
    if file.is_dir():
        raise InputError(f"{file} is a folder; name a COCO file with boxes")
    document = read_json(file)
    images = _by_id(document, "images", "image", stop)
    categories = _by_id(document, "categories", "category", stop) if "categories" in document else {}
    boxes = []
    for index, value in enumerate(document.get("annotations", list), start=1):
        entry = Entry.of(value, f"{file}: annotations entry {index}")
        if "bbox" not in entry or entry.values.get("iscrowd") == 1:
            continue
        named = bool(categories) and "category_id" in entry
        category = _refer(entry, "category", categories).get("name", str) if named else None
        image = _refer(entry, "image", images)
        boxes.append(BoxEntry(image.get("file_name", str), _read_box(entry), category, _size(image), entry.origin))
    if not boxes:
        raise InputError(f"{file} has no annotation with a box ('bbox'); draw one, or leave the file out")
    return boxes


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


@dataclasses.dataclass(frozen=True)
class _Tables:
    """The parts of a file, and where its pictures are looked for."""

    file: Path
    images: dict[int, Entry]
    categories: dict[int, Entry]
    annotations: list[tuple[int, object]]
    """Numbered from 1."""
    folders: tuple[Path, ...]
    anywhere: bool = False
    """Whether file names may lead out of the folders."""


def _read_tables(file: Path, on_problem: OnProblem) -> _Tables:
    document = read_json(file)
    return _Tables(
        file,
        _by_id(document, "images", "image", on_problem),
        _by_id(document, "categories", "category", on_problem),
        list(enumerate(document.get("annotations", list), start=1)),
        (file.parent, file.parent / "images"),
    )


def _by_id(document: Entry, key: str, what: str, on_problem: OnProblem) -> dict[int, Entry]:
    seen: dict[int, int] = {}

    def read(item: tuple[int, object]) -> tuple[int, Entry]:
        number, value = item
        entry = Entry.of(value, f"{document.origin}: {key} entry {number}")
        identifier = entry.get("id", int)
        if seen.setdefault(identifier, number) != number:
            raise InputError(f"{entry.origin}: entry {seen[identifier]} has the id {identifier} too")
        return identifier, Entry(entry.values, f"{document.origin}: {what} {identifier}")

    return dict(read_all(enumerate(document.get(key, list), start=1), read, on_problem))


def _check_annotation_ids(tables: _Tables) -> None:
    entries = [entry for _, entry in tables.annotations if isinstance(entry, dict) and "id" in entry]
    for identifier, number in Counter(repr(entry["id"]) for entry in entries).most_common(1):
        if number > 1:
            raise InputError(f"{tables.file}: {number} annotations have the id {identifier}; ids must differ")


def _choose_categories(tables: _Tables, names: Sequence[str]) -> set[int]:
    """Ids of the categories that are wanted."""
    known = {identifier: entry.get("name", str) for identifier, entry in tables.categories.items()}
    for name in names:
        if name not in known.values():
            there = ", ".join(map(shorten, known.values())) or "none"
            raise InputError(f"{tables.file} has no category {shorten(name)}; it has {there}")
    wanted = {identifier for identifier, name in known.items() if not names or name in names}
    twice = [name for name, number in Counter(known[identifier] for identifier in wanted).items() if number > 1]
    if twice:
        raise InputError(f"{tables.file}: two categories have the name {shorten(twice[0])}; names must differ")
    return wanted


def _read_category(entry: Entry) -> Category:
    names = entry.names("keypoints")
    skeleton = []
    ends = range(1, len(names) + 1)
    for bone in entry.get("skeleton", list) if entry.values.get("skeleton") else []:
        if not isinstance(bone, list) or len(bone) != 2 or not all(end in ends for end in bone):
            text = f"each line of 'skeleton' must join two of 1 … {len(names)}, got {shorten(bone)}"
            raise InputError(f"{entry.origin}: {text}")
        skeleton.append((int(bone[0]), int(bone[1])))
    group = entry.values.get("supercategory")
    group = group if isinstance(group, str) else ""
    flip = _read_flip(entry, len(names))
    return Category(entry.get("id", int), entry.get("name", str), names, tuple(skeleton), group, flip)


def _read_flip(entry: Entry, count: int) -> tuple[int, ...]:
    """The rows that a mirror exchanges, counted from 0; empty where the file does not say."""
    rows = entry.get("flip_idx", list) if entry.values.get("flip_idx") else []
    whole = all(type(row) is int and 0 <= row < count for row in rows)
    if rows and not (whole and len(rows) == count and all(rows[row] == each for each, row in enumerate(rows))):
        text = f"'flip_idx' must exchange the rows 0 … {count - 1} in pairs, got {shorten(rows)}"
        raise InputError(f"{entry.origin}: {text}")
    return tuple(rows)


def _check_picture(instance: Instance) -> Instance:
    """The instance with the size of its picture, if that agrees with the file and holds every keypoint."""
    picture = to_picture(instance.path)
    size = picture.height, picture.width
    if instance.size not in (None, size):
        height, width = instance.size or size
        raise InputError(
            f"{instance.origin}, its image: the file says {width}×{height} pixels, but {instance.path} has "
            f"{size[1]}×{size[0]} as seen (upright); keypoints must be in its pixels"
        )
    for index in np.flatnonzero(outside(instance.keypoints, size)):
        x, y = instance.keypoints[index]
        raise InputError(
            f"{instance.origin}: {instance.keypoint_names[index]} at ({x:g}, {y:g}) lies outside the picture "
            f"of {size[1]}×{size[0]} pixels; move it, or give it v = 0"
        )
    return dataclasses.replace(instance, size=size)


def _read_annotation(index: int, value: object, tables: _Tables) -> Instance | None:
    """One object; ``None`` if it has no keypoints, or is a crowd."""
    origin = f"{tables.file}: annotations entry {index}"
    entry = Entry.of(value, origin)
    if "keypoints" not in entry or entry.values.get("iscrowd") == 1:
        return None
    category = _refer(entry, "category", tables.categories)
    image = _refer(entry, "image", tables.images)
    names = category.names("keypoints")
    keypoints = _read_keypoints(entry.get("keypoints", list), len(names), origin)
    if np.isnan(keypoints).all():
        return None
    path = find_below(tables.folders, image.get("file_name", str), "image", origin, tables.anywhere)
    return Instance(
        name=f"{path.stem}.{index}",
        category=category.get("name", str),
        path=path,
        keypoints=keypoints,
        keypoint_names=names,
        box=_read_box(entry) if "bbox" in entry else None,
        size=_size(image),
        origin=origin,
    )


def _size(image: Entry) -> Size | None:
    """(height, width) of an image, if the file says it."""
    sized = "width" in image and "height" in image
    return (image.get("height", int), image.get("width", int)) if sized else None


def _refer(entry: Entry, what: str, known: dict[int, Entry]) -> Entry:
    identifier = entry.get(f"{what}_id", int)
    if identifier not in known:
        raise InputError(f"{entry.origin}: there is no {what} with the id {identifier}")
    return Entry(known[identifier].values, f"{entry.origin}, its {what}")


def _read_keypoints(values: list[object], count: int, origin: str) -> np.ndarray:
    """COCO's x, y, v of each keypoint in one list; v = 0 is a part without a place."""
    if len(values) != 3 * count:
        raise InputError(
            f"{origin}: 'keypoints' must have {3 * count} numbers (x, y, v of {count}), got {len(values)}"
        )
    rows = np.reshape(numbers(values, "'keypoints'", origin), (count, 3))
    return np.where(rows[:, 2:] > 0, rows[:, :2], np.nan)


def _read_box(entry: Entry) -> Box:
    """COCO's left, top, width, height."""
    values = numbers(entry.get("bbox", list), "'bbox'", entry.origin)
    if len(values) != 4:
        raise InputError(f"{entry.origin}: 'bbox' has 4 numbers, got {len(values)}")
    left, top, width, height = values
    return read_box([left, top, left + width, top + height], entry.origin)
