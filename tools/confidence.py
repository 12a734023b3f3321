"""What the confidence of matches, ``unmatched`` and ``same_kind`` are worth on test pairs that no fit has seen.

python tools/confidence.py --root datasets
"""

import random
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image, ImageOps

from chmnet import Matcher
from chmnet.data import load_pairs
from chmnet.data.pairs import Pair
from chmnet.evaluation.calibrate import thing_side
from chmnet.metrics import hits
from chmnet.metrics.reliability import reliability

SURE = 0.8
"""A wrong match above this confidence misleads a person."""
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.01)
"""Confidences whose shares of right matches are printed."""


def confidences(matcher: Matcher, pairs: list[Pair], mirrored: bool) -> tuple[np.ndarray, np.ndarray]:
    """Confidence of each keypoint's match, and whether it is within a tenth of the thing."""
    confidence, right = [], []
    for pair in pairs:
        with Image.open(pair.target.path) as opened:
            picture, truth = opened.convert("RGB"), pair.target.keypoints
        if mirrored:
            picture = ImageOps.mirror(picture)
            truth = np.column_stack([picture.width - truth[:, 0], truth[:, 1]])
        found = matcher.match(pair.source.path, picture).transfer(pair.source.keypoints)
        confidence.append(found.confidence)
        right.append(hits(np.linalg.norm(found.target - truth, axis=1), 0.1 * thing_side(pair.target)))
    return np.concatenate(confidence).astype(np.float64), np.concatenate(right)


def same_kind(matcher: Matcher, sets: list[list[Pair]], count: int) -> float:
    """AUROC of ``same_kind``: of each set ``count`` of its pairs, and as many of two categories."""
    generator, alike, different = random.Random(0), [], []
    for pairs in sets:
        alike += [(pair.source.path, pair.target.path) for pair in generator.sample(pairs, count)]
        for _ in range(count):
            first = generator.choice(pairs)
            others = [pair for pair in pairs if _kind(pair) != _kind(first)]
            different.append((first.source.path, generator.choice(others).target.path))
    found = [np.array([matcher.match(*pair).same_kind for pair in group]) for group in (alike, different)]
    return float(np.mean(found[0][:, None] > found[1]) + np.mean(found[0][:, None] == found[1]) / 2)


def hidden_parts(matcher: Matcher, pairs: list[Pair]) -> str:
    """AUROC of ``unmatched``: keypoints that the target does not show against those that it does."""
    if not matcher.model.config.calibration.unmatched:
        return "not known: the model has no calibration.unmatched, which chmnet calibrate fits"
    shown, hidden = [], []
    for pair in pairs:
        if len(pair.unmatched):
            result = matcher.match(pair.source.path, pair.target.path)
            shown.append(result.unmatched_at(pair.source.keypoints))
            hidden.append(result.unmatched_at(pair.unmatched))
    probability = np.concatenate([*shown, *hidden])
    truth = np.arange(len(probability)) >= sum(len(each) for each in shown)
    return f"AUROC {reliability(probability, truth).auroc:.3f}"


def print_bins(confidence: np.ndarray, right: np.ndarray) -> None:
    """How many matches have which confidence, and how many of them are right."""
    for low, high in pairwise(BINS):
        here = (confidence >= low) & (confidence < high)
        if here.any():
            share = right[here].mean()
            typer.echo(f"  {low:.1f} to {min(high, 1.0):.1f}: {here.sum():5} matches, {share:.0%} right")


def _kind(pair: Pair) -> str:
    return pair.category.partition("(")[0]  # PF-WILLOW has car(G), car(M), car(S)


def main(
    root: Annotated[Path, typer.Option(help="Folder that holds PF-WILLOW, PF-PASCAL and SPair-71k-subset.")],
    model: Annotated[str, typer.Option(help="Name or file of a model.")] = "chmnet-lite",
) -> None:
    """Print a row for each data set, matched upright, and one for pairs of the same kind or not."""
    matcher = Matcher(model, poses="upright")
    willow, pascal = load_pairs("pf-willow", root), load_pairs("pf-pascal", root)
    spair = load_pairs("spair-71k", root / "SPair-71k-subset")
    for name, pairs in (("PF-WILLOW", willow[::4]), ("SPair subset", spair[::2]), ("PF-PASCAL", pascal[::2])):
        upright = confidences(matcher, pairs, mirrored=False)
        found = reliability(*upright)
        confidence, right = confidences(matcher, pairs, mirrored=True)
        typer.echo(
            f"{name}, {len(pairs)} pairs: right {found.correct:.3f}, "
            f"calibration error {found.calibration_error:.3f}, AUROC {found.auroc:.3f}; "
            f"mirrored: wrong above {SURE} {(confidence[~right] > SURE).mean():.3f}"
        )
        print_bins(*upright)
    animals = load_pairs("animal-pose", root, "test", maximum_pairs=100)
    typer.echo(f"hidden or shown, {len(animals)} pairs of Animal-Pose, {hidden_parts(matcher, animals)}")
    typer.echo(f"same kind or not, 600 pairs, AUROC {same_kind(matcher, [willow, pascal], 150):.3f}")


if __name__ == "__main__":
    typer.run(main)
