"""Pairs made from annotated images: any two images of a category that show enough of the same keypoints."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.data.reading import LeftOutError, OnProblem, stop, with_unique_names
from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.pictures import Box

PARTS = ("all", "training", "held-out")
HELD_OUT_SHARE = 0.1
MAX_INSTANCES = 2000
"""Larger categories are sampled: the table of all pairs must fit in memory."""


@dataclass(frozen=True, eq=False)
class Instance:
    """One object in one image."""

    name: str
    """Unique within the data set."""
    category: str
    path: Path
    keypoints: np.ndarray
    """``n`` rows (x, y), float64; NaN where the part cannot be seen."""
    keypoint_names: tuple[str, ...]
    """The same for all instances of a category."""
    box: Box | None = None
    size: Size | None = None
    """(height, width) that the data set records for the image."""
    origin: str = ""
    """File and entry, for messages."""


def without_outside(instance: Instance, on_problem: OnProblem) -> Instance:
    """The instance; keypoints outside its image become NaN, and are reported.

    Example:
        >>> cat = Instance("1", "cat", Path("1.jpg"), np.array([[5.0, 5.0], [-3.0, 5.0]]), ("nose", "tail"),
        ...                size=(10, 10))
        >>> without_outside(cat, print).keypoints.tolist()
        : tail at (-3.0, 5.0) lies outside the image of 10×10 pixels; it is left out
        [[5.0, 5.0], [nan, nan]]
    """
    if instance.size is None:
        return instance
    keypoints = instance.keypoints.copy()
    height, width = instance.size
    for index in np.flatnonzero(outside(keypoints, instance.size)):
        x, y = keypoints[index]
        place = f"{instance.keypoint_names[index]} at ({x:.1f}, {y:.1f})"
        text = f"{place} lies outside the image of {width}×{height} pixels; it is left out"
        on_problem(LeftOutError(f"{instance.origin}: {text}"))
        keypoints[index] = np.nan
    return replace(instance, keypoints=keypoints)


def outside(keypoints: np.ndarray, size: Size) -> np.ndarray:
    """Which of the keypoints lie outside an image of (height, width); its edges are inside, NaN is not outside."""
    height, width = size
    return np.any((keypoints < 0) | (keypoints > (width, height)), axis=1)


def load_made(
    load_instances: Callable[[str | Path, str, OnProblem], list[Instance]],
    root: str | Path,
    split: str = "test",
    minimum_common: int = 3,
    maximum_pairs: int = 1000,
    seed: int = 0,
    images: str = "all",
    on_problem: OnProblem = stop,
) -> list[Pair]:
    """Pairs made between the images of a split; ``seed`` chooses the pairs, never the split.

    Args:
        load_instances: reads the annotated images.
        root: the folder of the data set.
        split: of the data set.
        minimum_common: keypoints that both images of a pair must show.
        maximum_pairs: pairs that are made.
        seed: of their choice.
        images: ``all``, or a part of the split's, see :func:`divide`.
        on_problem: what to do about an entry that is wrong.

    Raises:
        InputError: a file is missing or broken; the message names the file and the entry.
    """
    instances = load_instances(root, split, on_problem)
    chosen = set(divide(sorted({str(instance.path) for instance in instances}), images))
    instances = [instance for instance in instances if str(instance.path) in chosen]
    return make_pairs(instances, minimum_common, maximum_pairs, seed)


def divide(names: list[str], part: str) -> list[str]:
    """``all`` names, or the nine tenths (``training``) or the one tenth (``held-out``) of a fixed division.

    Example:
        >>> divide(["a", "b", "c"], "held-out"), divide(["a", "b", "c"], "training")
        (['c'], ['a', 'b'])
    """
    if part not in PARTS:
        raise InputError(f"images must be {', '.join(PARTS[:-1])} or {PARTS[-1]}, got {part!r}")
    if part == "all":
        return names
    order = np.random.default_rng(0).permutation(len(names))
    held_out = {names[index] for index in order[: max(1, round(HELD_OUT_SHARE * len(names)))]}
    chosen = [name for name in names if (name in held_out) == (part == "held-out")]
    if not chosen:
        raise InputError(f"{len(names)} pictures cannot be divided into training and held-out ones")
    return chosen


def make_pairs(
    instances: Sequence[Instance], minimum_common: int = 3, maximum_pairs: int = 1000, seed: int = 0
) -> list[Pair]:
    """Pairs between different images of a category, with at least ``minimum_common`` keypoints seen in both.

    The same instances and seed always give the same pairs. The categories get equal shares of
    ``maximum_pairs``; what one cannot use goes to the others.

    Raises:
        InputError: no pair can be made, or an argument is not positive.
    """
    if minimum_common < 1 or maximum_pairs < 1:
        raise InputError(
            f"minimum_common and maximum_pairs must be at least 1, got {minimum_common} and {maximum_pairs}"
        )
    generator = np.random.default_rng(seed)
    groups = list(_by_category(instances, generator))
    candidates = [_candidates(group, minimum_common) for group in groups]
    shares = share_out(maximum_pairs, [len(rows) for rows in candidates])
    pairs = [
        _make_pair(group[first], group[second])
        for group, rows, share in zip(groups, candidates, shares, strict=True)
        for first, second in rows[generator.permutation(len(rows))[:share]]
    ]
    if not pairs:
        raise InputError(
            f"among {len(instances)} objects no two images of a category share {minimum_common} visible keypoints"
        )
    return with_unique_names(pairs)


def share_out(total: int, wanted: Sequence[int]) -> list[int]:
    """Equal shares of ``total``; none gets more than it wants.

    Example:
        >>> share_out(10, [2, 100, 5])
        [2, 4, 4]
    """
    shares = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for place, index in enumerate(order):
        shares[index] = min(wanted[index], total // (len(order) - place))
        total -= shares[index]
    return shares


def _by_category(instances: Sequence[Instance], generator: np.random.Generator) -> Iterator[list[Instance]]:
    """The instances of each category in random order, so that either image may become the source."""
    for category in sorted({instance.category for instance in instances}):
        members = [instance for instance in instances if instance.category == category]
        members.sort(key=lambda instance: instance.name)
        yield [members[index] for index in generator.permutation(len(members))[:MAX_INSTANCES]]


def _candidates(group: list[Instance], minimum_common: int) -> np.ndarray:
    """Indices (first, second) of all pairs that may be made in a group."""
    visible = np.stack([~np.isnan(instance.keypoints).any(axis=1) for instance in group]).astype(np.float32)
    numbers = {path: number for number, path in enumerate({instance.path for instance in group})}
    image = np.array([numbers[instance.path] for instance in group])
    suitable = (visible @ visible.T >= minimum_common) & (image[:, None] != image)
    return np.argwhere(np.triu(suitable))


def _make_pair(source: Instance, target: Instance) -> Pair:
    here, there = (~np.isnan(side.keypoints).any(axis=1) for side in (source, target))
    both = here & there
    names = tuple(name for name, seen in zip(source.keypoint_names, both, strict=True) if seen)
    sides = [AnnotatedImage(side.path, side.keypoints[both], side.box) for side in (source, target)]
    return Pair(
        name=f"{source.name}-{target.name}:{source.category}",
        category=source.category,
        source=sides[0],
        target=sides[1],
        keypoint_names=names,
        origin=f"{source.origin} and {target.origin}",
        unmatched=source.keypoints[here & ~there],
    )
