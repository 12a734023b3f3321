"""Pictures as the network sees them. A view says all that decides its pixels, so it can be the key of a cache."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from chmnet.data.transforms import Sample, crop, jitter_colours, mirror
from chmnet.geometry import Size
from chmnet.pictures import to_picture, to_tensor
from chmnet.training.warps import Warp

NO_POINTS = np.zeros((0, 2))
_CANVAS_ENLARGEMENT = 1.5
"""A picture is warped from this many times the size of its views, so that magnified ones are not blurred."""


@runtime_checkable
class View(Protocol):
    """Anything hashable that can be drawn."""

    def render(self, size: Size) -> Float[Tensor, "3 h w"]:
        """RGB from 0 to 1, of (height, width)."""


@dataclass(frozen=True)
class Photograph:
    """A picture file, perhaps mirrored, cut out and with other colours."""

    path: Path
    mirrored: bool = False
    area: tuple[int, int, int, int] | None = None
    """Left, top, right, bottom of the part that is shown, before mirroring."""
    colour_seed: int | None = None

    def render(self, size: Size) -> Float[Tensor, "3 h w"]:
        """The picture squashed to (height, width), RGB from 0 to 1."""
        sample = Sample(to_picture(self.path), NO_POINTS)
        if self.area is not None:
            sample = crop(sample, self.area)
        if self.mirrored:
            sample = mirror(sample)
        if self.colour_seed is not None:
            sample = jitter_colours(sample, np.random.default_rng(self.colour_seed))
        return to_tensor(sample.image, size)


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

    picture: Path | Texture
    warp: Warp
    colour_seed: int | None = None
    colours: float = 0.4

    def render(self, size: Size) -> Float[Tensor, "3 h w"]:
        """The warped picture, RGB from 0 to 1; beyond its edges it is mirrored."""
        image = _canvas(self.picture, size)
        if self.colour_seed is not None:
            generator, amount = np.random.default_rng(self.colour_seed), self.colours
            image = jitter_colours(Sample(image, NO_POINTS), generator, amount, amount, amount, amount / 4).image
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
def _canvas(picture: Path | Texture, size: Size) -> Image.Image:
    height, width = (round(side * _CANVAS_ENLARGEMENT) for side in size)
    if isinstance(picture, Texture):
        return picture.picture((height, width))
    return to_picture(picture).resize((width, height), Image.Resampling.BILINEAR)
