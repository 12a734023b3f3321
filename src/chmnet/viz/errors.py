"""Predicted against true keypoints: how far off each one is."""

import numpy as np
from PIL import Image, ImageDraw

from chmnet.viz.matches import colour, panels


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

    Example:
        >>> grey = Image.new("RGB", (60, 40), "grey")
        >>> one = np.array([[10.0, 10.0]])
        >>> draw_errors(grey, grey, one, one + 5, one, side=120).size
        (244, 80)
    """
    drawing = panels(source, target, side)
    draw = ImageDraw.Draw(drawing.canvas)
    radius, line = max(3, side // 60), max(1, side // 160)
    starts, found, true = drawing.on_source(source_points), drawing.on_target(predicted), drawing.on_target(truth)
    for number, (start, cross, circle) in enumerate(zip(starts, found, true, strict=True)):
        fill = colour(number)
        for x, y in (start, circle):
            draw.ellipse([x - radius, y - radius, x + radius, y + radius], outline="white", width=line + 2)
            draw.ellipse([x - radius, y - radius, x + radius, y + radius], outline=fill, width=line + 1)
        draw.line([*circle, *cross], fill=fill, width=line)
        x, y = cross
        for shade, width in (("white", line + 2), (fill, line)):
            draw.line([x - radius, y - radius, x + radius, y + radius], fill=shade, width=width)
            draw.line([x - radius, y + radius, x + radius, y - radius], fill=shade, width=width)
    return drawing.canvas
