"""PCK on PF-WILLOW with targets as they are, mirrored and turned, for each search of poses, and its time.

python tools/poses.py --root datasets
python tools/poses.py --root datasets --faces
"""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image, ImageOps

from chmnet import Matcher
from chmnet.data import load_pairs
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.evaluation.calibrate import thing_side
from chmnet.metrics import hits
from chmnet.poses import POSES

Change = Callable[[Image.Image, np.ndarray], tuple[Image.Image, np.ndarray]]
ALPHAS = (0.05, 0.1)


def mirror(picture: Image.Image, points: np.ndarray) -> tuple[Image.Image, np.ndarray]:
    """The mirror image."""
    return ImageOps.mirror(picture), np.column_stack([picture.width - points[:, 0], points[:, 1]])


def turn(degrees: float) -> Change:
    """Turned counter-clockwise, in a frame that holds all of the picture, black beside it."""

    def change(picture: Image.Image, points: np.ndarray) -> tuple[Image.Image, np.ndarray]:
        turned = picture.rotate(degrees, expand=True, resample=Image.Resampling.BICUBIC)
        cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
        x, y = (points - np.array(picture.size) / 2).T
        moved = np.column_stack([x * cosine + y * sine, y * cosine - x * sine])
        return turned, moved + np.array(turned.size) / 2

    return change


CHANGES: dict[str, Change] = {"as they are": lambda picture, points: (picture, points), "mirrored": mirror}
CHANGES |= {f"turned by {degrees}°": turn(degrees) for degrees in (90, 180, 270, 30, 60)}


def faces(root: Path, count: int) -> list[Pair]:
    """Pairs of WILLOW-ObjectClass's faces, seen from the front, with all ten keypoints."""
    folder = root / "WILLOW-ObjectClass"
    listed = json.loads((folder / "keypoints.json").read_text(encoding="utf-8"))
    sides = [
        AnnotatedImage(folder / name, np.array(entry["kps"], dtype=float))
        for name, entry in sorted(listed.items())
        if name.startswith("Face/") and len(entry["kps"]) == 10 and None not in np.ravel(entry["kps"]).tolist()
    ]
    pairs = []
    for number in range(count):
        source, target = random.Random(number).sample(sides, 2)
        pairs.append(Pair(str(number), "face", source, target))
    return pairs


def measure(matcher: Matcher, pairs: list[Pair], change: Change) -> tuple[str, float]:
    """PCK at both α, and milliseconds of a pair."""
    shares, times = [], []
    for pair in pairs:
        with Image.open(pair.target.path) as opened:
            picture, truth = change(opened.convert("RGB"), pair.target.keypoints)
        start = time.perf_counter()
        found = matcher.match(pair.source.path, picture).locate(pair.source.keypoints)
        times.append(time.perf_counter() - start)
        distances = np.linalg.norm(found - truth, axis=1)
        shares.append([hits(distances, alpha * thing_side(pair.target)).mean() for alpha in ALPHAS])
    return " / ".join(f"{100 * share:.1f}" for share in np.mean(shares, axis=0)), 1000 * float(np.median(times))


def main(
    root: Annotated[Path, typer.Option(help="Folder that holds PF-WILLOW.")],
    every: Annotated[int, typer.Option(help="Take every so manieth pair.")] = 3,
    without: Annotated[str, typer.Option(help="Leave out categories with this in their name.")] = "",
    model: Annotated[str, typer.Option(help="Name or file of a model.")] = "chmnet-lite",
    only: Annotated[
        list[str] | None, typer.Option(help="Only these changes, such as mirrored; repeatable.")
    ] = None,
    searches: Annotated[
        list[str] | None, typer.Option("--poses", help="Only these searches, such as any; repeatable.")
    ] = None,
    frontal: Annotated[
        bool, typer.Option("--faces", help="300 pairs of faces of WILLOW-ObjectClass, as they are.")
    ] = False,
) -> None:
    """Print a row for each change of the target."""
    pairs = faces(root, 300) if frontal else load_pairs("pf-willow", root)[::every]
    pairs = [pair for pair in pairs if not without or without not in pair.category]
    names = ["as they are"] if frontal else only or list(CHANGES)
    typer.echo(f"{len(pairs)} pairs, PCK@0.05 / 0.1 of the keypoints' box; milliseconds of a pair")
    matchers = {poses: Matcher(model, poses=poses) for poses in searches or POSES}
    for name in names:
        found = {poses: measure(matcher, pairs, CHANGES[name]) for poses, matcher in matchers.items()}
        cells = [f"{poses} {pck} ({spent:.0f} ms)" for poses, (pck, spent) in found.items()]
        typer.echo("  ".join([f"{name:14}", *cells]))


if __name__ == "__main__":
    typer.run(main)
