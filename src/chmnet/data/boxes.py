"""Pictures with the boxes of the objects that they show: what tells things from background."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from chmnet.data import find_dataset, load_pairs, pf_pascal
from chmnet.data.pairs import AnnotatedImage
from chmnet.errors import InputError
from chmnet.pictures import Box


class BoxedPicture(NamedTuple):
    """A picture and where its objects lie."""

    path: Path
    boxes: tuple[Box, ...]
    """Left, top, right, bottom in pixels."""


def load_boxes(
    name: str, root: str | Path, split: str = "train", without: Collection[str] = ()
) -> list[BoxedPicture]:
    """Every picture of a split once, with the boxes of its annotated objects, in the order of their paths.

    PF-PASCAL's lists share pictures: those of the validation and test lists are no training pictures here, those
    of the test list no validation pictures. Boxes of all of its objects are taken, where there is such a file.

    Args:
        name, root, split: see :func:`chmnet.data.load_pairs`.
        without: file names of pictures to leave out.

    Raises:
        InputError: a file is missing or broken, or there are no boxes.
    """
    dataset = find_dataset(name, root, split)
    if dataset.load_instances is not None:
        found = _by_path((each.path, each.box) for each in dataset.load_instances(root, split))
    else:
        found = _by_path((side.path, side.box) for side in _sides(name, root, split))
    held_out = set(without)
    if name == "pf-pascal":
        everything = pf_pascal.object_boxes(root)
        found = {path: [box for _, box in everything.get(path.name, ())] or found[path] for path in found}
        later = pf_pascal.SPLITS[pf_pascal.SPLITS.index(split) + 1 :]
        held_out |= {side.path.name for other in later for side in _sides(name, root, other)}
    pictures = [
        BoxedPicture(path, tuple(boxes))
        for path, boxes in sorted(found.items())
        if boxes and path.name not in held_out
    ]
    if not pictures:
        raise InputError(f"{name} has no pictures with boxes of objects in its split {split}")
    return pictures


def _sides(name: str, root: str | Path, split: str) -> list[AnnotatedImage]:
    return [side for pair in load_pairs(name, root, split) for side in (pair.source, pair.target)]


def _by_path(objects: Iterable[tuple[Path, Box | None]]) -> dict[Path, list[Box]]:
    found: dict[Path, list[Box]] = {}
    for path, box in objects:
        boxes = found.setdefault(path, [])
        if box is not None and box not in boxes:
            boxes.append(box)
    return found
