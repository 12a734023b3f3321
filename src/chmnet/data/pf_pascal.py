"""PF-PASCAL (Ham et al., 2018): pairs of PASCAL VOC photographs in twenty classes.

The lists are ``trn_pairs.csv``, ``val_pairs.csv`` and ``test_pairs.csv``. Where a list has no keypoints they
come from the official ``Annotations/<class>/<image>.mat``; without those, the training list takes them from
``trn_pairs_kps_partial.csv``, and rows that are not there are left out.

Half of the official training rows say ``flip = 1``: both images are to be mirrored. Such a pair keeps the
coordinates of the files and has the flag ``flip``; training mirrors it.
"""

import logging
from pathlib import Path, PurePosixPath

import numpy as np

from chmnet.data import reading
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.data.reading import Entry, OnProblem, Row, find_below, read_box, read_table, shorten, stop
from chmnet.errors import InputError
from chmnet.pictures import Box

FOLDER = "PF-PASCAL"
LISTS = {"train": "trn_pairs.csv", "val": "val_pairs.csv", "test": "test_pairs.csv"}
SPLITS = tuple(LISTS)
PARTIAL_LIST = "trn_pairs_kps_partial.csv"
BOXES = "voc_boxes_300px.json"
CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable"),
    *("dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
"""The class column counts them from 1."""
IMAGE_COLUMNS = ("source_image", "target_image", "class")
KEYPOINT_COLUMNS = ("XA", "YA", "XB", "YB")

logger = logging.getLogger(__name__)


def load(root: str | Path, split: str = "test", on_problem: OnProblem = stop) -> list[Pair]:
    """The pairs of one list of ``root/PF-PASCAL``, in its order, repeated rows included.

    Boxes come from the ``.mat`` files where there are any, else from ``voc_boxes_300px.json``.

    Raises:
        InputError: a file is missing or broken; the message names the file and the line.
    """
    folder = reading.dataset_folder(root, FOLDER)
    path = folder / LISTS[split]
    rows = read_table(path, IMAGE_COLUMNS)
    reader = _Reader(folder)
    keypoints_from: list[tuple[Row, Row | None]]
    if any(column in rows[0].header for column in KEYPOINT_COLUMNS):
        read_table(path, KEYPOINT_COLUMNS)  # all four or none
        keypoints_from = [(row, row) for row in rows]
    elif reader.annotations is not None:
        keypoints_from = [(row, None) for row in rows]
    elif split == "train" and (folder / PARTIAL_LIST).is_file():
        known = dict(_by_images(read_table(folder / PARTIAL_LIST, IMAGE_COLUMNS + KEYPOINT_COLUMNS), on_problem))
        keypoints_from = [(row, known[key]) for key, row in _by_images(rows, on_problem) if key in known]
        logger.info("%s: keypoints for %d of %d rows", path, len(keypoints_from), len(rows))
    else:
        raise InputError(f"{path} has no keypoints (columns XA, YA, XB, YB) and there is no {folder}/Annotations")
    return reading.read_pairs(keypoints_from, lambda rows: reader.pair(*rows), on_problem)


def load_unlabelled(root: str | Path, split: str = "train", on_problem: OnProblem = stop) -> list[Pair]:
    """The pairs of one list without keypoints, each pair of pictures once, with the box of their largest object.

    Mirrored rows and rows that exchange the two pictures add nothing and are left out.
    """
    folder = reading.dataset_folder(root, FOLDER)
    reader = _Reader(folder)
    rows: dict[tuple[str, ...], Row] = {}
    for key, row in _by_images(read_table(folder / LISTS[split], IMAGE_COLUMNS), on_problem):
        if row.values().get("flip", "0") == "0":
            rows.setdefault((*sorted(key[:2]), *key[2:]), row)
    return reading.read_pairs(rows.values(), lambda row: reader.pair(row, no_keypoints=True), stop)


def training_pairs(root: str | Path) -> set[frozenset[str]]:
    """The image names of each pair of the official training list, without their order."""
    rows = read_table(reading.dataset_folder(root, FOLDER) / LISTS["train"], IMAGE_COLUMNS)
    return {frozenset(PurePosixPath(name).name for name in key[:2]) for key, _ in _by_images(rows, stop)}


def object_boxes(root: str | Path) -> dict[str, list[tuple[str, Box]]]:
    """Class and box of every object of each picture, by its file name; empty without ``voc_boxes_300px.json``."""
    path = reading.dataset_folder(root, FOLDER) / BOXES
    if not path.is_file():
        return {}
    document = reading.read_json(path)
    found = {}
    for name, value in document.values.items():
        entry = Entry.of(value, f"{document.origin}: {name}")
        objects = entry.each("objects", list)
        found[name] = [(str(each[0]), read_box(each[1:], entry.origin)) for each in objects if each]
    return found


def _by_images(rows: list[Row], on_problem: OnProblem) -> list[tuple[tuple[str, ...], Row]]:
    """Rows with what tells which pair they are: a row of the official list and its row of the partial list."""

    def with_key(row: Row) -> tuple[tuple[str, ...], Row]:
        values = row.values()
        return tuple(values[column] for column in IMAGE_COLUMNS), row

    return reading.read_all(rows, with_key, on_problem)


class _Reader:
    """What reading a row needs: where things are, and the annotation files read so far."""

    def __init__(self, folder: Path) -> None:
        nested = folder / "PF-dataset-PASCAL"
        self.image_folders = [folder / "JPEGImages", nested / "JPEGImages"]
        folders = (folder / "Annotations", nested / "Annotations")
        self.annotations = next((path for path in folders if path.is_dir()), None)
        self.boxes = reading.read_json(folder / BOXES) if (folder / BOXES).is_file() else Entry({}, "")
        self.annotation_of: dict[Path, tuple[np.ndarray, Box | None]] = {}

    def pair(self, row: Row, keypoints_from: Row | None = None, no_keypoints: bool = False) -> Pair:
        """The pair of a row; its keypoints from that row, or from the annotation files, or none."""
        values = row.values()
        category = _read_class(values["class"], row.origin)
        paths = [self._find_image(values[column], row.origin) for column in ("source_image", "target_image")]
        if no_keypoints:
            keypoints = [np.zeros((0, 2)), np.zeros((0, 2))]
        elif keypoints_from is None:
            keypoints = self._annotated_keypoints(paths, category, row.origin)
        else:
            keypoints = _listed_keypoints(keypoints_from)
        source, target = (
            AnnotatedImage(path, points, self._box(path, category, points, row.origin))
            for path, points in zip(paths, keypoints, strict=True)
        )
        flip = _read_flip(values.get("flip", "0"), row.origin)
        name = f"{paths[0].stem}-{paths[1].stem}:{category}" + (":flip" if flip else "")
        return Pair(name, category, source, target, flags={"flip": 1} if flip else {}, origin=row.origin)

    def _find_image(self, name: str, origin: str) -> Path:
        """``PF-dataset-PASCAL/JPEGImages/x.jpg``, wherever the folder of images was put."""
        plain_name = name.removeprefix("PF-dataset-PASCAL/").removeprefix("JPEGImages/")
        return find_below(self.image_folders, plain_name, "image", origin)

    def _annotation(self, path: Path, category: str, origin: str) -> tuple[np.ndarray, Box | None] | None:
        """What the image's own annotation file says, if there are such files."""
        if self.annotations is None:
            return None
        file = find_below([self.annotations], f"{category}/{path.stem}.mat", "annotation", origin)
        if file not in self.annotation_of:
            self.annotation_of[file] = read_annotation(file)
        return self.annotation_of[file]

    def _annotated_keypoints(self, paths: list[Path], category: str, origin: str) -> list[np.ndarray]:
        """The keypoints that both images show."""
        found = [self._annotation(path, category, origin) for path in paths]
        source, target = (annotation[0] for annotation in found if annotation is not None)
        reading.check_same_number(source, target, origin)
        both = ~np.isnan(source).any(axis=1) & ~np.isnan(target).any(axis=1)
        if not both.any():
            raise InputError(f"{origin}: the two images have no keypoint in common")
        return [source[both], target[both]]

    def _box(self, path: Path, category: str, keypoints: np.ndarray, origin: str) -> Box | None:
        annotation = self._annotation(path, category, origin)
        if annotation is not None and annotation[1] is not None:
            return annotation[1]
        if path.name not in self.boxes:
            return None
        entry = Entry.of(self.boxes.values[path.name], f"{self.boxes.origin}: {path.name}")
        objects = [value for value in entry.each("objects", list) if value[:1] == [category]]
        return _fitting_box([read_box(value[1:], entry.origin) for value in objects], keypoints)


def _read_class(text: str, origin: str) -> str:
    by_number = {str(number): name for number, name in enumerate(CLASSES, start=1)}
    if text not in by_number:
        raise InputError(f"{origin}: class must be a whole number from 1 to {len(CLASSES)}, got {shorten(text)}")
    return by_number[text]


def _read_flip(text: str, origin: str) -> bool:
    if text not in ("0", "1"):
        raise InputError(f"{origin}: flip must be 0 or 1, got {shorten(text)}")
    return text == "1"


def _listed_keypoints(row: Row) -> list[np.ndarray]:
    values = {column: text.split(";") for column, text in row.values().items()}
    source, target = (
        reading.read_points(values[f"X{side}"], values[f"Y{side}"], f"the keypoints {side}", row.origin)
        for side in "AB"
    )
    reading.check_same_number(source, target, row.origin)
    return [source, target]


def _fitting_box(boxes: list[Box], keypoints: np.ndarray) -> Box | None:
    """The box with most of the keypoints inside, of equals the smallest; without keypoints the largest."""
    if not len(keypoints):
        return max(boxes, key=_area, default=None)
    count = {box: ((keypoints >= box[:2]) & (keypoints <= box[2:])).all(axis=1).sum() for box in boxes}
    return max(boxes, key=lambda box: (count[box], -_area(box)), default=None)


def _area(box: Box) -> float:
    left, top, right, bottom = box
    return (right - left) * (bottom - top)


def read_annotation(path: Path) -> tuple[np.ndarray, Box | None]:
    """The keypoints and the box, where there is one, of an official annotation: a MATLAB file.

    Keypoints (``kps``, n×2) are NaN where a part cannot be seen.

    Raises:
        InputError: the file is broken, of a version that cannot be read, or no PF-PASCAL annotation.
    """
    from scipy.io import loadmat  # takes a third of a second, and few need it

    try:
        content = loadmat(path)
    except NotImplementedError:
        raise InputError(f"{path} is a MATLAB file of version 7.3; save it with -v7 or older") from None
    except Exception as error:  # scipy raises many kinds of errors on files that are no MATLAB files
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(f"{path} cannot be read as a MATLAB file: {reason}") from None
    if "kps" not in content:
        found = ", ".join(name for name in content if not name.startswith("__")) or "nothing"
        raise InputError(f"{path} is no PF-PASCAL annotation: it has no kps, only {found}")
    keypoints = content["kps"]
    if keypoints.ndim != 2 or keypoints.shape[1] != 2 or keypoints.dtype.kind not in "fiu":
        shape = "×".join(map(str, keypoints.shape))
        raise InputError(f"{path}: kps must be numbers of shape n×2, got shape {shape}")
    keypoints = keypoints.astype(np.float64)
    if np.nanmax(np.abs(keypoints), initial=0) > reading.MAX_COORDINATE:
        raise InputError(f"{path}: kps has a number larger than any picture")
    if "bbox" not in content:
        return keypoints, None
    return keypoints, read_box(content["bbox"].reshape(-1).tolist(), f"{path}: bbox")
