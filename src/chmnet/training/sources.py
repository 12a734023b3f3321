"""Sources of training pairs: annotated photographs, and synthetic pairs with exact ground truth."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from PIL import Image

from chmnet import data
from chmnet.data.making_pairs import make_pairs
from chmnet.data.pairs import Pair
from chmnet.data.posing import MIRRORED
from chmnet.data.transforms import Sample, random_crop, side_words
from chmnet.errors import InputError
from chmnet.geometry import Size, pixels_to_normalised
from chmnet.pictures import open_picture
from chmnet.training.choosing import HeldOut, balanced_order, below_root, choose_pairs
from chmnet.training.config import AugmentationConfig, SourceConfig
from chmnet.training.views import Photograph, Texture, View, WarpedView
from chmnet.training.warps import Warp

PICTURE_ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"}
GENERATED = 20
"""Textures that stand in where no folder of pictures is given."""
HELD_OUT_SHARE = 0.1
_SYNTHETIC_COUNT = 100
_CANDIDATES = 6
"""Points that are tried for each synthetic keypoint; those outside of a view are left out."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class TrainingPair:
    """Two views and the keypoints both show, ``n`` rows (x, y) in normalised coordinates."""

    source: View
    target: View
    source_points: np.ndarray
    target_points: np.ndarray
    category: str = ""
    names: tuple[tuple[str, ...], ...] = ()
    """What each row is, as words, where the data set says; the same in mirrored pictures."""

    def exchanged(self) -> "TrainingPair":
        """The same pair the other way round."""
        return replace(
            self,
            source=self.target,
            target=self.source,
            source_points=self.target_points,
            target_points=self.source_points,
        )


@runtime_checkable
class PairSource(Protocol):
    """Something that gives training pairs by number."""

    config: SourceConfig

    def __len__(self) -> int:
        """How many different pairs there are."""

    def pair(self, index: int, generator: np.random.Generator) -> TrainingPair:
        """Pair number ``index``, with changes drawn from the generator."""

    def describe(self) -> dict[str, Any]:
        """What the source is, for the record that stays with a model: name, counts, hash of its list."""


class AnnotatedSource:
    """Pairs of photographs with annotated keypoints.

    Args:
        config: the source.
        pairs: its pairs.
        augmentation: chances of changes; none for validation.
    """

    def __init__(self, config: SourceConfig, pairs: Sequence[Pair], augmentation: AugmentationConfig) -> None:
        self.config, self.pairs, self.augmentation = config, list(pairs), augmentation
        self._sizes: dict[Path, Size] = {}

    def __len__(self) -> int:
        return len(self.pairs)

    def pair(self, index: int, generator: np.random.Generator) -> TrainingPair:
        """One pair, perhaps mirrored, cut, recoloured and exchanged."""
        pair, chances = self.pairs[index], self.augmentation
        swap, flip, crop, colour = generator.uniform(size=4) < (
            chances.swap,
            chances.flip,
            chances.crop,
            chances.colour,
        )
        mirrored = bool(flip) != bool(pair.flags.get("flip"))
        turned = mirrored != bool(pair.flags.get(MIRRORED))
        sides = [
            self._side(side.path, side.keypoints, mirror, bool(crop), bool(colour), generator)
            for side, mirror in ((pair.source, mirrored), (pair.target, turned))
        ]
        names = side_words(pair.keypoint_names, mirrored)
        made = TrainingPair(sides[0][0], sides[1][0], sides[0][1], sides[1][1], pair.category, names)
        return made.exchanged() if swap else made

    def _side(
        self,
        path: Path,
        keypoints: np.ndarray,
        mirrored: bool,
        crop: bool,
        colour: bool,
        generator: np.random.Generator,
    ) -> tuple[Photograph, np.ndarray]:
        size, area = self._size(path), None
        points = keypoints.astype(np.float64)
        if crop:
            # The transforms move pictures and points together; a picture of one colour is enough to ask them.
            cut = random_crop(Sample(Image.new("L", (size[1], size[0])), points), generator)
            left, top = np.round(points - cut.keypoints).astype(int)[0] if len(points) else (0, 0)
            area = (int(left), int(top), int(left) + cut.size[1], int(top) + cut.size[0])
            points, size = cut.keypoints, cut.size
        normalised = pixels_to_normalised(points, size)
        if mirrored:
            normalised = normalised * (-1, 1)
        colour_seed = int(generator.integers(2**31)) if colour else None
        return Photograph(path, mirrored, area, colour_seed), normalised

    def _size(self, path: Path) -> Size:
        if path not in self._sizes:
            picture = open_picture(path)
            self._sizes[path] = (picture.height, picture.width)
        return self._sizes[path]

    def describe(self) -> dict[str, Any]:
        """Name, counts and hash of the list of pairs."""
        names = "\n".join(pair.name for pair in self.pairs)
        return {
            "dataset": self.config.dataset,
            "split": self.config.split,
            "pairs": len(self.pairs),
            "images": len({side.path for pair in self.pairs for side in (pair.source, pair.target)}),
            "pairs_sha256": hashlib.sha256(names.encode()).hexdigest(),
            **({"images_used": self.config.images} if self.config.images != "all" else {}),
        }


