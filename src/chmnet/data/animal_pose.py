"""Animal-Pose (Cao et al., 2019), the part in VOC photographs: dogs, cats, sheep, horses, cows, 20 keypoints.

There is no official list of pairs: they are made by :func:`chmnet.data.making_pairs.make_pairs`. Photographs of
PF-PASCAL's test list are the test split here and never training data; those of its validation list belong to
the validation split, with a tenth of the rest.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from chmnet.data import reading
from chmnet.data.making_pairs import Instance, load_made, without_outside
from chmnet.data.reading import Entry, OnProblem, dataset_folder, find_below, numbers, read_all, read_json, stop
from chmnet.errors import InputError
from chmnet.geometry import Size

FOLDER = "AnimalPose_VOC"
ANNOTATIONS = "keypoints_320px.json"
SPLITS = ("train", "val", "test")
CATEGORIES = frozenset({"cat", "cow", "dog", "horse", "sheep"})
VALIDATION_SHARE = 0.1


def load_instances(root: str | Path, split: str = "test", on_problem: OnProblem = stop) -> list[Instance]:
    """The animals of a split; keypoints outside their image are left out."""
    folder = dataset_folder(root, FOLDER)
    document = read_json(folder / ANNOTATIONS)
    names = tuple(document.each("kp_names", str))
    entries = document.get("images", dict)
    images = read_all(entries.items(), lambda entry: _read_image(*entry, document.origin), on_problem)
    chosen = set(split_images({image.name: image.pf_pascal for image in images})[split])
    numbered = [
        (image, index, value)
        for image in images
        if image.name in chosen
        for index, value in enumerate(image.instances, start=1)
    ]
    instances = read_all(numbered, lambda item: _read_instance(*item, names, folder), on_problem)
    return [without_outside(instance, on_problem) for instance in instances]


load = partial(load_made, load_instances)


def split_images(pf_pascal: dict[str, list[str]]) -> dict[str, list[str]]:
    """Which images are of which split, given the PF-PASCAL splits that each occurs in.

    Example:
        >>> split_images({"1.jpg": ["trn", "test"], "2.jpg": ["val"], "3.jpg": [], "4.jpg": ["trn"]})
        {'train': ['3.jpg', '4.jpg'], 'val': ['2.jpg'], 'test': ['1.jpg']}
    """
    test = [image for image in sorted(pf_pascal) if "test" in pf_pascal[image]]
    val = [image for image in sorted(pf_pascal) if "val" in pf_pascal[image] and image not in set(test)]
    rest = sorted(set(pf_pascal) - set(test) - set(val))
    # A fixed seed: were it an option, a validation image of one run would be a training image of the next.
    order = np.random.default_rng(0).permutation(len(rest))
    held_out = {rest[index] for index in order[: int(VALIDATION_SHARE * len(rest))]}
    train = [image for image in rest if image not in held_out]
    return {"train": train, "val": sorted({*val, *held_out}), "test": test}


class _Image(NamedTuple):
    name: str
    origin: str
    size: Size
    pf_pascal: list[str]
    instances: list[object]


def _read_image(name: str, value: object, file: str) -> _Image:
    entry = Entry.of(value, f"{file}: {name}")
    size = numbers(entry.get("size", list), "'size'", entry.origin)
    if len(size) != 2 or min(size) < 1:
        raise InputError(
            f"{entry.origin}: 'size' must be [width, height], got {reading.shorten(entry.values['size'])}"
        )
    splits, instances = entry.each("pfpascal", str), entry.get("instances", list)
    return _Image(name, entry.origin, (int(size[1]), int(size[0])), splits, instances)


def _read_instance(image: _Image, index: int, value: object, names: tuple[str, ...], folder: Path) -> Instance:
    origin = f"{image.origin}, instance {index}"
    entry = Entry.of(value, origin)
    path = find_below([folder / "JPEGImages"], image.name, "image", origin)
    rows = entry.get("kps", list)
    if len(rows) != len(names):
        raise InputError(f"{origin}: {len(rows)} keypoints, but there are {len(names)} names of keypoints")
    return Instance(
        name=f"{path.stem}.{index}",
        category=entry.get("category", str),
        path=path,
        keypoints=_read_keypoints(rows, origin),
        keypoint_names=names,
        box=entry.box("bbox"),
        size=image.size,
        origin=origin,
    )


def _read_keypoints(rows: list[object], origin: str) -> np.ndarray:
    """[x, y] each; null, for a part that cannot be seen, becomes NaN."""
    wrong = [row for row in rows if row is not None and not (isinstance(row, list) and len(row) == 2)]
    if wrong:
        raise InputError(f"{origin}: a keypoint must be [x, y] or null, got {reading.shorten(wrong[0])}")
    keypoints = np.full((len(rows), 2), np.nan)
    visible = [row for row in rows if isinstance(row, list)]
    seen = [row is not None for row in rows]
    keypoints[seen] = np.reshape(numbers([value for row in visible for value in row], "'kps'", origin), (-1, 2))
    return keypoints
