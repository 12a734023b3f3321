"""Keypoints that a run never sees, to measure what a model knows about points that it was not trained on."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from chmnet.data.making_pairs import Instance
from chmnet.data.pairs import Pair
from chmnet.data.reading import shorten
from chmnet.errors import ConfigError, InputError
from chmnet.files import read_toml

EVERY = "every-category"
"""Key of the held-out names that hold for all categories."""

HeldOut = Mapping[str, frozenset[str]]
"""Names of keypoints, by category."""


def read_held_out(path: str | Path) -> HeldOut:
    """Read a TOML file of held-out keypoints: ``category = ["name", …]``, or ``every-category`` for all.

    Raises:
        ConfigError: the file cannot be read, or holds anything else.
    """
    document = read_toml(path)
    for category, names in document.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{path}: {category} must be a list of names of keypoints")
    return {category: frozenset(names) for category, names in document.items()}


def check_names(annotated: Iterable[Pair | Instance], names: HeldOut, all_categories: bool = False) -> None:
    """Refuse names that no keypoint of a data set has, such as misspelt ones, and lists for other data sets.

    A name is known if any category has it: drawn pairs need not show all that a category has.

    Args:
        annotated: the objects that pairs are drawn among, where there are any; else the pairs. Nothing is held out
            yet.
        names: by category.
        all_categories: whether every category must occur; else one must, the list may be for other data sets too.

    Raises:
        InputError: a keypoint, or a category that must occur, is not there.
    """
    known: dict[str, set[str]] = {}
    for each in annotated:
        known.setdefault(each.category, set()).update(each.keypoint_names)
    if not known:
        raise InputError("keypoints are held out, but nothing here has annotated keypoints; leave the list out")
    missing = sorted(names.keys() - known.keys() - {EVERY})
    if missing and (all_categories or len(missing) == len(names)):
        raise InputError(
            f"keypoints of {' and '.join(map(shorten, missing))} are held out, but there is no such category; "
            f"there are {', '.join(map(shorten, sorted(known)))}"
        )
    everything = set().union(*known.values())
    for category in sorted(names.keys() - set(missing)):
        there = everything if category == EVERY else known[category]
        wrong = sorted(names[category] - everything) if there else []
        if wrong:
            raise InputError(
                f"held-out keypoints: {shorten(category)} has none called {' or '.join(map(shorten, wrong))}; "
                f"it has {', '.join(map(shorten, sorted(there)))}"
            )


def choose_keypoints(pair: Pair, names: HeldOut, held_out: bool) -> Pair:
    """A pair with its held-out keypoints only, or without them.

    Raises:
        InputError: the pair's keypoints have no names.
    """
    if not pair.keypoint_names:
        raise InputError(
            f"{pair.origin or pair.name}: its keypoints have no names, so none can be held out; "
            "leave this data set out"
        )
    hidden = names.get(pair.category, frozenset()) | names.get(EVERY, frozenset())
    rows = [row for row, name in enumerate(pair.keypoint_names) if (name in hidden) == held_out]
    return replace(
        pair,
        source=replace(pair.source, keypoints=pair.source.keypoints[rows]),
        target=replace(pair.target, keypoints=pair.target.keypoints[rows]),
        keypoint_names=tuple(pair.keypoint_names[row] for row in rows),
    )
