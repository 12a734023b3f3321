"""Small data sets in each layout, made by the tests themselves."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

WIDTH, HEIGHT = 40, 30
NAN = float("nan")


def make_image(path: Path, width: int = WIDTH, height: int = HEIGHT) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), (90, 120, 150)).save(path)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def replace_text(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    write(path, text.replace(old, new, 1))


def edit_json(path: Path, change: Callable[[dict], object]) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    write(path, json.dumps(document))


# ---------------------------------------------------------------- PF-WILLOW

WILLOW_LIST = Path("PF-WILLOW/test_pairs.csv")


def make_pf_willow(root: Path) -> Path:
    """Three images of one sub-class, two pairs; keypoint i lies at (i + 1, i + 2), in the target at x + 10."""
    images = [f"PF-dataset/car(G)/Cars_00{number}a.png" for number in range(3)]
    for image in images:
        make_image(root / "PF-WILLOW" / image)
    header = ["imageA", "imageB", *(f"{column}{i}" for column in ("XA", "YA", "XB", "YB") for i in range(10))]
    numbers = [f"{i + offset}" for offset in (1, 2, 11, 2) for i in range(10)]
    rows = [header, [images[0], images[1], *numbers], [images[1], images[2], *numbers]]
    write(root / WILLOW_LIST, "".join(",".join(row) + "\n" for row in rows))
    return root


# ---------------------------------------------------------------- PF-PASCAL

PASCAL = Path("PF-PASCAL")
PASCAL_LIST = PASCAL / "test_pairs.csv"
PASCAL_TRAIN = PASCAL / "trn_pairs.csv"
PASCAL_PARTIAL = PASCAL / "trn_pairs_kps_partial.csv"
PASCAL_BOXES = PASCAL / "voc_boxes_300px.json"
PASCAL_IMAGES = ("2008_000001", "2008_000002", "2008_000003")


def pascal_name(number: int) -> str:
    return f"PF-dataset-PASCAL/JPEGImages/{PASCAL_IMAGES[number]}.jpg"


def make_pf_pascal_images(root: Path, below: str = "JPEGImages") -> None:
    for name in PASCAL_IMAGES:
        make_image(root / PASCAL / below / f"{name}.jpg")


def make_pf_pascal(root: Path) -> Path:
    """Lists with keypoints: two test pairs; for training a pair, its flip, one without keypoints, a repeat."""
    make_pf_pascal_images(root)
    header = "source_image,target_image,class"
    keypoints = "4;5;6,7;8;9,14;15;16,17;18;19"
    lines = [
        f"{header},XA,YA,XB,YB",
        f"{pascal_name(0)},{pascal_name(1)},8,{keypoints}",
        f"{pascal_name(1)},{pascal_name(2)},8,{keypoints}",
    ]
    write(root / PASCAL_LIST, "\n".join(lines) + "\n")
    write(root / PASCAL / "val_pairs.csv", "\n".join(lines[:2]) + "\n")
    train = [f"{header},flip"] + [
        f"{pascal_name(a)},{pascal_name(b)},8,{flip}"
        for a, b, flip in ((1, 0, 0), (1, 0, 1), (0, 2, 0), (1, 0, 0))
    ]
    write(root / PASCAL_TRAIN, "\n".join(train) + "\n")
    partial = [
        f"{header},flip,XA,YA,XB,YB,kps_from,is_reversed_test_pair",
        f"{pascal_name(1)},{pascal_name(0)},8,0,{keypoints},val-tracks,1",
    ]
    write(root / PASCAL_PARTIAL, "\n".join(partial) + "\n")
    objects = [
        ["cat", 0.0, 0.0, 5.0, 8.0],
        ["cat", 1.0, 1.0, 20.0, 20.0],
        ["cat", 0, 0, 39, 29],
        ["dog", 0, 0, 9, 9],
    ]
    entry = {"size": [WIDTH, HEIGHT], "objects": objects}
    write(root / PASCAL_BOXES, json.dumps({f"{name}.jpg": entry for name in PASCAL_IMAGES}))
    return root


def mat_file(root: Path, number: int, below: str = "") -> Path:
    return root / PASCAL / below / "Annotations" / "cat" / f"{PASCAL_IMAGES[number]}.mat"


def save_mat(path: Path, **variables: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, variables)


def make_pf_pascal_mat(root: Path, below: str = "") -> Path:
    """The official layout: lists without keypoints; keypoint 0 is hidden in image 0, and 3 in image 1."""
    make_pf_pascal_images(root, str(Path(below, "JPEGImages")))
    rows = [f"{pascal_name(0)},{pascal_name(1)},8", f"{pascal_name(1)},{pascal_name(2)},8"]
    write(root / PASCAL_LIST, "source_image,target_image,class\n" + "\n".join(rows) + "\n")
    train = [f"{row},{flip}" for row in rows for flip in (0, 1)]
    write(root / PASCAL_TRAIN, "source_image,target_image,class,flip\n" + "\n".join(train) + "\n")
    for number in range(3):
        keypoints = np.array([[1.0, 2], [3, 4], [5, 6], [7, 8]]) + 10 * number
        if number < 2:
            keypoints[3 * number] = NAN
        save_mat(mat_file(root, number, below), kps=keypoints, bbox=np.array([[1, 2, 30, 29]], dtype=np.uint8))
    return root


# ---------------------------------------------------------------- SPair-71k

SPAIR = Path("SPair-71k")
SPAIR_PAIR = "000001-2007_000001-2007_000002:cat"
SPAIR_LIST = SPAIR / "Layout/large/test.txt"
SPAIR_ANNOTATION = SPAIR / f"PairAnnotation/test/{SPAIR_PAIR}.json"


def make_spair(root: Path) -> Path:
    """Two pairs in the large layout's test list, the first of them in the small one's and in the training list."""
    names = ["2007_000001", "2007_000002", "2007_000003"]
    for name in names:
        make_image(root / SPAIR / "JPEGImages/cat" / f"{name}.jpg")
        mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
        mask[5:20, 6:30] = 8
        path = root / SPAIR / "Segmentation/cat" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(path)
    pairs = [SPAIR_PAIR, "000002-2007_000002-2007_000003:cat"]
    for number, pair in enumerate(pairs):
        document = {
            "src_imname": f"{names[number]}.jpg",
            "trg_imname": f"{names[number + 1]}.jpg",
            "category": "cat",
            "src_kps": [[7, 8], [9, 10], [11, 12]],
            "trg_kps": [[17, 8], [19, 10], [21, 12]],
            "kps_ids": ["0", "4", "9"],
            "src_bndbox": [6, 5, 30, 20],
            "trg_bndbox": [6, 5, 29, 19],
            "viewpoint_variation": number,
            "scale_variation": 2,
            "truncation": 3,
            "occlusion": 0,
            "mirror": 0,
        }
        for split in ("test", "trn"):
            write(root / SPAIR / f"PairAnnotation/{split}/{pair}.json", json.dumps(document))
    write(root / SPAIR_LIST, "\n".join(pairs) + "\n")
    write(root / SPAIR / "Layout/large/trn.txt", SPAIR_PAIR + "\n")
    write(root / SPAIR / "Layout/small/test.txt", SPAIR_PAIR + "\n")
    return root


# ---------------------------------------------------------------- Animal-Pose and COCO

ANIMAL = Path("AnimalPose_VOC/keypoints_320px.json")
ANIMAL_NAMES = ("left_eye", "right_eye", "nose", "tail")
COCO = Path("annotations.json")


def animal_keypoints(number: int) -> list[list[float] | None]:
    """Four keypoints at (5, 6), (7, 8) … moved by the image's number; every fifth image hides the tail."""
    points: list[list[float] | None] = [[5 + 2 * i + number % 7, 6 + 2 * i] for i in range(4)]
    if number % 5 == 0:
        points[3] = None
    return points


