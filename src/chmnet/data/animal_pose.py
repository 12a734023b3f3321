"""Animal-Pose (Cao et al., 2019), the part in VOC photographs: dogs, cats, sheep, horses, cows, 20 keypoints.

There is no official list of pairs: they are made by :func:`chmnet.data.making_pairs.make_pairs`. Photographs of
PF-PASCAL's test list are the test split here and never training data; those of its validation list belong to
the validation split, with a tenth of the rest.
"""

import dataclasses
from pathlib import Path

import numpy as np

from chmnet.data.making_pairs import Instance, make_pairs, without_outside
from chmnet.data.pairs import Pair
from chmnet.data.reading import (
    OnProblem,
    dataset_folder,
    expect,
    field,
    find_below,
    numbers,
    read_all,
    read_box,
    read_json,
    shorten,
    stop,
)
from chmnet.errors import InputError
from chmnet.geometry import Size

FOLDER = "AnimalPose_VOC"
ANNOTATIONS = "keypoints_320px.json"
SPLITS = ("train", "val", "test")
CATEGORIES = frozenset({"cat", "cow", "dog", "horse", "sheep"})
VALIDATION_SHARE = 0.1


def load(
    root: str | Path,
    split: str = "test",
    minimum_common: int = 3,
    maximum_pairs: int = 1000,
    seed: int = 0,
    on_problem: OnProblem = stop,
) -> list[Pair]:
    """Pairs made between the images of a split; ``seed`` chooses the pairs, never the split.

    Raises:
        InputError: a file is missing or broken; the message names the file and the entry.
    """
    return make_pairs(load_instances(root, split, on_problem), minimum_common, maximum_pairs, seed)


def load_instances(root: str | Path, split: str = "test", on_problem: OnProblem = stop) -> list[Instance]:
    """The animals of a split; keypoints outside their image are left out."""
    folder = dataset_folder(root, FOLDER)
    file = folder / ANNOTATIONS
    document = read_json(file)
    kp_names = field(document, "kp_names", list, str(file))
    names = tuple(expect(name, str, "each of 'kp_names'", str(file)) for name in kp_names)
    entries = field(document, "images", dict, str(file))
    images = read_all(entries.items(), lambda entry: _read_image(*entry, file), on_problem)
    chosen = set(split_images({image.name: image.pf_pascal for image in images})[split])
    numbered = [
        (image, index, value)
        for image in images
        if image.name in chosen
        for index, value in enumerate(image.instances, start=1)
    ]
    instances = read_all(numbered, lambda item: _read_instance(*item, names, folder), on_problem)
    return [dataclasses.replace(one, keypoints=without_outside(one, on_problem)) for one in instances]


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


@dataclasses.dataclass(frozen=True)
class _Image:
    name: str
    origin: str
    size: Size
    pf_pascal: list[str]
    instances: list[object]


def _read_image(name: str, entry: object, file: Path) -> _Image:
    origin = f"{file}: {name}"
    values = expect(entry, dict, "the entry", origin)
    size = numbers(field(values, "size", list, origin), "'size'", origin)
    if len(size) != 2 or min(size) < 1:
        raise InputError(f"{origin}: 'size' must be [width, height], got {shorten(values['size'])}")
    return _Image(
        name=name,
        origin=origin,
        size=(int(size[1]), int(size[0])),
        pf_pascal=[
            expect(split, str, "each of 'pfpascal'", origin) for split in field(values, "pfpascal", list, origin)
        ],
        instances=field(values, "instances", list, origin),
    )


def _read_instance(image: _Image, index: int, value: object, names: tuple[str, ...], folder: Path) -> Instance:
    origin = f"{image.origin}, instance {index}"
    entry = expect(value, dict, "the entry", origin)
    path = find_below([folder / "JPEGImages"], image.name, "image", origin)
    rows = field(entry, "kps", list, origin)
    if len(rows) != len(names):
        raise InputError(f"{origin}: {len(rows)} keypoints, but there are {len(names)} names of keypoints")
    return Instance(
        name=f"{path.stem}.{index}",
        category=field(entry, "category", str, origin),
        path=path,
        keypoints=_read_keypoints(rows, origin),
        keypoint_names=names,
        box=read_box(field(entry, "bbox", list, origin), origin),
        size=image.size,
        origin=origin,
    )


def _read_keypoints(rows: list[object], origin: str) -> np.ndarray:
    """[x, y] each; null, for a part that cannot be seen, becomes NaN."""
    wrong = [row for row in rows if row is not None and not (isinstance(row, list) and len(row) == 2)]
    if wrong:
        raise InputError(f"{origin}: a keypoint must be [x, y] or null, got {shorten(wrong[0])}")
    keypoints = np.full((len(rows), 2), np.nan)
    visible = [row for row in rows if isinstance(row, list)]
    seen = [row is not None for row in rows]
    keypoints[seen] = np.reshape(numbers([value for row in visible for value in row], "'kps'", origin), (-1, 2))
    return keypoints
