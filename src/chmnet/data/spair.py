"""SPair-71k (Min et al., 2019): 70,958 pairs in eighteen categories, with boxes, masks and difficulty flags."""

from pathlib import Path

from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.data.reading import (
    OnProblem,
    check_same_number,
    dataset_folder,
    field,
    find_below,
    read_all,
    read_box,
    read_json,
    read_rows,
    read_text,
    stop,
    with_unique_names,
)
from chmnet.errors import InputError

FOLDER = "SPair-71k"
SPLIT_NAMES = {"train": "trn", "val": "val", "test": "test"}
SPLITS = tuple(SPLIT_NAMES)
LAYOUTS = ("large", "small")
CATEGORIES = frozenset(
    {
        *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "dog", "horse"),
        *("motorbike", "person", "pottedplant", "sheep", "train", "tvmonitor"),
    }
)
FLAGS = {
    "viewpoint": "viewpoint_variation",
    "scale": "scale_variation",
    "truncation": "truncation",
    "occlusion": "occlusion",
}
"""Our name of each flag and the file's. Viewpoint and scale: 0 easy, 1 medium, 2 hard. Truncation and
occlusion: 0 none, 1 source, 2 target, 3 both."""


def load(root: str | Path, split: str = "test", layout: str = "large", on_problem: OnProblem = stop) -> list[Pair]:
    """The pairs listed in ``root/SPair-71k/Layout/<layout>/<split>.txt``.

    Masks are given where the folder ``Segmentation`` was unpacked, and then every image must have one.

    Raises:
        InputError: a file is missing or broken; the message names the file and the line.
    """
    folder = dataset_folder(root, FOLDER)
    if layout not in LAYOUTS:
        raise InputError(f"SPair-71k has no layout {layout!r}; it has {' and '.join(LAYOUTS)}")
    short_split = SPLIT_NAMES[split]
    path = folder / "Layout" / layout / f"{short_split}.txt"
    lines = [(number, line.strip()) for number, line in enumerate(read_text(path).splitlines(), start=1)]
    named = [(name, f"{path} line {number}") for number, name in lines if name]
    if not named:
        raise InputError(f"{path} lists no pairs")
    return with_unique_names(read_all(named, lambda item: _read_pair(*item, folder, short_split), on_problem))


def _read_pair(name: str, origin: str, folder: Path, short_split: str) -> Pair:
    annotations = folder / "PairAnnotation" / short_split
    file = find_below([annotations], f"{name}.json", "annotation", origin)
    origin = f"{origin}, {file}"
    document = read_json(file)
    category = field(document, "category", str, origin)
    if not name.endswith(f":{category}"):
        raise InputError(f"{origin}: the category {category!r} is not the one in the pair's name")
    source, target = (_read_side(document, side, category, folder, origin) for side in ("src", "trg"))
    check_same_number(source.keypoints, target.keypoints, origin)
    names = _read_names(document, len(source.keypoints), origin)
    # A part of the data set may come without them: what is not given is not known.
    flags = {flag: _read_flag(document, key, origin) for flag, key in FLAGS.items() if key in document}
    return Pair(name, category, source, target, names, flags, origin)


def _read_side(document: dict[str, object], side: str, category: str, folder: Path, origin: str) -> AnnotatedImage:
    name = field(document, f"{side}_imname", str, origin)
    path = find_below([folder / "JPEGImages"], f"{category}/{name}", "image", origin)
    masks = folder / "Segmentation"
    return AnnotatedImage(
        path=path,
        keypoints=read_rows(field(document, f"{side}_kps", list, origin), f"{side}_kps", origin),
        box=read_box(field(document, f"{side}_bndbox", list, origin), origin),
        mask=find_below([masks], f"{category}/{path.stem}.png", "mask", origin) if masks.is_dir() else None,
    )


def _read_names(document: dict[str, object], count: int, origin: str) -> tuple[str, ...]:
    """The keypoints' identifiers, where the file has them."""
    if "kps_ids" not in document:
        return ()
    names = tuple(str(identifier) for identifier in field(document, "kps_ids", list, origin))
    if len(names) != count:
        raise InputError(f"{origin}: {len(names)} kps_ids for {count} keypoints")
    return names


def _read_flag(document: dict[str, object], key: str, origin: str) -> int:
    value = field(document, key, int, origin)
    if value not in range(4):
        raise InputError(f"{origin}: {key} must be 0, 1, 2 or 3, got {value}")
    return value
