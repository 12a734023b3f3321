"""Keypoints that a run never sees, to measure what a model knows about points that it was not trained on."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

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


def check_names(pairs: Iterable[Pair], names: HeldOut, all_categories: bool = False) -> None:
    """Refuse names that no keypoint of the pairs has, such as misspelt ones.

    Args:
        pairs: before anything is held out.
        names: by category.
        all_categories: whether every category must occur; else the list may be for other data sets too.

    Raises:
        InputError: a keypoint, or a category that must occur, is not there.
    """
    known: dict[str, set[str]] = {}
    for pair in pairs:
        known.setdefault(pair.category, set()).update(pair.keypoint_names)
    here = {
        category: set().union(*known.values()) if category == EVERY else known.get(category) for category in names
    }
    for category, there in here.items():
        if there is None and all_categories:
            raise InputError(
                f"keypoints of {shorten(category)} are held out, but there is no such category; "
                f"there are {', '.join(map(shorten, sorted(known)))}"
            )
        wrong = [] if there is None else sorted(names[category] - there)
        if there and wrong:
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