class SyntheticSource:
    """Two warped views of one picture; where a point of the one lies in the other is known exactly.

    Args:
        config: the source.
        pictures: files or generated textures.
        seed: chooses the warps and colours.
    """

    def __init__(self, config: SourceConfig, pictures: Sequence[Path | Texture], seed: int) -> None:
        self.config, self.pictures, self.seed = config, list(pictures), seed

    def __len__(self) -> int:
        return len(self.pictures) * self.config.views * (self.config.views - 1)

    def pair(self, index: int, generator: np.random.Generator) -> TrainingPair:
        """One ordered pair of views of a picture, with as many points as asked for that both show."""
        pairs_of_picture = self.config.views * (self.config.views - 1)
        number, rest = divmod(index, pairs_of_picture)
        first, second = divmod(rest, self.config.views - 1)
        second += second >= first
        if self.config.identity and generator.uniform() < self.config.identity:
            second = first
        views = self._view(number, first), self._view(number, second)
        # Points of the source, through the picture, into the target. Beyond its edges the picture is mirrored:
        # what lies there has a twin inside, and is no keypoint.
        source = generator.uniform(-0.95, 0.95, (_CANDIDATES * self.config.points, 2))
        pictured = views[0].warp(source)
        target, exact = views[1].warp.inverse(pictured)
        seen = exact & (np.abs(pictured) < 1).all(axis=1) & (np.abs(target) < 0.95).all(axis=1)
        kept = np.flatnonzero(seen)[: self.config.points]
        return TrainingPair(views[0], views[1], source[kept], target[kept])

    def _view(self, picture: int, number: int) -> WarpedView:
        config = self.config
        seed = int(np.random.default_rng([self.seed, picture, number]).integers(2**31))
        warp = Warp(seed, config.rotation, config.zoom, config.bend)
        return WarpedView(self.pictures[picture], warp, colour_seed=seed, colours=config.colours)

    def describe(self) -> dict[str, Any]:
        """Name, counts and hash of the list of pictures."""
        names = [f"texture {one.seed}" if isinstance(one, Texture) else one.name for one in self.pictures]
        return {
            "dataset": "synthetic",
            "pictures": len(self.pictures),
            "views": self.config.views,
            "pairs": len(self),
            "seed": self.seed,
            "pictures_sha256": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        }


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
        InputError: a source cannot be read, or holds no pairs.
    """
    return [
        _open_source(config, root, [seed, number], augmentation, held_out) for number, config in enumerate(configs)
    ]


def _open_source(
    config: SourceConfig,
    root: Path | None,
    seeds: list[int],
    augmentation: AugmentationConfig | None,
    held_out: HeldOut | None,
) -> PairSource:
    if config.dataset == "synthetic":
        seed = int(np.random.default_rng(seeds).integers(2**31))
        return SyntheticSource(config, _pictures(config, root), seed)
    if config.dataset == "list":
        pairs = _listed_pairs(below_root(config.path, root), root)
    else:
        pairs = _annotated_pairs(config, below_root(config.path, root) if config.path else root)
    pairs = choose_pairs(pairs, config, root, held_out)
    if not pairs:
        raise InputError(f"{config.dataset} has no pairs left for its split {config.split}")
    return AnnotatedSource(config, pairs, augmentation or AugmentationConfig())


def _listed_pairs(path: Path, root: Path | None) -> list[Pair]:
    """The pairs of a list; where PF-PASCAL lies below the root, without those of its test list."""
    root = _known_root(root, f"what {path.name} lists")
    pairs = data.lists.read_list(path, root)
    return without_test_pairs(pairs, root) if (root / data.pf_pascal.FOLDER).is_dir() else pairs


def _known_root(root: Path | None, what: str) -> Path:
    if root is None:
        raise InputError(f"where is {what}? Name its folder with --root or CHMNET_DATA")
    return root


def _annotated_pairs(config: SourceConfig, root: Path | None) -> list[Pair]:
    root = _known_root(root, config.dataset)
    options: dict[str, object] = {}
    if config.dataset in ("animal-pose", "coco"):
        options = {"minimum_common": config.minimum_common, "maximum_pairs": config.maximum_pairs}
    if config.dataset == "coco" and config.images != "all":
        data.find_dataset("coco", root, config.split)
        instances = data.coco.load_instances(root, config.split)
        chosen = set(divide(sorted({str(one.path) for one in instances}), config.images))
        kept = [one for one in instances if str(one.path) in chosen]
        return make_pairs(kept, config.minimum_common, config.maximum_pairs)
    if config.dataset == "spair-71k":
        options = {"layout": config.layout}
    pairs = data.load_pairs(config.dataset, root, config.split, **options)
    if config.dataset == "pf-pascal" and config.split == "train":
        return without_test_pairs(pairs, root)
    if config.dataset == "pf-pascal" and config.split == "val":  # a third of it stands in the training list too
        return data.deduplicate(pairs, data.training_pairs(root))
    return pairs


def without_test_pairs(pairs: list[Pair], root: Path) -> list[Pair]:
    """Training pairs without those that PF-PASCAL's test list has too, in either order."""
    listed = {data.image_names(pair) for pair in data.load_pairs("pf-pascal", root, "test")}
    kept = data.deduplicate(pairs, listed)
    logger.info("pf-pascal: %d of %d training pairs stand in the test list", len(pairs) - len(kept), len(pairs))
    return kept


def _pictures(config: SourceConfig, root: Path | None) -> list[Path | Texture]:
    """The picture files of a folder, or generated textures; all of them, or one part of a fixed division."""
    if not config.path:
        return [Texture(int(number)) for number in divide([str(n) for n in range(GENERATED)], config.images)]
    folder = below_root(config.path, root)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} with pictures for synthetic pairs")
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in PICTURE_ENDINGS)
    if not files:
        raise InputError(f"the folder {folder} holds no pictures; synthetic pairs need at least one")
    return [Path(name) for name in divide([str(file) for file in files], config.images)]


def divide(names: list[str], part: str) -> list[str]:
    """All names, or the nine tenths or the one tenth (at least one) of a division that never changes.

    Example:
        >>> divide(["a", "b", "c"], "held-out"), divide(["a", "b", "c"], "training")
        (['c'], ['a', 'b'])
    """
    if part == "all":
        return names
    order = np.random.default_rng(0).permutation(len(names))
    held_out = {names[index] for index in order[: max(1, round(HELD_OUT_SHARE * len(names)))]}
    chosen = [name for name in names if (name in held_out) == (part == "held-out")]
    if not chosen:
        raise InputError(f"{len(names)} pictures cannot be divided into training and held-out ones")
    return chosen


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
