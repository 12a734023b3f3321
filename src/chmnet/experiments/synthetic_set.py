"""A small data set that can be made anywhere: warped views of generated pictures, with keypoints and boxes."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from chmnet.geometry import Size, normalised_to_pixels
from chmnet.outputs import atomic_path
from chmnet.training.synthetic import Texture, Warp, WarpedView

SIZE: Size = (80, 80)
KEYPOINTS = 6
_BOX = 0.8
"""The object of a view reaches from minus this to this, in normalised coordinates."""


def write_synthetic_set(folder: Path, categories: int = 2, views: int = 3) -> Path:
    """Write views of a few textures as a data set in COCO's format, with a training and a test split.

    Each texture is a category; its views show the same keypoints. What is there already is left as it is.

    Args:
        folder: where the data set goes; it is made if it does not exist.
        categories: textures of each split.
        views: of each texture; any two of them are a pair.

    Returns:
        The folder.

    Example:
        >>> import tempfile
        >>> from chmnet import data
        >>> folder = write_synthetic_set(Path(tempfile.mkdtemp()))
        >>> len(data.load_pairs("coco", folder, "test"))  # 2 textures, 3 views of each
        6
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, split in enumerate(("train", "test")):
        file = folder / f"annotations_{split}.json"
        if not file.exists():
            document = _write_split(folder, split, range(number * categories, (number + 1) * categories), views)
            with atomic_path(file) as temporary:
                temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return folder


def _write_split(folder: Path, split: str, textures: range, views: int) -> dict[str, object]:
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    for seed in textures:
        points = np.random.default_rng([seed, 5]).uniform(-0.6, 0.6, (KEYPOINTS, 2))
        for view in range(views):
            warp = Warp(100 * seed + view, rotation=10, zoom=1.1, bend=0.04)
            identifier, name = len(images) + 1, f"{split}-{seed}-{view}.png"
            pixels = WarpedView(Texture(seed), warp, colour_seed=100 * seed + view, colours=0.2).tensor(SIZE)
            with atomic_path(folder / name) as temporary:
                Image.fromarray((pixels * 255).byte().permute(1, 2, 0).numpy()).save(temporary, format="PNG")
            images.append({"id": identifier, "file_name": name, "height": SIZE[0], "width": SIZE[1]})
            annotations.append(_annotation(identifier, seed + 1, warp, points))
    return {
        "images": images,
        "annotations": annotations,
        "categories": [
            {"id": seed + 1, "name": f"texture-{seed}", "keypoints": [f"point-{n + 1}" for n in range(KEYPOINTS)]}
            for seed in textures
        ],
    }


def _annotation(identifier: int, category: int, warp: Warp, points: np.ndarray) -> dict[str, object]:
    seen, exact = warp.inverse(points)
    visible = exact & (np.abs(seen) < 1).all(axis=1)
    pixels = np.where(visible[:, None], normalised_to_pixels(seen, SIZE), 0)
    rows = np.column_stack([pixels.round(2), 2 * visible])
    corner, side = (1 - _BOX) / 2 * SIZE[1], _BOX * SIZE[1]
    return {
        "id": identifier,
        "image_id": identifier,
        "category_id": category,
        "bbox": [corner, corner, side, side],
        "area": side**2,
        "iscrowd": 0,
        "num_keypoints": int(visible.sum()),
        "keypoints": rows.flatten().tolist(),
    }
