"""Training pairs, and annotated photographs as a source of them."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageEnhance
from torch import Tensor

from chmnet.data.pairs import Pair, kind_of
from chmnet.data.posing import MIRRORED
from chmnet.errors import InputError
from chmnet.pictures import Area, Picture, Size, View, to_tensor
from chmnet.training.config import AugmentationConfig, SourceConfig

SMALLEST = 0.3
"""Side of a reduced picture, as a share of the frame's; up to 1, evenly in its logarithm."""
LEAST_EXTENT = 0.2
"""Share of the frame that the keypoints of a reduced picture cover at least, in the longer direction."""


@runtime_checkable
class TrainingView(Protocol):
    """A picture as the network sees it. It says all that decides its pixels, so it can be the key of a cache."""

    def tensor(self, size: Size) -> Float[Tensor, "3 h w"]:
        """RGB from 0 to 1, of (height, width)."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class TrainingPair:
    """Two views and the keypoints both show, ``n`` rows (x, y) in normalised coordinates."""

    source: TrainingView
    target: TrainingView
    source_points: np.ndarray
    target_points: np.ndarray
    category: str = ""
    names: tuple[str, ...] = ()
    """What each row is, where the data set says."""
    mirrored: bool = False
    """Whether what looks like a left side is named right, and the other way round."""

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


@dataclass(frozen=True)
class ColouredView:
    """A view of a photograph, perhaps with other colours."""

    view: View
    colour_seed: int | None = None

    def tensor(self, size: Size) -> Float[Tensor, "3 h w"]:
        """The view resized to (height, width), RGB from 0 to 1; the decoded picture is not kept."""
        return to_tensor(self.image(), size)

    def image(self) -> Image.Image:
        """The view in its colours."""
        image = self.view.image()
        self.view.picture.forget()
        return (
            image if self.colour_seed is None else jitter_colours(image, np.random.default_rng(self.colour_seed))
        )


@dataclass(frozen=True)
class ReducedView:
    """A view, smaller, on a picture of something else."""

    view: ColouredView
    behind: ColouredView
    side: float
    """Of the view, as a share of the frame's."""
    corner: tuple[float, float]
    """Where in the room that is left its upper left corner lies: 0 … 1 from the left, and from the top."""

    def tensor(self, size: Size) -> Float[Tensor, "3 h w"]:
        """RGB from 0 to 1, of (height, width)."""
        frame = self.behind.tensor(size)
        # Only whole pixels of the frame are drawn, each from exactly what lies there.
        left, right, across = _whole_pixels(self.corner[0], self.side, size[1])
        top, bottom, along = _whole_pixels(self.corner[1], self.side, size[0])
        image = self.view.image()
        part = image.width * across[0], image.height * along[0], image.width * across[1], image.height * along[1]
        drawn = image.resize((right - left, bottom - top), Image.Resampling.BILINEAR, part)
        frame[:, top:bottom, left:right] = to_tensor(drawn, (bottom - top, right - left))
        return frame

    def place(self, points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """Where the view's normalised points lie in the frame."""
        return (2 * np.array(self.corner) - 1) * (1 - self.side) + points * self.side


def _whole_pixels(corner: float, side: float, length: int) -> tuple[int, int, tuple[float, float]]:
    """The pixels of a frame that a reduced view covers as a whole, and which share of the view they show.

    Example:
        >>> _whole_pixels(0.5, 0.5, 10)  # from 2.5 to 7.5
        (3, 7, (0.1, 0.9))
    """
    first, extent = corner * (1 - side) * length, side * length
    begin, end = math.ceil(round(first, 6)), math.floor(round(first + extent, 6))
    return begin, end, (max(0.0, (begin - first) / extent), min(1.0, (end - first) / extent))


class AnnotatedSource:
    """Pairs of photographs with annotated keypoints.

    Args:
        config: the source.
        pairs: its pairs.
        augmentation: chances of changes; none for validation.

    Raises:
        InputError: pictures are to be reduced, but there is no other category to put behind them.
    """

    def __init__(self, config: SourceConfig, pairs: Sequence[Pair], augmentation: AugmentationConfig) -> None:
        self.config, self.pairs, self.augmentation = config, list(pairs), augmentation
        kinds = {kind_of(pair.category) for pair in self.pairs} if augmentation.reduce else set()
        if augmentation.reduce and len(kinds) < 2:
            raise InputError(
                f"reduce puts a picture on one of another category, but {config.dataset} has one category here; "
                "set reduce to 0 or give more categories"
            )
        self._behind = {
            kind: [pair.source.path for pair in self.pairs if kind_of(pair.category) != kind] for kind in kinds
        }
        self._pictures: dict[Path, Picture] = {}

    def __len__(self) -> int:
        return len(self.pairs)

    def pair(self, index: int, generator: np.random.Generator) -> TrainingPair:
        """One pair, perhaps mirrored, cropped, recoloured and exchanged."""
        pair, chances = self.pairs[index], self.augmentation
        swap, flip, crop, colour = generator.uniform(size=4) < (
            chances.swap,
            chances.flip,
            chances.crop,
            chances.colour,
        )
        mirrored = bool(flip) != bool(pair.flags.get("flip"))
        turned = mirrored != bool(pair.flags.get(MIRRORED))
        views: list[TrainingView] = []
        points: list[np.ndarray] = []
        for side, mirror in ((pair.source, mirrored), (pair.target, turned)):
            picture = self._pictures.setdefault(side.path, Picture(side.path))
            keypoints = side.keypoints.astype(np.float64)
            area = random_crop(picture.size, keypoints, generator) if crop else None
            view = View(picture, area, mirror)
            points.append(view.from_picture(keypoints))
            seen = ColouredView(view, int(generator.integers(2**31)) if colour else None)
            views.append(seen)
            if chances.reduce and generator.uniform() < chances.reduce:
                views[-1] = reduced = self._reduce(seen, points[-1], pair.category, generator)
                points[-1] = reduced.place(points[-1])
        made = TrainingPair(views[0], views[1], points[0], points[1], pair.category, pair.keypoint_names, mirrored)
        return made.exchanged() if swap else made

    def _reduce(
        self, view: ColouredView, points: np.ndarray, category: str, generator: np.random.Generator
    ) -> ReducedView:
        """The view on a picture of another category."""
        others = self._behind[kind_of(category)]
        path = others[int(generator.integers(len(others)))]
        behind = self._pictures.setdefault(path, Picture(path))
        extent = float(np.ptp(points, axis=0).max()) / 2 if len(points) else 1.0
        smallest = min(1.0, max(SMALLEST, LEAST_EXTENT / max(extent, LEAST_EXTENT)))
        side = float(np.exp(generator.uniform(np.log(smallest), 0)))
        left, top = generator.uniform(size=2)
        return ReducedView(view, ColouredView(View(behind)), side, (float(left), float(top)))

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
            **({"official": True} if self.config.official else {}),
        }


