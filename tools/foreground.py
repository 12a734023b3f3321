"""Do the matches that are shown by default lie on the objects: the 12 spread ones, and the 300 best?

python tools/foreground.py --root datasets
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from chmnet import Matcher, Matches
from chmnet.data import load_pairs
from chmnet.data.boxes import load_boxes
from chmnet.pictures import Box


def inside(points: np.ndarray, boxes: tuple[Box, ...]) -> np.ndarray:
    """Which points lie in one of the boxes."""
    found = np.zeros(len(points), bool)
    for left, top, right, bottom in boxes:
        found |= ((points >= (left, top)) & (points <= (right, bottom))).all(1)
    return found


def main(
    root: Annotated[Path, typer.Option(help="Folder that holds PF-PASCAL.")],
    model: Annotated[str, typer.Option(help="Name or file of a model.")] = "chmnet-lite",
    every: Annotated[int, typer.Option(help="Only every so many pairs.", min=1)] = 1,
) -> None:
    """Print the share of matches on PF-PASCAL's test pairs that start and end inside of objects' boxes."""
    boxes = {each.path: each.boxes for each in load_boxes("pf-pascal", root, "test")}
    pairs = [
        pair
        for pair in load_pairs("pf-pascal", root)[::every]
        if pair.source.path in boxes and pair.target.path in boxes
    ]
    if not pairs:
        raise SystemExit("no pair of PF-PASCAL has boxes for both of its pictures; nothing to measure")
    kinds: dict[str, list[np.ndarray]] = {"12 default points": [], "300 best matches": []}
    matcher = Matcher(model)
    for pair in pairs:
        result = matcher.match(pair.source.path, pair.target.path)
        shown: tuple[Matches, Matches] = result.matches(top=12, spread=True), result.matches(top=300)
        for kind, matches in zip(kinds.values(), shown, strict=True):
            source, target = boxes[pair.source.path], boxes[pair.target.path]
            kind.append(inside(matches.source, source) & inside(matches.target, target))
    for name, found in kinds.items():
        typer.echo(f"{name}, {len(pairs)} pairs: {np.concatenate(found).mean():.1%} inside of boxes at both ends")


if __name__ == "__main__":
    typer.run(main)
