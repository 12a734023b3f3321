"""Keypoints: numbered on one picture, or predicted against true ones on two."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image

from chmnet.viz.canvas import INK, PAPER, Canvas, colour, sizes
from chmnet.viz.matches import check_pairs
from chmnet.viz.panels import Entry, add_legend, panels

MARGIN = 2.6
"""Space around pictures for marks with numbers beside them, in radii of a numbered point."""


def draw_keypoints(
    picture: Image.Image,
    points: Float[np.ndarray, "n 2"],
    sure: Bool[np.ndarray, " n"] | None = None,
    skeleton: Sequence[tuple[int, int]] = (),
    side: int = 320,
) -> Image.Image:
    """Draw keypoints: confident ones as filled numbered discs, doubtful ones hollow, with a question mark.

    Args:
        picture: RGB.
        points: rows (x, y) in pixels of the picture; NaN for missing ones, which keep their numbers.
        sure: which of them are confident; ``None``: all.
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
    for number in np.flatnonzero(placed):  # on top: these are to be checked
        if sure is not None and not sure[number]:
            canvas.numbered(places[number], f"{number + 1}?", colour(int(number)), radius * 1.2, hollow=True)
    return canvas.picture()


def draw_errors(
    source: Image.Image,
    target: Image.Image,
    source_points: np.ndarray,
    predicted: np.ndarray,
    truth: np.ndarray,
    side: int = 320,
) -> Image.Image:
    """The source's keypoints on the left; on the right circles for the truth, crosses for the predictions.

    A line joins the two: its length is the error.

    Args:
        source, target, source_points, side: as of :func:`chmnet.viz.draw_matches`.
        predicted: ``n`` rows (x, y) in pixels of the target: where the points were found.
        truth: where they are.

    Raises:
        InputError: the numbers of points differ, or a point is not finite.

    Example:
        >>> grey = Image.new("RGB", (60, 40), "grey")
        >>> one = np.array([[10.0, 10.0]])
        >>> draw_errors(grey, grey, one, one + 5, one, side=240).width
        544
    """
    check_pairs(source_points, predicted)
    check_pairs(source_points, truth)
    row, size = panels([source, target], side, MARGIN), sizes(side)
    starts, found, true = row.on(0, source_points), row.on(1, predicted), row.on(1, truth)
    canvas, halo = Canvas(row.picture), 0.6 * size.line
    reach, along = 0.7 * size.radius, np.array([0.7 * size.radius, 0.0])
    for number, (start, cross, circle) in enumerate(zip(starts, found, true, strict=True)):
        canvas.numbered(start, str(number + 1), colour(number), size.radius)
        canvas.line(circle, cross, colour(number), size.line, halo=halo)
    for number, (cross, circle) in enumerate(zip(found, true, strict=True)):
        canvas.ring(circle, size.radius, colour(number), 1.5 * size.line, halo=halo)
        canvas.cross(cross, reach, colour(number), 1.5 * size.line, halo=halo)
        canvas.beside(circle, size.radius, str(number + 1), size.text)
    entries = [
        Entry(lambda legend, place: legend.ring(place, reach, INK, 1.5 * size.line), "truth", reach),
        Entry(lambda legend, place: legend.cross(place, reach, INK, 1.5 * size.line), "found", reach),
        Entry(lambda legend, place: legend.line(place - along, place + along, INK, size.line), "error", reach),
    ]
    return add_legend(canvas.picture(), entries, size.text)