# ---------------------------------------------------------------- random changes


def random_crop(size: Size, keypoints: Float[np.ndarray, "n 2"], generator: np.random.Generator) -> Area:
    """A random area of a picture of (height, width) that holds every keypoint, in pixels."""
    height, width = size
    inside = np.clip(keypoints, 0, (width, height))
    least = inside.min(axis=0, initial=max(width, height))
    most = inside.max(axis=0, initial=0)
    left = int(generator.integers(0, min(int(least[0]), width - 1) + 1))
    top = int(generator.integers(0, min(int(least[1]), height - 1) + 1))
    right = int(generator.integers(max(int(np.ceil(most[0])), left + 1), width + 1))
    bottom = int(generator.integers(max(int(np.ceil(most[1])), top + 1), height + 1))
    return left, top, right, bottom


def jitter_colours(
    image: Image.Image,
    generator: np.random.Generator,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.1,
) -> Image.Image:
    """Change the colours of an RGB image by random factors from ``1 − amount`` to ``1 + amount``.

    Args:
        image: RGB.
        generator: where the randomness comes from.
        brightness: amount, from 0 to 1.
        contrast: amount, from 0 to 1.
        saturation: amount, from 0 to 1.
        hue: largest turn of the colour circle, from 0 to 0.5 (half a turn).

    Raises:
        InputError: an amount is out of range.
    """
    amounts = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
    for name, amount in amounts.items():
        limit = 0.5 if name == "hue" else 1
        if not 0 <= amount <= limit:
            raise InputError(f"{name} must be from 0 to {limit}, got {amount}")
    image = ImageEnhance.Brightness(image).enhance(1 + generator.uniform(-brightness, brightness))
    image = ImageEnhance.Contrast(image).enhance(1 + generator.uniform(-contrast, contrast))
    image = ImageEnhance.Color(image).enhance(1 + generator.uniform(-saturation, saturation))
    return _turn_hue(image, generator.uniform(-hue, hue))


def _turn_hue(image: Image.Image, turn: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    shift = round(turn * 256)
    hue = hue.point([(level + shift) % 256 for level in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")
