"""Keypoints that a run never sees, to measure what a model knows about points that it was not trained on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from chmnet.data.pairs import Pair
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