def make_animal_pose(root: Path, images: int = 30) -> Path:
    """Cats and dogs in turn; images 0 to 3 are of PF-PASCAL's test list, 4 to 6 of its validation list."""
    entries = {}
    for number in range(images):
        name = f"2009_{number:06d}.jpg"
        make_image(root / "AnimalPose_VOC/JPEGImages" / name)
        instance = {
            "category": ("cat", "dog")[number % 2],
            "bbox": [1, 2, 30, 28],
            "kps": animal_keypoints(number),
        }
        splits = ["trn", "test"] if number < 4 else ["val"] if number < 7 else ["trn"] * (number % 2)
        entries[name] = {"size": [WIDTH, HEIGHT], "pfpascal": splits, "instances": [instance] * (1 + number % 3)}
    write(root / ANIMAL, json.dumps({"kp_names": ANIMAL_NAMES, "images": entries}))
    return root


def make_coco(root: Path, images: int = 8) -> Path:
    """One object a picture, cups and cats in turn; pictures partly beside the file and partly in images/."""
    document: dict[str, list] = {
        "images": [],
        "annotations": [],
        "categories": [
            {"id": 1, "name": "cup", "keypoints": ["handle", "left rim", "right rim", "foot"]},
            {"id": 7, "name": "cat", "keypoints": list(ANIMAL_NAMES)},
            {"id": 9, "name": "thing"},
        ],
    }
    for number in range(images):
        name = f"picture{number}.png"
        make_image(root / ("images" if number % 3 else "") / name)
        document["images"].append({"id": 100 + number, "file_name": name, "width": WIDTH, "height": HEIGHT})
        values = [value for point in animal_keypoints(number) for value in ([*point, 2] if point else [0, 0, 0])]
        document["annotations"].append(
            {
                "id": 5000 + number,
                "image_id": 100 + number,
                "category_id": (1, 7)[number % 2],
                "keypoints": values,
                "bbox": [1, 2, 20, 25],
            }
        )
    document["annotations"].append({"id": 1, "image_id": 100, "category_id": 9, "bbox": [0, 0, 5, 5]})
    write(root / COCO, json.dumps(document))
    return root
