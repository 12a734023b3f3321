"""Pictures in, matches out, in the pixels of the pictures as a person sees them."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor

from chmnet.config import TransferConfig
from chmnet.errors import InputError
from chmnet.geometry import Size, grid_points, normalised_to_pixels, pixels_to_normalised
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.inference import for_inference
from chmnet.nn.transfer import match_confidence, sample_grid, soft_argmax
from chmnet.pictures import open_picture, to_rgb, to_tensor
from chmnet.weights import DEFAULT_MODEL, load_model

Picture = str | Path | Image.Image


class Matches(NamedTuple):
    """Points of the source, where they lie in the target, and how far that can be trusted (0 … 1)."""

    source: np.ndarray
    target: np.ndarray
    confidence: np.ndarray


@dataclass(frozen=True)
class MatchResult:
    """What matching two pictures found. Points are (x, y) in pixels, sizes are (height, width)."""

    correlation: Tensor = field(repr=False)
    """``1 1 hs ws ht wt``: score of every pair of grid positions."""
    source_size: Size
    target_size: Size
    config: TransferConfig

    @cached_property
    def positions(self) -> Tensor:
        """``1 hs ws 2``: where every position of the source grid lies in the target, normalised."""
        return soft_argmax(self.correlation, self.config)

    @cached_property
    def confidences(self) -> Tensor:
        """``1 hs ws``: how far each of them can be trusted, 0 … 1."""
        return match_confidence(self.correlation, self.config, self.positions)

    def transfer(self, points: ArrayLike) -> Matches:
        """Find points of the source picture in the target picture.

        Args:
            points: ``n`` rows (x, y), or one (x, y), in pixels of the source.

        Raises:
            InputError: the points are not finite numbers in rows of two.
        """
        rows = _check_points(points)
        confidence = self._read(self.confidences[..., None], rows)[:, 0]
        return Matches(rows, self.locate(rows), confidence.clip(0, 1))  # a mean of ones may round to above one

    def locate(self, points: ArrayLike) -> np.ndarray:
        """As :meth:`transfer`, but only the points of the target: half the work."""
        moved = self._read(self.positions, _check_points(points))
        return normalised_to_pixels(moved, self.target_size)

    def _read(self, values: Tensor, points: np.ndarray) -> np.ndarray:
        """Read a map of the source grid at points in pixels."""
        normalised = pixels_to_normalised(torch.from_numpy(points), self.source_size)
        return sample_grid(values, normalised.to(values.dtype)[None], self.config)[0].double().numpy()

    def matches(self, top: int = 300) -> Matches:
        """The most trustworthy matches of the grid, the best first."""
        if top < 1:
            raise InputError(f"the number of matches must be at least 1, got {top}")
        positions, confidence = self.positions[0], self.confidences.flatten()
        best = confidence.argsort(descending=True, stable=True)[:top]
        grid = grid_points((positions.shape[0], positions.shape[1]), like=positions)
        source = normalised_to_pixels(grid.flatten(0, 1)[best].double(), self.source_size)
        target = normalised_to_pixels(positions.flatten(0, 1)[best].double(), self.target_size)
        return Matches(source.numpy(), target.numpy(), confidence[best].double().numpy())


def _check_points(points: ArrayLike) -> np.ndarray:
    try:
        rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError("points must be rows of two numbers (x, y)") from None
    if rows.size == 0:
        return rows.reshape(0, 2)
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise InputError(f"points must be rows (x, y), got an array of shape {list(rows.shape)}")
    if not np.isfinite(rows).all():
        raise InputError("points must be finite numbers, got NaN or infinity")
    return rows


class Matcher:
    """Matches pairs of pictures with one model.

    Args:
        model: a known name, a model file, or a network.
        memory_mb: most memory that matching one pair may take beside the network; ``None``: no limit.

    Example:
        >>> matcher = Matcher("nearest-neighbour")
        >>> picture = Image.radial_gradient("L").convert("RGB")
        >>> result = matcher.match(picture, picture)
        >>> bool((abs(result.transfer([[100, 140]]).target - [[100, 140]]) < 15).all())
        True
    """

    def __init__(self, model: str | Path | CHMNet = DEFAULT_MODEL, memory_mb: float | None = None) -> None:
        self.model = for_inference(model if isinstance(model, CHMNet) else load_model(model))
        self.memory_mb = memory_mb

    def match(self, source: Picture, target: Picture) -> MatchResult:
        """Match two pictures (paths or PIL images) of any size."""
        first, second = _picture(source), _picture(target)
        size = self.model.config.image_size
        like = next(self.model.parameters())
        with torch.inference_mode():
            images = to_tensor(first, size).to(like), to_tensor(second, size).to(like)
            if self.memory_mb is None:
                correlation = self.model(*images)
            else:
                correlation = self.model.match_within(*images, self.memory_mb)
        return MatchResult(
            correlation.cpu(),
            (first.height, first.width),
            (second.height, second.width),
            self.model.config.transfer,
        )


def match(source: Picture, target: Picture, model: str | Path | CHMNet = DEFAULT_MODEL) -> MatchResult:
    """Match two pictures; to match many, make a :class:`Matcher` once."""
    return Matcher(model).match(source, target)


def _picture(picture: Picture) -> Image.Image:
    return to_rgb(picture) if isinstance(picture, Image.Image) else open_picture(picture)
