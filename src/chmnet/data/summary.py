"""Counts of a data set, and the problems in its files."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from chmnet.data import Dataset, find_dataset
from chmnet.data.making_pairs import Instance, outside
from chmnet.data.pairs import AnnotatedImage, Pair, open_mask
from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.pictures import to_picture

Track = Callable[[Sequence[Path]], Iterable[Path]]
"""Wraps the images, for a progress bar."""


@dataclass(frozen=True)
class Range:
    """Smallest, middle and largest of many numbers."""

    smallest: float = 0
    median: float = 0
    largest: float = 0


@dataclass(frozen=True)
class Summary:
    """Counts of a split of a data set, and the problems found in its files."""

    dataset: str
    split: str
    root: str
    pairs: int
    repeated_pairs: int
    """How many of them are the same as an earlier one; the official training list of PF-PASCAL has such."""
    images: int
    instances: int | None
    """Annotated objects, where pairs are made from them."""
    categories: dict[str, int]
    """Pairs of each category."""
    keypoints: Range
    """Keypoints of a pair."""
    widths: Range
    heights: Range
    boxes: int
    """Pairs with the boxes of both objects."""
    masks: int
    """Pairs with the masks of both objects."""
    problems: tuple[str, ...]
    """One sentence each, with file and line."""

    def as_json(self) -> dict[str, object]:
        """As it is written to a file."""
        return asdict(self)


def summarise(name: str, root: str | Path, split: str = "test", track: Track = iter, **options: object) -> Summary:
    """Read a data set, open every image of it, and count; problems are collected, not raised.

    Takes what :func:`chmnet.data.load_pairs` takes, and ``track``.

    Raises:
        InputError: there is no such data set, split or folder.
    """
    dataset = find_dataset(name, root, split)
    dataset.check_options(options)
    problems: list[str] = []
    pairs, instances = _read(dataset, root, split, problems, options)
    sizes = _open_images(pairs, instances, problems, track)
    for pair in pairs:
        for side in (pair.source, pair.target):
            problems += _wrong_keypoints(side, sizes, pair.origin) + _wrong_mask(side, sizes, pair.origin)
    for one in instances:
        problems += _wrong_keypoints(one, sizes, one.origin)
    problems += _wrong_sizes(instances, sizes)
    problems += _unknown_categories([*pairs, *instances], dataset)
    repeated = _repeated(pairs)
    if split != "train":  # a list may repeat what it trains on more often, but not what it counts
        problems += [f"{later.origin}: the same pair as {first.origin}" for first, later in repeated]
    return Summary(
        dataset=name,
        split=split,
        root=str(root),
        pairs=len(pairs),
        repeated_pairs=len(repeated),
        images=len(sizes),
        instances=len(instances) if dataset.load_instances else None,
        categories=dict(sorted(Counter(pair.category for pair in pairs).items())),
        keypoints=_range([len(pair.source.keypoints) for pair in pairs]),
        widths=_range([width for _, width in sizes.values()]),
        heights=_range([height for height, _ in sizes.values()]),
        boxes=sum(pair.source.box is not None and pair.target.box is not None for pair in pairs),
        masks=sum(pair.source.mask is not None and pair.target.mask is not None for pair in pairs),
        problems=tuple(dict.fromkeys(problems)),
    )


def _read(
    dataset: Dataset, root: str | Path, split: str, problems: list[str], options: dict[str, object]
) -> tuple[list[Pair], list[Instance]]:
    """Pairs and instances; whatever cannot be read is a problem."""

    def note(problem: InputError) -> None:
        problems.append(str(problem))

    pairs: list[Pair] = []
    instances: list[Instance] = []
    try:
        if dataset.load_instances is not None:
            instances = dataset.load_instances(root, split, on_problem=note)
        pairs = dataset.load(root, split, on_problem=note, **options)
    except InputError as problem:
        note(problem)
    return pairs, instances


def _open_images(
    pairs: list[Pair], instances: list[Instance], problems: list[str], track: Track
) -> dict[Path, Size]:
    """The size of every image that can be opened."""
    origins: dict[Path, str] = {}
    for pair in pairs:
        for side in (pair.source, pair.target):
            origins.setdefault(side.path, pair.origin)
    for instance in instances:
        origins[instance.path] = instance.origin
    sizes = {}
    for path in track(list(origins)):
        try:
            picture = to_picture(path)
            sizes[path] = (picture.height, picture.width)
        except InputError as problem:
            problems.append(f"{origins[path]}: {problem}")
    return sizes


def _wrong_keypoints(one: AnnotatedImage | Instance, sizes: dict[Path, Size], origin: str) -> list[str]:
    if one.path not in sizes:
        return []
    height, width = sizes[one.path]
    return [
        f"{origin}: the keypoint ({x:.1f}, {y:.1f}) lies outside {one.path.name} of {width}×{height} pixels"
        for x, y in one.keypoints[outside(one.keypoints, (height, width))]
    ]


def _wrong_mask(side: AnnotatedImage, sizes: dict[Path, Size], origin: str) -> list[str]:
    if side.mask is None or side.path not in sizes:
        return []
    try:
        mask = open_mask(side.mask)
    except InputError as problem:
        return [f"{origin}: {problem}"]
    if mask.shape != sizes[side.path]:
        return [f"{origin}: the mask {side.mask} is not of the size of its image"]
    return [] if mask.any() else [f"{origin}: the mask {side.mask} is empty"]


def _wrong_sizes(instances: list[Instance], sizes: dict[Path, Size]) -> list[str]:
    """Images that were changed after they were annotated."""
    return [
        f"{one.origin}: the image is said to have {one.size[1]}×{one.size[0]} pixels, "
        f"but {one.path} has {sizes[one.path][1]}×{sizes[one.path][0]}"
        for one in instances
        if one.size is not None and sizes.get(one.path, one.size) != one.size
    ]


def _unknown_categories(annotated: list[Pair | Instance], dataset: Dataset) -> list[str]:
    known = dataset.categories
    if known is None:
        return []
    text = f"{dataset.name} has only {', '.join(sorted(known))}"
    return [
        f"{one.origin}: unknown category {one.category!r}; {text}"
        for one in annotated
        if one.category not in known
    ]


def _repeated(pairs: list[Pair]) -> list[tuple[Pair, Pair]]:
    """The first and a later one of pairs that are the same in everything but their name."""
    first: dict[tuple[object, ...], Pair] = {}
    repeated = []
    for pair in pairs:
        sides = [(side.path, side.keypoints.tobytes()) for side in (pair.source, pair.target)]
        key = (pair.category, tuple(sorted(pair.flags.items())), *sides)
        if key in first:
            repeated.append((first[key], pair))
        first.setdefault(key, pair)
    return repeated


def _range(numbers: Sequence[int]) -> Range:
    return Range(min(numbers), statistics.median(numbers), max(numbers)) if numbers else Range()
