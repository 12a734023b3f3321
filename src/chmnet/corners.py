"""Pictures that somebody turned and put on a plain canvas: by how much, and where the picture is."""

import math
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float64
from PIL import Image

from chmnet.turning import Size

_SIDE: Final = 256
"""Longer side of what is looked at, in pixels."""
_PLAIN: Final = 24
"""Colours of a plain canvas differ by less, of 255: files are compressed with losses."""
_LEAST_TURN: Final = 4.0
"""Pictures turned by less are straight: their corners are too small to see."""
_MISS: Final = 0.02
"""By how much the middle of the picture may miss the canvas's, as a share; its frame the canvas by twice that."""
_STEP: Final = 2.0
"""Angles are tried in steps of so many degrees, then of a twentieth of it."""


class Canvas(NamedTuple):
    """A turned picture on a plain canvas that just holds it."""

    turn: float
    """Degrees counter-clockwise that make its sides upright again, −90 … 0; or so, and quarter turns."""
    size: Size
    """(height, width) of the picture, when turned so, in pixels of the canvas."""


def find_canvas(image: Image.Image, size: Size) -> Canvas | None:
    """The turned picture on a plain canvas, as most tools make it; ``None``: it is no such canvas.

    All corners have one colour, the smallest rectangle around all that has another is turned, and the frame around
    that rectangle is the canvas.

    Args:
        image: RGB, with any number of pixels.
        size: (height, width) that it stands for.

    Example:
        >>> red = Image.new("RGB", (60, 40), "red")
        >>> find_canvas(red.rotate(30, expand=True), (65, 72)), find_canvas(red, (40, 60))
        (Canvas(turn=-30.0, size=(41, 60)), None)
    """
    scale = min(1.0, _SIDE / max(image.size))
    small = image.resize([max(1, round(scale * side)) for side in image.size], Image.Resampling.BOX)
    pixels = np.asarray(small).astype(np.int16)
    corners = pixels[[0, 0, -1, -1], [0, -1, 0, -1]]
    plain = np.median(corners, axis=0)
    if np.abs(corners - plain).max() >= _PLAIN:
        return None
    drawn = np.abs(pixels - plain).max(axis=2) >= _PLAIN
    rows = np.flatnonzero(drawn.any(axis=1))
    if len(rows) < 2:
        return None
    first, last = drawn.argmax(axis=1)[rows], drawn.shape[1] - drawn[:, ::-1].argmax(axis=1)[rows]
    ends = [(x, y + step) for x, y in ((first, rows), (last, rows)) for step in (0, 1)]
    middle = np.array(drawn.shape[::-1]) / 2
    points = np.concatenate([np.stack(end, axis=1) for end in ends]) - middle
    angles = np.arange(0, 90, _STEP)
    coarse = angles[_areas(points, angles).argmin()]
    angles = coarse + np.arange(-20, 21) * _STEP / 20
    angle = float(angles[_areas(points, angles).argmin()])
    if not _LEAST_TURN <= angle <= 90 - _LEAST_TURN:
        return None
    low, high = _extent(points, np.array([angle]))
    (width, height), off = (high - low)[0], (high + low)[0] / 2
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    frame = np.array([width * cosine + height * sine, width * sine + height * cosine])
    most = max(1.5, _MISS * max(drawn.shape))
    if np.abs(frame - drawn.shape[::-1]).max() > 2 * most or np.abs(off).max() > most:
        return None
    grow = size[0] / drawn.shape[0]
    return Canvas(-round(angle, 2), (round(height * grow), round(width * grow)))


def _extent(
    points: Float64[np.ndarray, "n 2"], angles: Float64[np.ndarray, " k"]
) -> tuple[Float64[np.ndarray, "k 2"], Float64[np.ndarray, "k 2"]]:
    """Least and largest x and y of points that are turned clockwise by each of some angles."""
    cosine, sine = np.cos(np.deg2rad(angles))[:, None], np.sin(np.deg2rad(angles))[:, None]
    x, y = points.T
    turned = np.stack([x * cosine - y * sine, x * sine + y * cosine], axis=2)
    return turned.min(axis=1), turned.max(axis=1)


def _areas(points: Float64[np.ndarray, "n 2"], angles: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    """Of the rectangles around points that are turned clockwise by each of some angles."""
    low, high = _extent(points, angles)
    sides = high - low
    return sides[:, 0] * sides[:, 1]
