"""Which annotated pairs a source gives: none with pictures to avoid, none of keypoints held out, poses chosen."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from chmnet.data.held_out import HeldOut, choose_keypoints
from chmnet.data.pairs import Pair
from chmnet.data.posing import choose_poses
from chmnet.data.reading import PICTURE_ENDINGS
from chmnet.errors import InputError
from chmnet.training.config import SourceConfig


def choose_pairs(
    pairs: list[Pair], config: SourceConfig, root: Path | None, held_out: HeldOut | None = None
) -> list[Pair]:
    """The pairs that a source's configuration leaves.

    Args:
        pairs: all that were read.
        config: of the source.
        root: the folder that holds the data sets.
        held_out: keypoints that no pair may have; see :func:`chmnet.data.held_out.read_held_out`.

    Raises:
        InputError: a folder of pictures to avoid does not exist, or pairs have keypoints without names while some
            are held out.
    """
    for folder in config.avoid:
        names = _pictures_below(below_root(folder, root))
        pairs = [p for p in pairs if not {p.source.path.stem, p.target.path.stem} & names]
    if held_out:
        pairs = [choose_keypoints(pair, held_out, held_out=False) for pair in pairs]
        pairs = [pair for pair in pairs if len(pair.keypoint_names) >= config.minimum_common]
    if config.same_pose or config.mirror:
        pairs = choose_poses(pairs, config.same_pose, config.mirror)
    return pairs


def below_root(path: str, root: Path | None) -> Path:
    """A path as it is given, or below the root of the data sets where only that exists."""
    given = Path(path)
    if root is not None and not given.exists() and (root / given).exists():
        return root / given
    return given


def _pictures_below(folder: Path) -> set[str]:
    """Names, without their endings, of the pictures in a folder and below."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} with pictures to avoid; name it below --root")
    return {file.stem for file in folder.rglob("*") if file.suffix.lower() in PICTURE_ENDINGS}


def balanced_order(categories: Sequence[str], count: int, seed: Sequence[int]) -> list[int]:
    """Numbers of ``count`` pairs, every category as often as the others; each goes round its own pairs.

    Example:
        >>> order = balanced_order(["cat", "cat", "cat", "dog"], 4, [0])
        >>> sum(number == 3 for number in order)
        2
    """
    generator = np.random.default_rng(list(seed))
    groups: dict[str, list[int]] = {}
    for number, category in enumerate(categories):
        groups.setdefault(category, []).append(number)
    names = sorted(groups)
    order: list[int] = []
    rounds: dict[str, list[int]] = {name: [] for name in names}
    while len(order) < count:
        for place in generator.permutation(len(names)):
            rest = rounds[names[place]]
            if not rest:
                rest.extend(generator.permutation(groups[names[place]]).tolist())
            order.append(int(rest.pop()))
    return order[:count]
