"""PF-WILLOW (Ham et al., 2016): 900 pairs of 100 images in ten sub-classes, ten keypoints each, test only."""

from pathlib import Path

from chmnet.data import reading
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.data.reading import OnProblem, Row, dataset_folder, find_below, read_points, read_table, stop
from chmnet.errors import InputError

FOLDER = "PF-WILLOW"
SPLITS = ("test",)
CATEGORIES = frozenset(
    {
        *("car(G)", "car(M)", "car(S)", "duck(S)", "motorbike(G)", "motorbike(M)", "motorbike(S)"),
        *("winebottle(M)", "winebottle(wC)", "winebottle(woC)"),
    }
)
KEYPOINTS = 10
COLUMNS = (
    "imageA",
    "imageB",
    *(f"{axis}{side}{number}" for side in "AB" for axis in "XY" for number in range(KEYPOINTS)),
)


def load(root: str | Path, split: str = "test", on_problem: OnProblem = stop) -> list[Pair]:
    """The pairs of ``root/PF-WILLOW/test_pairs.csv``; the category is the folder of the images.

    Raises:
        InputError: a file is missing or broken; the message names the file and the line.
    """
    folder = dataset_folder(root, FOLDER)
    rows = read_table(folder / f"{split}_pairs.csv", COLUMNS)
    return reading.read_pairs(rows, lambda row: _read_pair(row, folder), on_problem)


def _read_pair(row: Row, folder: Path) -> Pair:
    values = row.values()
    source, target = (_read_side(values, side, folder, row.origin) for side in "AB")
    category, other = source.path.parent.name, target.path.parent.name
    if category != other:
        raise InputError(f"{row.origin}: the images are of two classes, {category} and {other}")
    name = f"{source.path.stem}-{target.path.stem}:{category}"
    return Pair(name, category, source, target, origin=row.origin)


def _read_side(values: dict[str, str], side: str, folder: Path, origin: str) -> AnnotatedImage:
    xs, ys = ([values[f"{axis}{side}{number}"] for number in range(KEYPOINTS)] for axis in "XY")
    path = find_below([folder], values[f"image{side}"], "image", origin)
    return AnnotatedImage(path, read_points(xs, ys, f"the keypoints {side}", origin))
