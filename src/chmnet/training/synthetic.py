"""Synthetic pairs with exact ground truth: smooth random warps of photographs or of generated textures."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from chmnet.geometry import Size
from chmnet.pictures import Picture, to_tensor
from chmnet.training.config import SourceConfig
from chmnet.training.sources import TrainingPair, jitter_colours
from chmnet.warping import ThinPlateSpline

CONTROL_SIDE = 4
"""Control points of a warp's spline along each side."""
_CANVAS_ENLARGEMENT = 1.5
"""A picture is warped from this many times the size of its views, so that magnified ones are not blurred."""
_CANDIDATES = 6
"""Points that are tried for each synthetic keypoint; those outside of a view are left out."""


@dataclass(frozen=True)
class Warp:
    """Maps normalised points (x, y) of a view to those of the picture it shows: ``A x + b + spline(x)``.

    Args:
        seed: everything about the warp is drawn from it.
        rotation: largest turn, in degrees.
        zoom: the view shows between ``1 / zoom`` and ``zoom`` times as much of the picture.
        bend: standard deviation of the spline's control points, in normalised coordinates.

    Example:
        >>> warp = Warp(seed=3, rotation=20, zoom=1.3, bend=0.08)
        >>> points = np.array([[0.1, -0.4], [0.5, 0.5]])
        >>> found, exact = warp.inverse(warp(points))
        >>> bool(exact.all()), bool(np.abs(found - points).max() < 1e-5)
        (True, True)
    """

    seed: int
    rotation: float = 20.0
    zoom: float = 1.3
    bend: float = 0.08

    def __call__(self, points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """Where in the picture each point of the view lies."""
        return _spline(self)(points)

    def inverse(self, points: Float[np.ndarray, "n 2"]) -> tuple[Float[np.ndarray, "n 2"], Bool[np.ndarray, " n"]]:
        """Where in the view each point of the picture lies, and whether it was found exactly."""
        return _spline(self).inverse(points)


@lru_cache(maxsize=4096)  # a view is in many pairs
def _spline(warp: Warp) -> ThinPlateSpline:
    generator = np.random.default_rng([warp.seed, 11])
    angle = np.deg2rad(generator.uniform(-warp.rotation, warp.rotation))
    sides = np.exp(generator.uniform(-1, 1) * np.log(warp.zoom) + generator.uniform(-0.1, 0.1, 2))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shift = generator.uniform(-0.15, 0.15, 2)
    offsets = generator.normal(0, warp.bend, (CONTROL_SIDE**2, 2)).clip(-2 * warp.bend, 2 * warp.bend)
    axis = np.linspace(-1, 1, CONTROL_SIDE)
    control_points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return ThinPlateSpline.fit(control_points, offsets).add_affine(turn * sides, shift)


@dataclass(frozen=True)
class Texture:
    """A generated picture: smooth random colours at several sizes, and patches with sharp edges.

    Example:
        >>> Texture(seed=0).picture((32, 48)).size
        (48, 32)
    """

    seed: int

    def picture(self, size: Size) -> Image.Image:
        """Draw it at (height, width)."""
        generator = np.random.default_rng([self.seed, 77])
        height, width = size
        total = np.zeros((height, width, 3))
        for cells in (2, 4, 8, 16, 32):
            noise = generator.integers(0, 256, (cells, cells, 3)).astype(np.uint8)
            layer = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
            total += (np.asarray(layer, dtype=np.float64) - 128) / np.sqrt(cells)
        y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
        for _ in range(12):
            centre_x, centre_y, radius_x, radius_y = generator.uniform(0, 1, 4) * (1, 1, 0.2, 0.2)
            inside = ((x - centre_x) / (radius_x + 0.03)) ** 2 + ((y - centre_y) / (radius_y + 0.03)) ** 2 < 1
            total[inside] += generator.uniform(-90, 90, 3)
        return Image.fromarray(np.clip(total + 128, 0, 255).astype(np.uint8))


@dataclass(frozen=True)
class WarpedView:
    """A picture through a warp, with other colours: view coordinates → picture coordinates."""

    picture: Picture | Texture
    warp: Warp
    colour_seed: int | None = None
    colours: float = 0.4

    def tensor(self, size: Size) -> Float[Tensor, "3 h w"]:
        """The warped picture, RGB from 0 to 1; beyond its edges it is mirrored."""
        image = _canvas(self.picture, size)
        if self.colour_seed is not None:
            generator, amount = np.random.default_rng(self.colour_seed), self.colours
            image = jitter_colours(image, generator, amount, amount, amount, amount / 4)
        pixels = to_tensor(image, (image.height, image.width))[None]
        height, width = size
        # Centres of the pixels in normalised coordinates, whose −1 and 1 are the edges of the picture.
        y = (np.arange(height) + 0.5) / height * 2 - 1
        x = (np.arange(width) + 0.5) / width * 2 - 1
        grid = np.stack(np.meshgrid(x, y), axis=-1)
        seen = torch.from_numpy(self.warp(grid.reshape(-1, 2)).reshape(grid.shape)).float()
        drawn = torch.nn.functional.grid_sample(
            pixels, seen[None], mode="bilinear", padding_mode="reflection", align_corners=False
        )
        return drawn[0].clamp(0, 1)


@lru_cache(maxsize=32)  # the views of a picture are often drawn together
def _canvas(picture: Picture | Texture, size: Size) -> Image.Image:
    height, width = (round(side * _CANVAS_ENLARGEMENT) for side in size)
    if isinstance(picture, Texture):
        return picture.picture((height, width))
    image = picture.image.resize((width, height), Image.Resampling.BILINEAR)
    picture.forget()
    return image


class SyntheticSource:
    """Two warped views of one picture; where a point of the one lies in the other is known exactly.

    Args:
        config: the source.
        pictures: files or generated textures.
        seed: chooses the warps and colours.
    """

    def __init__(self, config: SourceConfig, pictures: Sequence[Picture | Texture], seed: int) -> None:
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
        names = [
            f"texture {one.seed}" if isinstance(one, Texture) else Path(one.path or "").name
            for one in self.pictures
        ]
        return {
            "dataset": "synthetic",
            "pictures": len(self.pictures),
            "views": self.config.views,
            "pairs": len(self),
            "seed": self.seed,
            "pictures_sha256": hashlib.sha256("\n".join(names).encode()).hexdigest(),
        }
