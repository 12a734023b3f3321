"""SPair-71k (Min et al., 2019): 70,958 pairs in eighteen categories, with boxes, masks and difficulty flags."""

from pathlib import Path

from chmnet.data import reading
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.data.reading import Entry, OnProblem, dataset_folder, find_below, read_json, read_pairs, stop
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

    Masks are given where the folder ``Segmentation`` was unpacked, and then every image must have one. Difficulty
    flags are given where the file of a pair has them.

    Raises:
        InputError: a file is missing or broken; the message names the file and the line.
    """
    folder = dataset_folder(root, FOLDER)
    if layout not in LAYOUTS:
        raise InputError(f"SPair-71k has no layout {layout!r}; it has {' and '.join(LAYOUTS)}")
    short_split = SPLIT_NAMES[split]
    path = folder / "Layout" / layout / f"{short_split}.txt"
    lines = [(number, line.strip()) for number, line in enumerate(reading.read_text(path).splitlines(), start=1)]
    named = [(name, f"{path} line {number}") for number, name in lines if name]
    if not named:
        raise InputError(f"{path} lists no pairs")
    return read_pairs(named, lambda item: _read_pair(*item, folder, short_split), on_problem)


def _read_pair(name: str, origin: str, folder: Path, short_split: str) -> Pair:
    annotations = folder / "PairAnnotation" / short_split
    file = find_below([annotations], f"{name}.json", "annotation", origin)
    origin = f"{origin}, {file}"
    entry = Entry(read_json(file).values, origin)
    category = entry.get("category", str)
    if not name.endswith(f":{category}"):
        raise InputError(f"{origin}: the category {category!r} is not the one in the pair's name")
    source, target = (_read_side(entry, side, category, folder) for side in ("src", "trg"))
    reading.check_same_number(source.keypoints, target.keypoints, origin)
    names = entry.names("kps_ids") if "kps_ids" in entry else ()
    if "kps_ids" in entry and len(names) != len(source.keypoints):
        raise InputError(f"{origin}: {len(names)} kps_ids for {len(source.keypoints)} keypoints")
    flags = {flag: entry.get(key, int) for flag, key in FLAGS.items() if key in entry}
    for flag, value in flags.items():
        if value not in range(4):
            raise InputError(f"{origin}: {FLAGS[flag]} must be 0, 1, 2 or 3, got {value}")
    return Pair(name, category, source, target, names, flags, origin)


def _read_side(entry: Entry, side: str, category: str, folder: Path) -> AnnotatedImage:
    name, masks = entry.get(f"{side}_imname", str), folder / "Segmentation"
    path = find_below([folder / "JPEGImages"], f"{category}/{name}", "image", entry.origin)
    return AnnotatedImage(
        path=path,
        keypoints=entry.points(f"{side}_kps"),
        box=entry.box(f"{side}_bndbox"),
        mask=find_below([masks], f"{category}/{path.stem}.png", "mask", entry.origin) if masks.is_dir() else None,
    )
