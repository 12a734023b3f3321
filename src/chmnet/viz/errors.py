"""Predicted against true keypoints: how far off each one is."""

import numpy as np
from PIL import Image

from chmnet.viz.canvas import Canvas
from chmnet.viz.matches import check_pairs
from chmnet.viz.panels import Entry, add_legend, panels
from chmnet.viz.style import INK, colour, sizes

MARGIN = 2.6
"""Space around pictures for marks with numbers beside them, in radii of a numbered point."""


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
        source: RGB picture on the left.
        target: RGB picture on the right.
        source_points: ``n`` rows (x, y) in pixels of the source.
        predicted: where they were found in the target.
        truth: where they are.
        side: largest height and width of each picture in the drawing, in pixels.

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
