"""How all drawings look: colours, letters, sizes of marks; smooth lines, marks and letters on a picture."""

import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import distribution
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageColor, ImageDraw, ImageFont

from chmnet.errors import InputError

Colour = tuple[int, int, int]
Fill = str | Colour

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


def rgb(name: Fill) -> Colour:
    """A colour as three numbers."""
    red, green, blue = ImageColor.getrgb(name)[:3] if isinstance(name, str) else name
    return red, green, blue


def contrast(background: Fill) -> Colour:
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
    """Letters of this height; the file is part of Matplotlib, and has most alphabets and signs."""
    # By its place: importing Matplotlib takes longer than most drawings.
    file = distribution("matplotlib").locate_file("matplotlib/mpl-data/fonts/ttf/DejaVuSans.ttf")
    return ImageFont.truetype(str(file), size)


def map_colours(values: np.ndarray, name: str = SEQUENTIAL) -> UInt8[np.ndarray, "*shape 3"]:
    """Colours of numbers from 0 to 1; what lies outside takes the nearest end."""
    import matplotlib

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


SMOOTH_PIXELS = 24_000_000
"""Most pixels that a picture may have while it is drawn on: three times its height and width, where they allow."""

Point = Sequence[float] | np.ndarray


class Canvas:
    """A picture to draw on. Coordinates are in its pixels, fractions allowed; (0, 0) is its corner.

    Everything is drawn at up to three times the size and then reduced, which makes edges smooth; pixels that
    nothing is drawn on stay exactly as they are.

    Example:
        >>> canvas = Canvas(Image.new("RGB", (20, 10), "white"))
        >>> canvas.disc((10, 5), 3, fill="black")
        >>> canvas.picture().getpixel((10, 5)), canvas.picture().getpixel((1, 1))
        ((0, 0, 0), (255, 255, 255))
    """

    def __init__(self, picture: Image.Image) -> None:
        pixels = picture.width * picture.height
        self.factor = max(1, min(3, math.isqrt(SMOOTH_PIXELS // max(1, pixels))))
        size = picture.width * self.factor, picture.height * self.factor
        self._large = picture.convert("RGB").resize(size, Image.Resampling.NEAREST)
        self._draw = ImageDraw.Draw(self._large, "RGBA")  # blends colours that are not opaque

    def picture(self) -> Image.Image:
        """What was drawn so far."""
        return self._large.reduce(self.factor)

    def line(
        self,
        start: Point,
        end: Point,
        fill: Fill,
        width: float,
        opacity: float = 1.0,
        dashed: bool = False,
        halo: float = 0.0,
    ) -> None:
        """A straight line; ``halo`` is the width of a light border that sets it off from what is below."""
        first, last = self._place(start), self._place(end)
        pieces = [(first, last)]
        if dashed:
            count = max(1, round(math.dist(first, last) / (8 * width * self.factor)))
            along = [(first + (last - first) * share) for share in np.linspace(0, 1, 2 * count + 1)]
            pieces = list(zip(along[0::2], along[1::2], strict=False))
        for shade, thickness in _strokes(fill, width, halo):
            for a, b in pieces:
                self._draw.line([*a, *b], (*shade, round(255 * opacity)), max(1, round(thickness * self.factor)))

    def disc(self, centre: Point, radius: float, fill: Fill, border: float = 0.0) -> None:
        """A filled circle, with a light border around it."""
        if border:
            self._draw.ellipse(self._box(centre, radius + border), fill=PAPER)
        self._draw.ellipse(self._box(centre, radius), fill=rgb(fill))

    def ring(self, centre: Point, radius: float, fill: Fill, width: float, halo: float = 0.0) -> None:
        """A circle, ``width`` thick, whose outer radius is given."""
        if halo:
            thick = round((width + 2 * halo) * self.factor)
            self._draw.ellipse(self._box(centre, radius + halo), outline=PAPER, width=thick)
        thick = max(1, round(width * self.factor))
        self._draw.ellipse(self._box(centre, radius), outline=rgb(fill), width=thick)

    def cross(self, centre: Point, radius: float, fill: Fill, width: float, halo: float = 0.0) -> None:
        """Two crossing diagonals of a square with half the side ``radius``."""
        x, y = np.asarray(centre, dtype=np.float64)
        for shade, thickness in _strokes(fill, width, halo):
            reach = radius + (thickness - width) / 2
            self.line((x - reach, y - reach), (x + reach, y + reach), shade, thickness)
            self.line((x - reach, y + reach), (x + reach, y - reach), shade, thickness)

    def text(
        self, place: Point, text: str, size: float, fill: Fill = INK, anchor: str = "mm", halo: bool = False
    ) -> None:
        """Letters; a halo, an outline in the opposite shade, makes them legible on any background."""
        self._draw.text(
            tuple(self._place(place)),
            text,
            fill=rgb(fill),
            font=font(size * self.factor),
            anchor=anchor,
            stroke_width=max(1, round(size / 7 * self.factor)) if halo else 0,
            stroke_fill=contrast(fill),
        )

    def beside(self, centre: Point, radius: float, text: str, size: float) -> None:
        """Letters at the upper right of a mark with this radius."""
        reach = 0.7 * radius
        x, y = np.asarray(centre, dtype=np.float64)
        self.text((x + reach, y - reach), text, size, anchor="ls", halo=True)

    def numbered(self, centre: Point, label: str, fill: Fill, radius: float, hollow: bool = False) -> None:
        """A point with a label inside: filled, or hollow for one that is doubtful."""
        border = max(1.0, radius / 6)
        self.disc(centre, radius, PAPER if hollow else fill, border)
        if hollow:
            self.ring(centre, radius, fill, 1.5 * border)
        size = radius * (1.4 if len(label) < 2 else 1.15 if len(label) == 2 else 0.85)
        self.text(centre, label, size, INK if hollow else contrast(fill))

    def _place(self, point: Point) -> np.ndarray:
        place = np.asarray(point, dtype=np.float64)
        if not np.isfinite(place).all():
            raise InputError(f"points to draw must be finite numbers, got {place.tolist()}")
        # Far outside nothing shows, and Pillow counts in 32 bits.
        return np.clip(place * self.factor, -1e6, 1e6)

    def _box(self, centre: Point, radius: float) -> list[float]:
        x, y = self._place(centre)
        reach = radius * self.factor
        return [x - reach, y - reach, x + reach, y + reach]


def _strokes(fill: Fill, width: float, halo: float) -> list[tuple[Colour, float]]:
    """Colours and widths to draw one after the other: the halo first, if there is one."""
    return [*([(PAPER, width + 2 * halo)] if halo else []), (rgb(fill), width)]


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
