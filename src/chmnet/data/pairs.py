"""What every data set gives: pairs of annotated images."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""


@dataclass(frozen=True, eq=False)
class AnnotatedImage:
    """One side of a pair. Points are (x, y) in pixels of the image file, row i the same part on both sides."""

    path: Path
    keypoints: np.ndarray
    """``n`` rows (x, y), float64."""
    box: Box | None = None
    """The object's box, where the data set has one."""
    mask: Path | None = None
    """A segmentation picture in which the object is not zero, where the data set has one."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two images of one category and the keypoints both show."""

    name: str
    """Unique within the data set and split."""
    category: str
    source: AnnotatedImage
    target: AnnotatedImage
    keypoint_names: tuple[str, ...] = ()
    """What each row of the keypoints is, where the data set says; else empty."""
    flags: Mapping[str, int] = field(default_factory=dict)
    """SPair-71k's difficulty: viewpoint, scale, truncation, occlusion; else empty."""
    origin: str = ""
    """File and line the pair was read from, for messages."""
