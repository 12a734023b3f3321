"""Data sets: pairs of photographs with the keypoints that both show.

Example:
    ``load_pairs("pf-pascal", "datasets", split="test")`` reads ``datasets/PF-PASCAL/test_pairs.csv``.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from chmnet.data import animal_pose, coco, held_out, pf_pascal, pf_willow, spair
from chmnet.data.lists import read_list, write_list
from chmnet.data.making_pairs import Instance
from chmnet.data.pairs import AnnotatedImage, Pair, deduplicate, image_names
from chmnet.data.pf_pascal import training_pairs
from chmnet.data.reading import dataset_folder
from chmnet.errors import InputError

__all__ = [
    "DATASETS",
    "AnnotatedImage",
    "Dataset",
    "Pair",
    "deduplicate",
    "find_dataset",
    "held_out",
    "image_names",
    "load_pairs",
    "read_list",
    "training_pairs",
    "write_list",
]


@dataclass(frozen=True)
class Dataset:
    """What there is to know about a data set before reading it."""

    name: str
    folder: str
    """Its folder below the root; empty if the root is the folder."""
    splits: tuple[str, ...]
    load: Callable[..., list[Pair]]
    """``load(root, split, on_problem=…, **options)``."""
    categories: frozenset[str] | None = None
    """All that may occur, where that is known."""
    load_instances: Callable[..., list[Instance]] | None = None
    """``load_instances(root, split, on_problem=…)``, where pairs are made from annotated images."""

    @property
    def options(self) -> tuple[str, ...]:
        """What ``load`` takes besides root and split."""
        parameters = inspect.signature(self.load).parameters
        return tuple(name for name in parameters if name not in ("root", "split", "on_problem"))

    def check_options(self, options: Mapping[str, object]) -> None:
        """Refuse an option that this data set does not have, or a value of the wrong type."""
        for option, value in options.items():
            if option not in self.options:
                known = ", ".join(self.options) or "none"
                raise InputError(f"{self.name} has no option {option!r}; its options: {known}")
            kind = type(inspect.signature(self.load).parameters[option].default)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise InputError(f"the option {option} must be of type {kind.__name__}, got {value!r}")


DATASETS: Mapping[str, Dataset] = MappingProxyType(
    {
        dataset.name: dataset
        for dataset in (
            Dataset("pf-willow", pf_willow.FOLDER, pf_willow.SPLITS, pf_willow.load, pf_willow.CATEGORIES),
            Dataset("pf-pascal", pf_pascal.FOLDER, pf_pascal.SPLITS, pf_pascal.load, frozenset(pf_pascal.CLASSES)),
            Dataset("spair-71k", spair.FOLDER, spair.SPLITS, spair.load, spair.CATEGORIES),
            Dataset(
                "animal-pose",
                animal_pose.FOLDER,
                animal_pose.SPLITS,
                animal_pose.load,
                animal_pose.CATEGORIES,
                animal_pose.load_instances,
            ),
            Dataset("coco", "", coco.SPLITS, coco.load, None, coco.load_instances),
        )
    }
)
"""Every data set by its name."""


def find_dataset(name: str, root: str | Path, split: str) -> Dataset:
    """The data set of that name, when the split and the folder exist.

    Raises:
        InputError: the name, the split or the folder is unknown; the message lists what there is.
    """
    if name not in DATASETS:
        raise InputError(f"there is no data set {name!r}; there are {', '.join(DATASETS)}")
    dataset = DATASETS[name]
    if split not in dataset.splits:
        raise InputError(f"{name} has no split {split!r}; it has {', '.join(dataset.splits)}")
    if dataset.folder:
        dataset_folder(root, dataset.folder)
    elif not Path(root).exists():
        raise InputError(f"there is no {root}; name a folder with annotations.json, or such a file")
    return dataset


def load_pairs(name: str, root: str | Path, split: str = "test", **options: object) -> list[Pair]:
    """Read the pairs of a data set.

    Args:
        name: one of ``DATASETS``.
        root: the folder that holds ``PF-WILLOW``, ``PF-PASCAL`` and so on; for ``coco`` the folder with
            ``annotations.json``.
        split: ``train``, ``val`` or ``test``.
        options: ``layout`` for spair-71k; ``minimum_common``, ``maximum_pairs``, ``seed``, ``images`` where pairs
            are made.

    Raises:
        InputError: one sentence that lists what exists, or names the file and line of what is wrong.
    """
    dataset = find_dataset(name, root, split)
    dataset.check_options(options)
    return dataset.load(root, split, **options)
