"""More pairs from the same pictures: keypoints of one name in any two pictures of a batch that show one category.

A picture's features are the dear part of a step. Pairs that are formed across the batch's own pairs need none of
their own; only their features are compared (:func:`chmnet.training.objective.feature_loss`), not voted on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from chmnet.data.pairs import side_words
from chmnet.training.sources import AnnotatedSource, PairSource, TrainingPair

FEWEST_POINTS = 3
"""Keypoints that two pictures must share."""


@dataclass(frozen=True, eq=False)
class Crossing:
    """Pairs of a batch's pictures, numbered: first its sources, then its targets."""

    source: Int64[Tensor, " k"]
    target: Int64[Tensor, " k"]
    source_points: Float[Tensor, "k n 2"]
    target_points: Float[Tensor, "k n 2"]
    mask: Bool[Tensor, "k n"]

    def to(self, device: torch.device) -> "Crossing":
        """The same pairs on another device."""
        return Crossing(**{name: value.to(device) for name, value in vars(self).items()})


def cross_pairs(pairs: Sequence[TrainingPair], most: int) -> Crossing | None:
    """Pairs across a batch's pairs, at most so many, spread evenly over all there are; ``None``: there are none.

    Example:
        >>> from pathlib import Path
        >>> from chmnet.pictures import Picture, View
        >>> from chmnet.training.sources import ColouredView
        >>> points, names = np.zeros((3, 2)), ("nose", "tail", "left ear")
        >>> view = ColouredView(View(Picture(Path("dog.jpg"))))
        >>> dogs = [TrainingPair(view, view, points, points, "dog", names) for _ in range(2)]
        >>> found = cross_pairs(dogs, most=10)
        >>> sorted(zip(found.source.tolist(), found.target.tolist()))  # pairs of the batch: 0 and 2, 1 and 3
        [(0, 1), (0, 3), (1, 2), (2, 3)]
    """
    number = len(pairs)
    words = [side_words(pair.names, pair.mirrored) for pair in pairs]  # what looks alike is called alike
    sides = [*(pair.source_points for pair in pairs), *(pair.target_points for pair in pairs)]
    found = []
    for first, second in combinations(range(2 * number), 2):
        pair, other = pairs[first % number], pairs[second % number]
        here, there = sides[first], sides[second]
        if pair is other or not pair.names or pair.category != other.category:
            continue
        rows = {name: row for row, name in enumerate(words[first % number])}
        common = [(rows[name], row) for row, name in enumerate(words[second % number]) if name in rows]
        if len(common) >= FEWEST_POINTS:
            mine, theirs = zip(*common, strict=True)
            found.append((first, second, here[list(mine)], there[list(theirs)]))
    if not found or not most:
        return None
    chosen = [found[place] for place in np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int)]
    longest = max(len(item[2]) for item in chosen)
    points = torch.zeros(2, len(chosen), longest, 2)
    mask = torch.zeros(len(chosen), longest, dtype=torch.bool)
    for place, (_, _, here, there) in enumerate(chosen):
        points[0, place, : len(here)] = torch.from_numpy(here)
        points[1, place, : len(here)] = torch.from_numpy(there)
        mask[place, : len(here)] = True
    source, target = (torch.tensor([item[side] for item in chosen]) for side in (0, 1))
    return Crossing(source, target, points[0], points[1], mask)


def in_groups(
    plan: Sequence[tuple[int, int]], sources: Sequence[PairSource], size: int, seed: Sequence[int]
) -> list[tuple[int, int]]:
    """A plan in another order: named pairs of one category follow each other, ``size`` at a time.

    Args:
        plan: pairs as (number of the source, number of the pair).
        sources: where they come from.
        size: pairs of a group; all other pairs form groups of their own.
        seed: of the order of the groups.
    """
    waiting: dict[str, list[tuple[int, int]]] = {}
    groups = []
    for number, index in plan:
        source = sources[number]
        pair = source.pairs[index] if isinstance(source, AnnotatedSource) else None
        key = pair.category if pair is not None and pair.keypoint_names else ""
        waiting.setdefault(key, []).append((number, index))
        if len(waiting[key]) == size:
            groups.append(waiting.pop(key))
    groups += [waiting[key] for key in sorted(waiting)]
    order = np.random.default_rng(list(seed)).permutation(len(groups))
    return [entry for place in order for entry in groups[place]]
