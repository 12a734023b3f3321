"""Small worlds to propagate in: generated pictures, a network of a moment."""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from chmnet.config import BackboneConfig
from chmnet.nn import CHMNet
from chmnet.weights import load_model
from tests.flat import flat_config

NAMES = ("nose", "tail", "left ear", "right ear")
POINTS = ((10.0, 12.0), (50.5, 12.0), (10.0, 40.25), (50.5, 40.25))
SIZE = (64, 48)
"""Width and height of the pictures."""


def noise_picture(path: Path, seed: int, size: tuple[int, int] = SIZE) -> Path:
    """Smooth coloured noise; ``size`` is (width, height)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


def write_labels(
    path: Path, pictures: Sequence[str], visible: Sequence[Sequence[int]] | None = None, **category: object
) -> Path:
    """COCO keypoints of pictures beside the file; ``visible`` gives COCO's v of each keypoint in each picture."""
    document: dict[str, list] = {
        "images": [],
        "annotations": [],
        "categories": [
            {"id": 7, "name": "cat", "keypoints": list(NAMES), "skeleton": [[1, 2], [1, 3]], **category}
        ],
    }
    for number, name in enumerate(pictures, start=1):
        with Image.open(path.parent / name) as picture:
            width, height = picture.size
        shown = [2] * len(NAMES) if visible is None else visible[number - 1]
        keypoints = [
            value for (x, y), v in zip(POINTS, shown, strict=True) for value in ((x, y, v) if v else (0, 0, 0))
        ]
        document["images"].append({"id": number, "file_name": name, "width": width, "height": height})
        document["annotations"].append(
            {"id": number, "image_id": number, "category_id": 7, "keypoints": keypoints}
        )
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@lru_cache(maxsize=1)
def small_model() -> CHMNet:
    """Features that mean something, on a grid of 6×6."""
    return load_model("nearest-neighbour", changes={"image_size": (96, 96)})


@lru_cache(maxsize=1)
def tiny_model() -> CHMNet:
    """Random features on a grid of 2×2, as fast as can be."""
    config = flat_config(
        image_size=(32, 32),
        backbone=BackboneConfig("efficientnet-lite0", ("blocks.3",)),
        matching="none",
        dimensions="4d-4d",
        channel_reduction=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return CHMNet(config).eval()
