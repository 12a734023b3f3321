"""How all drawings look: colours, letters, and the sizes of marks. Nothing else says so."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Float, UInt8
from PIL import ImageColor, ImageFont

Colour = tuple[int, int, int]

# Okabe and Ito's colours: told apart by people with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A7A00", "#000000")
DASHES = ("-", "--", "-.", ":")
"""Line styles of plots, beside the colours: either one is enough to tell two lines apart."""

INK: Colour = (34, 34, 34)
PAPER: Colour = (255, 255, 255)
FRAME: Colour = (200, 200, 200)
"""Of the thin lines around pictures."""
SEQUENTIAL = "viridis"
"""Matplotlib's colour map of heat maps: grows evenly in lightness, in print and for any colour vision."""

# Top left, top right, bottom left, bottom right. Rows differ in lightness and columns in blue against yellow:
# the two differences that people who confuse red and green see as well as others.
CORNERS = ("#8FD8FF", "#FFE14D", "#1B35C4", "#B83A00")


class Sizes(NamedTuple):
    """Lengths in pixels that suit a drawing."""

    line: float
    """Width of a line."""
    radius: float
    """Radius of a numbered point."""
    text: float
    """Height of ordinary letters."""


def sizes(side: int) -> Sizes:
    """Lengths for a drawing whose pictures have at most ``side`` pixels in height and width.

    Example:
        >>> sizes(480).radius > sizes(240).radius >= sizes(1).radius
        True
    """
    return Sizes(line=max(1.2, side / 240), radius=max(6.0, side / 48), text=max(11.0, side / 34))


def colour(number: int) -> str:
    """The colour of the point, or the line, with this number."""
    return COLOURS[number % len(COLOURS)]


def rgb(name: str | Colour) -> Colour:
    """A colour as three numbers."""
    red, green, blue = ImageColor.getrgb(name)[:3] if isinstance(name, str) else name
    return red, green, blue


def contrast(background: str | Colour) -> Colour:
    """The colour of letters on a background: ink or paper, whichever can be read.

    Example:
        >>> contrast("#000000"), contrast("#E69F00")
        ((255, 255, 255), (34, 34, 34))
    """
    red, green, blue = (_to_linear(np.array(rgb(background)) / 255)).tolist()
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return PAPER if luminance < 0.3 else INK


@lru_cache(maxsize=64)
def font(size: float) -> ImageFont.FreeTypeFont:
    """Letters of this height; the file is part of Matplotlib, and knows most alphabets and signs."""
    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(file), size)


def map_colours(values: np.ndarray, name: str = SEQUENTIAL) -> UInt8[np.ndarray, "*shape 3"]:
    """Colours of numbers from 0 to 1; what lies outside takes the nearest end."""
    coloured = np.asarray(matplotlib.colormaps[name](np.clip(values, 0, 1)))
    return np.asarray(np.round(coloured[..., :3] * 255), dtype=np.uint8)


def position_colours(positions: Float[np.ndarray, "n 2"]) -> UInt8[np.ndarray, "n 3"]:
    """A colour for each place (x, y), both from 0 to 1: near places alike, far ones different.

    Four corner colours are mixed in Oklab, where equal steps look equal: along x from blue to yellow, along y
    from light to dark.

    Example:
        >>> position_colours(np.array([[0.0, 0.0], [1.0, 0.0]])).tolist()  # two corners
        [[143, 216, 255], [255, 225, 77]]
    """
    x, y = np.clip(positions, 0, 1).T[..., None]
    top_left, top_right, bottom_left, bottom_right = _to_oklab(np.array([rgb(name) for name in CORNERS]) / 255)
    mixed = (1 - y) * ((1 - x) * top_left + x * top_right) + y * ((1 - x) * bottom_left + x * bottom_right)
    return np.asarray(np.round(_from_oklab(mixed) * 255), dtype=np.uint8)


# Ottosson's Oklab (2020): linear RGB → cone responses → lightness, green–red, blue–yellow.
_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_OPPONENTS = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def _to_oklab(colours: np.ndarray) -> np.ndarray:
    return np.asarray(np.cbrt(_to_linear(colours) @ _CONES.T) @ _OPPONENTS.T)


def _from_oklab(colours: np.ndarray) -> np.ndarray:
    linear = (colours @ np.linalg.inv(_OPPONENTS).T) ** 3 @ np.linalg.inv(_CONES).T
    linear = np.clip(linear, 0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def _to_linear(colours: np.ndarray) -> np.ndarray:
    return np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
