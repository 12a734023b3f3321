"""PCK with targets and sources much smaller, on another photograph: matched whole, where found, in the true box.

python tools/place.py --root datasets
"""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from chmnet import Matcher
from chmnet.data import load_pairs
from chmnet.data.pairs import Pair
from chmnet.evaluation.calibrate import thing_side
from chmnet.evaluation.places import other_category, paste
from chmnet.matcher import Boxes
from chmnet.metrics import hits

ALPHA = 0.1
SHARES = {"a third": 1 / 3, "a fifth": 1 / 5}
WAYS = ("whole", "found", "told")


def share_right(found: np.ndarray, truth: np.ndarray, side: float) -> float:
    """How many points lie within ``ALPHA`` of the side of the thing."""
    return float(hits(np.linalg.norm(found - truth, axis=1), ALPHA * side).mean())


def measure(matcher: Matcher, pairs: list[Pair], every: int, share: float, reduced: str) -> dict[str, np.ndarray]:
    """For each way, a row for each pair: the share of points that are right, and the seconds it took."""
    rows: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number, pair in enumerate(pairs[::every]):
        generator = np.random.default_rng(number)
        source: Path | Image.Image = pair.source.path
        target: Path | Image.Image = pair.target.path
        points, truth, side = pair.source.keypoints, pair.target.keypoints, thing_side(pair.target)
        told: Boxes = (None, None)
        if reduced:
            image = pair.source if reduced == "source" else pair.target
            picture, box = paste(image.path, other_category(pairs, pair, generator), share, generator)
            scale = (box[2] - box[0]) / picture.width, (box[3] - box[1]) / picture.height
            moved = image.keypoints * scale + box[:2]
            if reduced == "source":
                source, points, told = picture, moved, (box, None)
            else:
                target, truth, told, side = picture, moved, (None, box), share * side
        for way in WAYS:
            boxes, place = (told, "whole") if way == "told" else ((None, None), way)
            start = time.perf_counter()
            found = matcher.match(source, target, boxes=boxes, place=place).locate(points)
            rows[way].append((share_right(found, truth, side), time.perf_counter() - start))
    return {way: np.array(row) for way, row in rows.items()}


def main(
    root: Annotated[Path, typer.Option(help="Folder that holds the data sets.")],
    dataset: Annotated[str, typer.Option(help="pf-willow, pf-pascal, ...")] = "pf-willow",
    split: Annotated[str, typer.Option(help="Of the data set.")] = "test",
    every: Annotated[int, typer.Option(help="Take every so manieth pair.")] = 15,
    skip: Annotated[int, typer.Option(help="Leave out the first so many pairs.")] = 0,
    poses: Annotated[str, typer.Option(help="Of the matcher.")] = "upright",
    model: Annotated[str, typer.Option(help="Name or file of a model.")] = "chmnet-lite",
) -> None:
    """Print a row for each size."""
    pairs = load_pairs(dataset, root, split)[skip:]
    matcher = Matcher(model, poses=poses)
    typer.echo(f"{dataset} {split}, {len(pairs[::every])} pairs, PCK@{ALPHA} of the thing's box; times of whole")
    for reduced in ("", "target", "source"):
        for name, share in SHARES.items() if reduced else [("as they are", 1.0)]:
            rows = measure(matcher, pairs, every, share, reduced)
            cells = []
            for way, row in rows.items():
                ratio = row[:, 1].mean() / rows["whole"][:, 1].mean()
                cells.append(f"{way} {100 * row[:, 0].mean():.1f} ({ratio:.2f})")
            typer.echo("  ".join([f"{reduced} {name}".strip().ljust(16), *cells]))


if __name__ == "__main__":
    typer.run(main)
