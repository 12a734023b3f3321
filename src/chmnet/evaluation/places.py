"""Fit when a thing is searched in the other picture: by how much do pictures agree that show it at like sizes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64
from PIL import Image

from chmnet.data.pairs import Pair, kind_of
from chmnet.evaluation.calibrate import spread
from chmnet.matcher import Matcher
from chmnet.nn.chmnet import CHMNet
from chmnet.pictures import Box, Picture, View
from chmnet.place import agree

SHARES = (1 / 3, 1 / 5)
"""Sides of the reduced targets."""
PAIRS = 80
"""Pairs of each set that are looked at, at most."""
MOST_SEARCHED = 0.35
"""Share of the pairs of a set, as they are, that may be searched: a search takes longer than a match."""


@dataclass(frozen=True, eq=False)
class Agreements:
    """By how much the pictures of one set agree."""

    plain: Float64[np.ndarray, " n"]
    reduced: Float64[np.ndarray, " m"]
    """With the target much smaller, on another photograph."""


def collect_places(
    pairs: Sequence[Pair],
    model: CHMNet,
    track: Callable[[Sequence[Pair]], Iterable[Pair]] = iter,
    device: str = "auto",
) -> Agreements:
    """Compare the pictures of some pairs as they are, and with reduced targets."""
    matcher = Matcher(model, device, poses="upright")
    plain: list[float] = []
    reduced: list[float] = []
    for number, pair in enumerate(track(spread(pairs, PAIRS))):
        generator = np.random.default_rng(number)
        behind = other_category(pairs, pair, generator)
        small = [View.of(paste(pair.target.path, behind, share, generator)[0]) for share in SHARES]
        source = matcher.extract(pair.source.path, "source")
        for reductions, view in enumerate((View.of(pair.target.path), *small)):
            target = matcher.extract(view, "target")
            (reduced if reductions else plain).append(agree(source, target, matcher.votes))
    return Agreements(np.array(plain), np.array(reduced))


def fit_place(sets: Sequence[Agreements]) -> tuple[float]:
    """``calibration.place``: the agreement that parts pairs as they are from reduced ones best, each set alike.

    No set may have more than :data:`MOST_SEARCHED` of its pairs below it. (A reduced thing may lie on a larger one
    that is like it, and agree well for that.)

    Example:
        >>> fit_place([Agreements(np.array([0.6, 0.7]), np.array([0.2, 0.4]))])
        (0.5,)
    """
    values = np.unique(np.concatenate([each for one in sets for each in (one.plain, one.reduced)]))
    limits = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2])

    def parted(limit: float) -> float:
        if max((one.plain < limit).mean() for one in sets) > MOST_SEARCHED:
            return -np.inf
        return float(sum((one.reduced < limit).mean() - (one.plain < limit).mean() for one in sets))

    return (round(float(max(limits, key=parted)), 4),)


def paste(
    picture: Path, background: Path, share: float, generator: np.random.Generator
) -> tuple[Image.Image, Box]:
    """A picture, reduced, anywhere on another one that is made as large as it was; and where it is."""
    front = Picture(picture).image
    canvas = Picture(background).image.resize(front.size)
    width, height = max(1, round(share * front.width)), max(1, round(share * front.height))
    left, top = generator.integers(canvas.width - width + 1), generator.integers(canvas.height - height + 1)
    canvas.paste(front.resize((width, height)), (int(left), int(top)))
    return canvas, (float(left), float(top), float(left + width), float(top + height))


def other_category(pairs: Sequence[Pair], pair: Pair, generator: np.random.Generator) -> Path:
    """A photograph of another category; of the same where there is no other."""
    others = [other for other in pairs if kind_of(other.category) != kind_of(pair.category)] or list(pairs)
    return others[int(generator.integers(len(others)))].target.path
