"""Which pairs a run learns from: its sources opened, and the pairs of each epoch."""

import logging
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from chmnet import data
from chmnet.data.held_out import HeldOut, check_names
from chmnet.data.making_pairs import Instance, divide
from chmnet.data.pairs import Pair
from chmnet.data.reading import PICTURE_ENDINGS
from chmnet.errors import InputError
from chmnet.pictures import Picture
from chmnet.training.choosing import balanced_order, below_root, choose_pairs
from chmnet.training.config import AugmentationConfig, SourceConfig
from chmnet.training.sources import AnnotatedSource, PairSource
from chmnet.training.synthetic import SyntheticSource, Texture

GENERATED = 20
"""Textures that stand in where no folder of pictures is given."""
_SYNTHETIC_COUNT = 100

logger = logging.getLogger(__name__)


def open_sources(
    configs: Sequence[SourceConfig],
    root: Path | None,
    seed: int,
    augmentation: AugmentationConfig | None = None,
    held_out: HeldOut | None = None,
) -> list[PairSource]:
    """Read every source of a run.

    Args:
        configs: from the run's configuration.
        root: the folder that holds the data sets, for sources without a path.
        seed: of synthetic views; training and validation have different ones.
        augmentation: for training pairs.
        held_out: names of keypoints that no pair may have, by category.

    Raises:
        InputError: a source cannot be read, or holds no pairs, or held-out keypoints are misspelt.
    """
    read = [[] if config.dataset == "synthetic" else _read_pairs(config, root) for config in configs]
    if held_out:
        objects = [_objects(config, root, pairs) for config, pairs in zip(configs, read, strict=True)]
        check_names(chain.from_iterable(objects), held_out, all_categories=True)
    return [
        _open_source(config, root, [seed, number], pairs, augmentation, held_out)
        for number, (config, pairs) in enumerate(zip(configs, read, strict=True))
    ]


def _read_pairs(config: SourceConfig, root: Path | None) -> list[Pair]:
    """All pairs of a source of photographs."""
    if config.dataset == "list":
        return _listed_pairs(below_root(config.path, root), root, config.folder)
    return _annotated_pairs(config, root)


def _objects(config: SourceConfig, root: Path | None, pairs: list[Pair]) -> Sequence[Pair | Instance]:
    """What shows all keypoints of a source: the objects that pairs are drawn among, if any; else the pairs."""
    load_instances = data.DATASETS[config.dataset].load_instances if config.dataset in data.DATASETS else None
    return load_instances(_folder(config, root), config.split) if load_instances else pairs


def _folder(config: SourceConfig, root: Path | None) -> Path:
    """Where a source of a data set lies."""
    return _known_root(below_root(config.path, root) if config.path else root, config.dataset)


def _open_source(
    config: SourceConfig,
    root: Path | None,
    seeds: list[int],
    pairs: list[Pair],
    augmentation: AugmentationConfig | None,
    held_out: HeldOut | None,
) -> PairSource:
    if config.dataset == "synthetic":
        seed = int(np.random.default_rng(seeds).integers(2**31))
        return SyntheticSource(config, _pictures(config, root), seed)
    pairs = choose_pairs(pairs, config, root, held_out)
    if not pairs:
        raise InputError(f"{config.dataset} has no pairs left for its split {config.split}")
    return AnnotatedSource(config, pairs, augmentation or AugmentationConfig())


def _listed_pairs(path: Path, root: Path | None, folder: str) -> list[Pair]:
    """The pairs of a list; where PF-PASCAL lies below the root, without those of its test list."""
    root = _known_root(root, f"what {path.name} lists")
    pairs = data.lists.read_list(path, below_root(folder, root) if folder else root)
    return without_test_pairs(pairs, root) if (root / data.pf_pascal.FOLDER).is_dir() else pairs


def _known_root(root: Path | None, what: str) -> Path:
    if root is None:
        raise InputError(f"where is {what}? Name its folder with --root or CHMNET_DATA")
    return root


def _annotated_pairs(config: SourceConfig, root: Path | None) -> list[Pair]:
    root = _folder(config, root)
    options: dict[str, object] = {}
    if config.dataset in ("animal-pose", "coco"):
        options = {"minimum_common": config.minimum_common, "maximum_pairs": config.maximum_pairs}
        options["images"] = config.images
    if config.dataset == "spair-71k":
        options = {"layout": config.layout}
    pairs = data.load_pairs(config.dataset, root, config.split, **options)
    if config.dataset == "pf-pascal" and config.split == "train":
        return pairs if config.official else without_test_pairs(pairs, root)
    if config.dataset == "pf-pascal" and config.split == "val":  # a third of it stands in the training list too
        return data.deduplicate(pairs, data.training_pairs(root))
    return pairs


def without_test_pairs(pairs: list[Pair], root: Path) -> list[Pair]:
    """Training pairs without those that PF-PASCAL's test list has too, in either order."""
    listed = {data.image_names(pair) for pair in data.load_pairs("pf-pascal", root, "test")}
    kept = data.deduplicate(pairs, listed)
    logger.info("pf-pascal: %d of %d training pairs stand in the test list", len(pairs) - len(kept), len(pairs))
    return kept


def _pictures(config: SourceConfig, root: Path | None) -> list[Picture | Texture]:
    """The picture files of a folder, or generated textures; all of them, or one part of a fixed division."""
    if not config.path:
        return [Texture(int(number)) for number in divide([str(n) for n in range(GENERATED)], config.images)]
    folder = below_root(config.path, root)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} with pictures for synthetic pairs")
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in PICTURE_ENDINGS)
    if not files:
        raise InputError(f"the folder {folder} holds no pictures; synthetic pairs need at least one")
    return [Picture(name) for name in divide([str(file) for file in files], config.images)]


def epoch_plan(sources: Sequence[PairSource], seed: int, epoch: int) -> list[tuple[int, int]]:
    """The pairs of an epoch as (number of the source, number of the pair), in random order.

    A source with a ``count`` draws that many, without repeats as long as it has enough; else each of its pairs
    occurs ``weight`` times.
    """
    plan = []
    for number, source in enumerate(sources):
        generator = np.random.default_rng([seed, epoch, number])
        count = source.config.count or (
            _SYNTHETIC_COUNT if source.config.dataset == "synthetic" else round(source.config.weight * len(source))
        )
        if source.config.balanced and isinstance(source, AnnotatedSource):
            categories = [pair.category for pair in source.pairs]
            plan += [(number, index) for index in balanced_order(categories, count, [seed, epoch, number])]
            continue
        rounds = [generator.permutation(len(source)) for _ in range(-(-count // len(source)))]
        plan += [(number, int(index)) for index in np.concatenate([*rounds, np.zeros(0, int)])[:count]]
    order = np.random.default_rng([seed, epoch]).permutation(len(plan))
    return [plan[place] for place in order]
