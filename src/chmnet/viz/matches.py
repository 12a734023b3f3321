"""Two pictures side by side with numbered points and a line from each point to its match."""

from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# Okabe and Ito's colours: told apart by people with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A7A00", "#000000")


MOST_EXTREME = 8.0
"""Pictures narrower than 1 to 8 are drawn as 1 to 8: a drawing one pixel high shows nothing."""


class Panels(NamedTuple):
    """Two pictures on one canvas, and where their pixels went."""

    canvas: Image.Image
    source_scale: np.ndarray
    target_scale: np.ndarray
    target_shift: float

    def on_source(self, points: np.ndarray) -> np.ndarray:
        """Points of the source in pixels of the canvas."""
        return points * self.source_scale

    def on_target(self, points: np.ndarray) -> np.ndarray:
        """Points of the target in pixels of the canvas."""
        return points * self.target_scale + (self.target_shift, 0.0)


def panels(source: Image.Image, target: Image.Image, side: int) -> Panels:
    """Put two pictures side by side with one height, neither larger than ``side``."""
    widest = min(max(source.width / source.height, target.width / target.height, 1.0), MOST_EXTREME)
    height = round(side / widest)
    gap = max(4, side // 40)
    left, right = _scaled(source, height), _scaled(target, height)
    canvas = Image.new("RGB", (left.width + gap + right.width, height), "white")
    canvas.paste(left, (0, 0))
    canvas.paste(right, (left.width + gap, 0))
    return Panels(
        canvas,
        np.array([left.width / source.width, height / source.height]),
        np.array([right.width / target.width, height / target.height]),
        left.width + gap,
    )


def colour(number: int) -> str:
    """The colour of the point with this number."""
    return COLOURS[number % len(COLOURS)]


def draw_matches(
    source: Image.Image,
    target: Image.Image,
    source_points: np.ndarray,
    target_points: np.ndarray,
    side: int = 480,
) -> Image.Image:
    """Draw matches; both pictures get the same height.

    Args:
        source: RGB picture on the left.
        target: RGB picture on the right.
        source_points: ``n`` rows (x, y) in pixels of the source.
        target_points: where they lie in the target.
        side: largest height and width of each picture in the drawing, in pixels.

    Example:
        >>> grey = Image.new("RGB", (60, 40), "grey")
        >>> draw_matches(grey, grey, np.array([[10, 10]]), np.array([[12, 9]]), side=120).size
        (244, 80)
    """
    drawing = panels(source, target, side)
    starts, ends = drawing.on_source(source_points), drawing.on_target(target_points)
    draw = ImageDraw.Draw(drawing.canvas)
    line, radius = max(1, side // 240), max(4, side // 50)
    font = ImageFont.load_default(size=max(7, int(radius * 1.3)))
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        draw.line([*start, *end], fill=colour(number), width=line)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for x, y in (start, end):
            box = [x - radius, y - radius, x + radius, y + radius]
            draw.ellipse(box, fill=colour(number), outline="white", width=line)
            draw.text((x, y), str(number + 1), fill="white", anchor="mm", font=font)
    return drawing.canvas


def _scaled(picture: Image.Image, height: int) -> Image.Image:
    width = round(picture.width * height / picture.height)
    width = min(max(width, round(height / MOST_EXTREME)), round(height * MOST_EXTREME))
    return picture.resize((width, height), Image.Resampling.LANCZOS)
