"""Broken files of every kind: one sentence with the file and the line, never a traceback; the summary lists it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from chmnet.data import load_pairs
from chmnet.data.summary import summarise
from chmnet.errors import InputError

from . import trees
from .trees import edit_json, replace_text, save_mat, write

Break = Callable[[Path], object]
IMAGE = "PF-dataset/car(G)/Cars_001a.png"


def json_change(file: Path, change: Callable[[dict], object]) -> Break:
    return lambda root: edit_json(root / file, change)


def text_change(file: Path, old: str, new: str) -> Break:
    return lambda root: replace_text(root / file, old, new)


def check_refused(root: Path, dataset: str, words: str, split: str = "test") -> None:
    """Loading raises one sentence with these words; the summary has the same sentence among its problems."""
    with pytest.raises(InputError) as caught:
        load_pairs(dataset, root, split)
    message = str(caught.value)
    assert words in message
    assert len(message.splitlines()) == 1
    assert str(root) in message  # the file is named
    assert message in summarise(dataset, root, split).problems


WILLOW: dict[str, tuple[Break, str]] = {
    "no list": (lambda root: (root / trees.WILLOW_LIST).unlink(), "there is no file"),
    "empty file": (
        lambda root: write(root / trees.WILLOW_LIST, ""),
        "is empty; it should begin with the line imageA",
    ),
    "header only": (
        lambda root: write(root / trees.WILLOW_LIST, (root / trees.WILLOW_LIST).read_text().splitlines()[0]),
        "test_pairs.csv lists no pairs",
    ),
    "missing columns": (text_change(trees.WILLOW_LIST, "XA3,", "XA33,"), "line 1: the header lacks XA3"),
    "too few values": (
        text_change(trees.WILLOW_LIST, ",1,2,3", ",1,2"),
        "line 2: 41 values, but the header names 42",
    ),
    "no number": (text_change(trees.WILLOW_LIST, ",1,2,3", ",1,two,3"), "value 2, must be a number, got 'two'"),
    "NaN": (text_change(trees.WILLOW_LIST, ",1,2,3", ",1,nan,3"), "line 2: x of the keypoints A, value 2, is not"),
    "infinite": (text_change(trees.WILLOW_LIST, ",1,2,3", ",1,-inf,3"), "is '-inf', larger than any picture"),
    "huge": (text_change(trees.WILLOW_LIST, ",1,2,3", ",1,1e300,3"), "is '1e300', larger than any picture"),
    "empty value": (text_change(trees.WILLOW_LIST, ",1,2,3", ",1,,3"), "must be a number, got ''"),
    "no image": (lambda root: (root / "PF-WILLOW" / IMAGE).unlink(), "line 2: there is no image"),
    "image is a folder": (
        lambda root: ((root / "PF-WILLOW" / IMAGE).unlink(), (root / "PF-WILLOW" / IMAGE).mkdir()),
        "line 2: there is no image",
    ),
    "path out of the folder": (
        text_change(trees.WILLOW_LIST, IMAGE, "PF-dataset/car(G)/../../../../etc/passwd"),
        "must be a path below",
    ),
    "absolute path": (text_change(trees.WILLOW_LIST, IMAGE, "/car(G)/passwd"), "must be a path below"),
    "path with backslashes": (
        text_change(trees.WILLOW_LIST, f"PF-dataset/car(G)/Cars_000a.png,{IMAGE}", r"..\..\passwd,x"),
        "must be a path below",
    ),
    "drive": (
        text_change(trees.WILLOW_LIST, f"PF-dataset/car(G)/Cars_000a.png,{IMAGE}", "c:a.png,c:b.png"),
        "must be a path below",
    ),
    "no path": (
        text_change(trees.WILLOW_LIST, f"PF-dataset/car(G)/Cars_000a.png,{IMAGE}", ","),
        "the image '' must be a path below",
    ),
    "impossible path": (
        text_change(trees.WILLOW_LIST, IMAGE, "PF-dataset/car(G)/" + "long" * 500),
        "line 2: there is no image",
    ),
    "two classes": (
        lambda root: (
            trees.make_image(root / "PF-WILLOW/PF-dataset/duck(S)/x.png"),
            replace_text(root / trees.WILLOW_LIST, IMAGE, "PF-dataset/duck(S)/x.png"),
        ),
        "line 2: the images are of two classes, car(G) and duck(S)",
    ),
    "no text": (lambda root: (root / trees.WILLOW_LIST).write_bytes(b"\xff\xfe\x00"), "is not text in UTF-8"),
    "cell too long": (
        lambda root: write(root / trees.WILLOW_LIST, "imageA,imageB\n" + "9" * 200_000),
        "line 2: this is not CSV",
    ),
}


@pytest.mark.parametrize("kind", WILLOW)
def test_pf_willow(tmp_path: Path, kind: str) -> None:
    spoil, words = WILLOW[kind]
    spoil(trees.make_pf_willow(tmp_path))
    check_refused(tmp_path, "pf-willow", words)


PASCAL: dict[str, tuple[Break, str]] = {
    "class 0": (text_change(trees.PASCAL_LIST, ",8,", ",0,"), "line 2: class must be a whole number from 1 to 20"),
    "class 21": (text_change(trees.PASCAL_LIST, ",8,", ",21,"), "from 1 to 20, got '21'"),
    "class by name": (text_change(trees.PASCAL_LIST, ",8,", ",cat,"), "from 1 to 20, got 'cat'"),
    "class of many digits": (text_change(trees.PASCAL_LIST, ",8,", f",{'9' * 5000},"), "from 1 to 20, got '999"),
    "more x than y": (text_change(trees.PASCAL_LIST, "7;8;9", "7;8"), "line 2: 3 x and 2 y of the keypoints A"),
    "more in one image": (
        text_change(trees.PASCAL_LIST, "4;5;6,7;8;9", "4;5,7;8"),
        "line 2: 2 keypoints in the source and 3 in the target",
    ),
    "a column of keypoints missing": (text_change(trees.PASCAL_LIST, ",YB", ",YC"), "line 1: the header lacks YB"),
    "no keypoints anywhere": (
        lambda root: write(root / trees.PASCAL_LIST, "source_image,target_image,class\na.jpg,b.jpg,8\n"),
        "has no keypoints (columns XA, YA, XB, YB) and there is no",
    ),
    "path out of the folder": (
        text_change(trees.PASCAL_LIST, "JPEGImages/2008_000002", "JPEGImages/../../../x"),
        "line 2: the image",
    ),
    "boxes are no JSON": (lambda root: write(root / trees.PASCAL_BOXES, "{\n,"), "json line 2: this is not JSON"),
    "boxes are a list": (
        lambda root: write(root / trees.PASCAL_BOXES, "[]"),
        "the whole must be an object, got []",
    ),
    "deeply nested": (lambda root: write(root / trees.PASCAL_BOXES, "[" * 200_000), "nested too deeply"),
    "box inside out": (
        json_change(
            trees.PASCAL_BOXES,
            lambda boxes: boxes["2008_000001.jpg"].update(objects=[["cat", 9, 1, 3, 5]]),
        ),
        "2008_000001.jpg: the box must be left, top, right, bottom with left < right",
    ),
    "box too short": (
        json_change(trees.PASCAL_BOXES, lambda boxes: boxes["2008_000001.jpg"].update(objects=[["cat", 9, 1]])),
        "a box has 4 numbers, got 2",
    ),
    "box entry": (
        json_change(trees.PASCAL_BOXES, lambda boxes: boxes.update({"2008_000001.jpg": 3})),
        "an object, got 3",
    ),
    "box objects": (
        json_change(trees.PASCAL_BOXES, lambda boxes: boxes["2008_000001.jpg"].pop("objects")),
        "2008_000001.jpg: there is no 'objects'; found 'size'",
    ),
}


@pytest.mark.parametrize("kind", PASCAL)
def test_pf_pascal(tmp_path: Path, kind: str) -> None:
    spoil, words = PASCAL[kind]
    spoil(trees.make_pf_pascal(tmp_path))
    check_refused(tmp_path, "pf-pascal", words)


PASCAL_TRAINING: dict[str, tuple[Break, str]] = {
    "flip": (
        text_change(trees.PASCAL_TRAIN, ",8,0", ",8,yes"),
        "trn_pairs.csv line 2: flip must be 0 or 1, got 'yes'",
    ),
    "row of the list": (text_change(trees.PASCAL_TRAIN, ",8,0", ",8"), "trn_pairs.csv line 2: 3 values"),
    "row of the keypoints": (text_change(trees.PASCAL_PARTIAL, ",val-tracks", ""), "partial.csv line 2: 9 values"),
    "keypoint": (
        text_change(trees.PASCAL_PARTIAL, "4;5;6", "4;five;6"),
        "partial.csv line 2: x of the keypoints A",
    ),
    "no keypoints": (lambda root: (root / trees.PASCAL_PARTIAL).unlink(), "trn_pairs.csv has no keypoints"),
}


@pytest.mark.parametrize("kind", PASCAL_TRAINING)
def test_pf_pascal_training(tmp_path: Path, kind: str) -> None:
    spoil, words = PASCAL_TRAINING[kind]
    spoil(trees.make_pf_pascal(tmp_path))
    check_refused(tmp_path, "pf-pascal", words, "train")


VERSION_7_3 = b"MATLAB 7.3 MAT-file".ljust(124, b" ") + b"\x00\x02IM" + bytes(512)

PASCAL_MAT: dict[str, tuple[Break, str]] = {
    "missing": (lambda root: trees.mat_file(root, 0).unlink(), "line 2: there is no annotation"),
    "no MATLAB file": (
        lambda root: trees.mat_file(root, 0).write_bytes(b"hello" * 99),
        "cannot be read as a MATLAB",
    ),
    "empty file": (lambda root: trees.mat_file(root, 0).write_bytes(b""), "cannot be read as a MATLAB file"),
    "cut off": (
        lambda root: trees.mat_file(root, 0).write_bytes(trees.mat_file(root, 0).read_bytes()[:200]),
        "cannot be read as a MATLAB file",
    ),
    "version 7.3": (
        lambda root: trees.mat_file(root, 0).write_bytes(VERSION_7_3),
        "version 7.3; save it with -v7",
    ),
    "foreign": (
        lambda root: save_mat(trees.mat_file(root, 0), pts_coord=np.ones((2, 10))),
        "is no PF-PASCAL annotation: it has no kps, only pts_coord",
    ),
    "shape": (
        lambda root: save_mat(trees.mat_file(root, 0), kps=np.ones((2, 10))),
        "of shape n×2, got shape 2×10",
    ),
    "text": (lambda root: save_mat(trees.mat_file(root, 0), kps="no"), "kps must be numbers of shape n×2"),
    "infinite": (lambda root: save_mat(trees.mat_file(root, 0), kps=np.full((4, 2), np.inf)), "larger than any"),
    "other number": (
        lambda root: save_mat(trees.mat_file(root, 0), kps=np.ones((5, 2))),
        "line 2: 5 keypoints in the source and 4 in the target",
    ),
    "nothing in common": (
        lambda root: save_mat(trees.mat_file(root, 0), kps=np.full((4, 2), np.nan)),
        "line 2: the two images have no keypoint in common",
    ),
    "box": (
        lambda root: save_mat(trees.mat_file(root, 0), kps=np.ones((4, 2)), bbox=np.array([[9, 9, 1, 1]])),
        "bbox: the box must be left, top, right, bottom",
    ),
}


@pytest.mark.parametrize("kind", PASCAL_MAT)
def test_pf_pascal_official_layout(tmp_path: Path, kind: str) -> None:
    spoil, words = PASCAL_MAT[kind]
    spoil(trees.make_pf_pascal_mat(tmp_path))
    check_refused(tmp_path, "pf-pascal", words)


def spair(change: Callable[[dict], object]) -> Break:
    return json_change(trees.SPAIR_ANNOTATION, change)


SPAIR: dict[str, tuple[Break, str]] = {
    "no list": (lambda root: (root / trees.SPAIR_LIST).unlink(), "there is no file"),
    "empty list": (lambda root: write(root / trees.SPAIR_LIST, "\n\n"), "test.txt lists no pairs"),
    "no annotation": (
        lambda root: (root / trees.SPAIR_ANNOTATION).unlink(),
        "test.txt line 1: there is no annotation",
    ),
    "annotation elsewhere": (
        lambda root: write(root / trees.SPAIR_LIST, "../../../x:cat\n"),
        "line 1: the annotation '../../../x:cat.json' must be a path below",
    ),
    "no JSON": (lambda root: write(root / trees.SPAIR_ANNOTATION, "{'a': 1}"), "json line 1: this is not JSON"),
    "JSON of another shape": (
        lambda root: write(root / trees.SPAIR_ANNOTATION, "[1]"),
        "must be an object, got [1]",
    ),
    "flag out of range": (
        spair(lambda document: document.update(truncation=9)),
        "truncation must be 0, 1, 2 or 3",
    ),
    "flag true": (spair(lambda document: document.update(truncation=True)), "must be a whole number, got True"),
    "other category": (
        spair(lambda document: document.update(category="dog")),
        "'dog' is not the one in the pair's",
    ),
    "no image": (spair(lambda document: document.update(trg_imname="x.jpg")), "there is no image"),
    "image elsewhere": (spair(lambda document: document.update(trg_imname="../../x.jpg")), "must be a path below"),
    "no mask": (
        lambda root: (root / "SPair-71k/Segmentation/cat/2007_000002.png").unlink(),
        "test.txt line 1, ",
    ),
    "keypoint of three numbers": (
        spair(lambda document: document["src_kps"].append([1, 2, 3])),
        "each of src_kps must be [x, y], got [1, 2, 3]",
    ),
    "keypoint null": (spair(lambda document: document["src_kps"].append(None)), "must be [x, y], got None"),
    "keypoint NaN": (
        spair(lambda document: document["src_kps"][0].__setitem__(0, float("nan"))),
        "is not a number",
    ),
    "keypoint true": (spair(lambda document: document["src_kps"][0].__setitem__(0, True)), "a number, got True"),
    "keypoint of 400 digits": (
        spair(lambda document: document["src_kps"][0].__setitem__(0, 10**400)),
        "larger than any picture",
    ),
    "other number": (spair(lambda document: document["src_kps"].pop()), "2 keypoints in the source and 3 in the"),
    "no keypoints": (spair(lambda document: document.update(src_kps=[])), "there are no src_kps"),
    "names": (spair(lambda document: document.update(kps_ids=["1"])), "1 kps_ids for 3 keypoints"),
    "box inside out": (spair(lambda document: document.update(trg_bndbox=[6, 19, 29, 5])), "got 6, 19, 29, 5"),
    "box is text": (spair(lambda document: document.update(trg_bndbox="6 5")), "'trg_bndbox' must be a list"),
}


@pytest.mark.parametrize("kind", SPAIR)
def test_spair(tmp_path: Path, kind: str) -> None:
    spoil, words = SPAIR[kind]
    spoil(trees.make_spair(tmp_path))
    check_refused(tmp_path, "spair-71k", words)


def animal(change: Callable[[dict], object]) -> Break:
    return json_change(trees.ANIMAL, lambda document: change(document["images"]["2009_000001.jpg"]))


ANIMAL: dict[str, tuple[Break, str]] = {
    "no file": (lambda root: (root / trees.ANIMAL).unlink(), "there is no file"),
    "no names": (json_change(trees.ANIMAL, lambda document: document.pop("kp_names")), "there is no 'kp_names'"),
    "a name is a number": (
        json_change(trees.ANIMAL, lambda document: document.update(kp_names=[3])),
        "a text, got 3",
    ),
    "images are a list": (
        json_change(trees.ANIMAL, lambda document: document.update(images=[])),
        "must be an object",
    ),
    "size": (animal(lambda image: image.update(size=[40])), "2009_000001.jpg: 'size' must be [width, height]"),
    "size 0": (animal(lambda image: image.update(size=[0, 30])), "must be [width, height], got [0, 30]"),
    "splits": (animal(lambda image: image.update(pfpascal=None)), "'pfpascal' must be a list, got None"),
    "instance": (
        animal(lambda image: image.update(instances=[3])),
        "instance 1: the entry must be an object, got 3",
    ),
    "fewer keypoints": (
        animal(lambda image: image["instances"][0]["kps"].pop()),
        "3 keypoints, but there are 4 names",
    ),
    "a keypoint": (
        animal(lambda image: image["instances"][0]["kps"].__setitem__(0, [1])),
        "2009_000001.jpg, instance 1: a keypoint must be [x, y] or null, got [1]",
    ),
    "box": (animal(lambda image: image["instances"][1].update(bbox=[9, 9, 9, 20])), "instance 2: the box must be"),
    "no image": (lambda root: (root / "AnimalPose_VOC/JPEGImages/2009_000001.jpg").unlink(), "there is no image"),
    "nothing for the split": (
        json_change(trees.ANIMAL, lambda document: document.update(images={})),
        "among 0 objects no two images of a category share 3 visible keypoints",
    ),
}


@pytest.mark.parametrize("kind", ANIMAL)
def test_animal_pose(tmp_path: Path, kind: str) -> None:
    spoil, words = ANIMAL[kind]
    spoil(trees.make_animal_pose(tmp_path, images=8))
    if kind == "nothing for the split":
        with pytest.raises(InputError, match=words):
            load_pairs("animal-pose", tmp_path)
    else:
        check_refused(tmp_path, "animal-pose", words)


def coco(key: str, **values: object) -> Break:
    return json_change(trees.COCO, lambda document: document[key][0].update(values))


COCO: dict[str, tuple[Break, str]] = {
    "no annotations": (json_change(trees.COCO, lambda document: document.pop("annotations")), "no 'annotations'"),
    "image without id": (
        json_change(trees.COCO, lambda document: document["images"][0].pop("id")),
        "images entry 1",
    ),
    "id is text": (coco("categories", id="1"), "categories entry 1: 'id' must be a whole number, got '1'"),
    "annotation": (
        json_change(trees.COCO, lambda document: document["annotations"].append(3)),
        "entry 10: the entry",
    ),
    "unknown image": (coco("annotations", image_id=999), "entry 1: there is no image with the id 999"),
    "unknown category": (coco("annotations", category_id=999), "entry 1: there is no category with the id 999"),
    "category without names": (
        coco("annotations", category_id=9),
        "entry 1, its category: there is no 'keypoints'",
    ),
    "keypoints": (coco("annotations", keypoints=[1, 2, 2]), "must have 12 numbers (x, y, v of 4), got 3"),
    "box": (coco("annotations", bbox=[1, 2, 0, 5]), "entry 1: the box must be left, top, right, bottom"),
    "box of three": (coco("annotations", bbox=[1, 2, 3]), "'bbox' has 4 numbers, got 3"),
    "image elsewhere": (coco("images", file_name="../secret.png"), "entry 1: the image '../secret.png' must be"),
    "no image": (coco("images", file_name="gone.png"), "entry 1: there is no image"),
    "width": (coco("images", width="40"), "entry 1, its image: 'width' must be a whole number"),
}


@pytest.mark.parametrize("kind", COCO)
def test_coco(tmp_path: Path, kind: str) -> None:
    spoil, words = COCO[kind]
    spoil(trees.make_coco(tmp_path))
    check_refused(tmp_path, "coco", words)


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees.make_pf_willow(tmp_path)

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match=r"test_pairs.csv cannot be read: Permission denied"):
        load_pairs("pf-willow", tmp_path)
