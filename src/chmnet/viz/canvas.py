"""Smooth lines, marks and letters on a picture."""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from chmnet.errors import InputError
from chmnet.viz.style import INK, PAPER, Colour, contrast, font, rgb

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
        fill: str | Colour,
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

    def disc(self, centre: Point, radius: float, fill: str | Colour, border: float = 0.0) -> None:
        """A filled circle, with a light border around it."""
        if border:
            self._draw.ellipse(self._box(centre, radius + border), fill=PAPER)
        self._draw.ellipse(self._box(centre, radius), fill=rgb(fill))

    def ring(self, centre: Point, radius: float, fill: str | Colour, width: float, halo: float = 0.0) -> None:
        """A circle, ``width`` thick, whose outer radius is given."""
        if halo:
            thick = round((width + 2 * halo) * self.factor)
            self._draw.ellipse(self._box(centre, radius + halo), outline=PAPER, width=thick)
        thick = max(1, round(width * self.factor))
        self._draw.ellipse(self._box(centre, radius), outline=rgb(fill), width=thick)

    def cross(self, centre: Point, radius: float, fill: str | Colour, width: float, halo: float = 0.0) -> None:
        """Two crossing diagonals of a square with half the side ``radius``."""
        x, y = np.asarray(centre, dtype=np.float64)
        for shade, thickness in _strokes(fill, width, halo):
            reach = radius + (thickness - width) / 2
            self.line((x - reach, y - reach), (x + reach, y + reach), shade, thickness)
            self.line((x - reach, y + reach), (x + reach, y - reach), shade, thickness)

    def text(
        self,
        place: Point,
        text: str,
        size: float,
        fill: str | Colour = INK,
        anchor: str = "mm",
        halo: bool = False,
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

    def numbered(self, centre: Point, label: str, fill: str | Colour, radius: float, hollow: bool = False) -> None:
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


def _strokes(fill: str | Colour, width: float, halo: float) -> list[tuple[Colour, float]]:
    """Colours and widths to draw one after the other: the halo first, if there is one."""
    return [*([(PAPER, width + 2 * halo)] if halo else []), (rgb(fill), width)]
