"""One picture with numbered keypoints."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image

from chmnet.viz.canvas import Canvas
from chmnet.viz.panels import panels
from chmnet.viz.style import PAPER, colour, sizes


def draw_keypoints(
    picture: Image.Image,
    points: Float[np.ndarray, "n 2"],
    sure: Bool[np.ndarray, " n"] | None = None,
    skeleton: Sequence[tuple[int, int]] = (),
    side: int = 320,
) -> Image.Image:
    """Draw keypoints: sure ones as filled numbered discs, doubtful ones hollow, with a question mark.

    Args:
        picture: RGB.
        points: rows (x, y) in pixels of the picture; NaN for those without a place, which keep their numbers.
        sure: which of them are; ``None``: all.
        skeleton: numbers, counted from 1, of keypoints to join by lines.
        side: largest height and width of the drawing, in pixels.

    Example:
        >>> grey = Image.new("RGB", (60, 40), "grey")
        >>> draw_keypoints(grey, np.array([[10.0, 10.0], [np.nan, np.nan]]), side=120).size
        (120, 80)
    """
    row = panels([picture], side, margin_radii=0)
    places = row.on(0, points)
    placed = np.isfinite(places).all(axis=1)
    canvas, look = Canvas(row.picture), sizes(side)
    radius = max(look.radius, 8.0)
    for first, second in skeleton:
        if placed[first - 1] and placed[second - 1]:
            canvas.line(places[first - 1], places[second - 1], PAPER, look.line, opacity=0.8)
    for number in np.flatnonzero(placed):
        if sure is None or sure[number]:
            canvas.numbered(places[number], str(number + 1), colour(int(number)), radius)
    for number in np.flatnonzero(placed):  # on top: they are what the reader looks for
        if sure is not None and not sure[number]:
            canvas.numbered(places[number], f"{number + 1}?", colour(int(number)), radius * 1.2, hollow=True)
    return canvas.picture()
