"""Matches on two pictures: a few with numbers, hundreds as thin lines, the scales that won."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from chmnet.config import CONFIDENCE_THRESHOLD
from chmnet.errors import InputError
from chmnet.viz.canvas import INK, Canvas, Colour, Sizes, colour, position_colours, sizes
from chmnet.viz.panels import Entry, add_legend, panels

SCALES_MARGIN = 3.4
"""Space around pictures for large circles and their numbers, in radii of a numbered point."""


def draw_matches(
    source: Image.Image,
    target: Image.Image,
    source_points: np.ndarray,
    target_points: np.ndarray,
    side: int = 480,
    confidence: np.ndarray | None = None,
    doubtful_below: float = CONFIDENCE_THRESHOLD,
    labels: Sequence[str] | None = None,
    groups: Sequence[int] | None = None,
) -> Image.Image:
    """Two pictures side by side, a numbered point and a line for each match.

    With confidences, more confident matches have stronger lines; doubtful ones are hollow, their lines thin and
    dashed, and a legend below explains them.

    Args:
        source: RGB picture on the left.
        target: RGB picture on the right.
        source_points: ``n`` rows (x, y) in pixels of the source.
        target_points: where they lie in the target.
        side: largest height and width of each picture in the drawing, in pixels.
        confidence: of each match, 0 … 1; ``None``: all look the same.
        doubtful_below: matches of less confidence are doubtful.
        labels: a short text for each match instead of its number.
        groups: number of the group of each match, from 0 on; a group has one colour. ``None``: each its own.

    Raises:
        InputError: the numbers of points, confidences, labels and groups differ, or a point is not finite.

    Example:
        >>> grey = Image.new("RGB", (60, 40), "grey")
        >>> draw_matches(grey, grey, np.array([[10, 10]]), np.array([[12, 9]]), side=120).size
        (276, 98)
    """
    check_pairs(source_points, target_points)
    count = len(source_points)
    for what, given in (("confidence", confidence), ("label", labels), ("group", groups)):
        if given is not None and len(given) != count:
            raise InputError(f"each point needs one {what}, got {len(given)} for {count} points")
    names = [str(number + 1) for number in range(count)] if labels is None else labels
    shades = [colour(number) for number in (range(count) if groups is None else groups)]
    values = np.ones(count) if confidence is None else np.asarray(confidence)
    doubtful = [confidence is not None and not value >= doubtful_below for value in values.tolist()]
    strength = np.nan_to_num(np.clip(values, 0, 1))
    order = np.argsort(strength, kind="stable").tolist()  # the most confident on top
    row, size = panels([source, target], side), sizes(side)
    starts, ends = row.on(0, source_points), row.on(1, target_points)
    canvas = Canvas(row.picture)
    for number in order:
        width = size.line * (0.6 if doubtful[number] else 0.7 + 0.6 * float(strength[number]))
        opacity = 0.4 + 0.6 * float(strength[number])
        canvas.line(
            starts[number], ends[number], shades[number], width, opacity, doubtful[number], halo=0.3 * size.line
        )
    for number in order:
        for place in (starts[number], ends[number]):
            canvas.numbered(place, names[number], shades[number], size.radius, doubtful[number])
    if not any(doubtful):
        return canvas.picture()
    radius, words = 0.5 * size.text, f"doubtful: confidence below {doubtful_below:g}"
    entries = [
        Entry(lambda legend, place: legend.disc(place, radius, INK), "confident", radius),
        Entry(lambda legend, place: legend.ring(place, radius, INK, radius / 3), words, radius),
    ]
    return add_legend(canvas.picture(), entries, size.text)


def draw_top_matches(
    source: Image.Image, target: Image.Image, source_points: np.ndarray, target_points: np.ndarray, side: int = 480
) -> Image.Image:
    """Hundreds of matches as dots and thin lines, coloured by where they lie in the source.

    Where neighbours stay neighbours the colours run as smoothly over the target as over the source.

    Arguments are those of :func:`draw_matches`; the most confident match comes first and is drawn on top.

    Raises:
        InputError: the numbers of points differ, or a point is not finite.

    Example:
        >>> grey = Image.new("RGB", (60, 60), "grey")
        >>> corners = np.array([[1.0, 1.0], [59.0, 59.0]])
        >>> draw_top_matches(grey, grey, corners, corners, side=120).getpixel((11, 11))  # light blue: top left
        (143, 216, 255)
    """
    check_pairs(source_points, target_points)
    shades = [(int(r), int(g), int(b)) for r, g, b in position_colours(_shares(np.asarray(source_points)))]
    order = range(len(shades) - 1, -1, -1)
    return _draw_many([source, target], [source_points, target_points], shades, order, side)


def _draw_many(
    pictures: Sequence[Image.Image],
    points: Sequence[np.ndarray],
    shades: Sequence[str | Colour],
    order: Sequence[int],
    side: int,
) -> Image.Image:
    """Matches as thin lines below, dots above, drawn in the order given."""
    row, size = panels(pictures, side), sizes(side)
    starts, ends = row.on(0, points[0]), row.on(1, points[1])
    canvas = Canvas(row.picture)
    for number in order:
        canvas.line(starts[number], ends[number], shades[number], 0.5 * size.line, opacity=0.45)
    for number in order:
        for place in (starts[number], ends[number]):
            canvas.disc(place, 0.3 * size.radius + 0.25 * size.line, INK)
            canvas.disc(place, 0.3 * size.radius, shades[number])
    return canvas.picture()


def draw_inside_matches(
    source: Image.Image,
    target: Image.Image,
    source_points: np.ndarray,
    target_points: np.ndarray,
    inside: np.ndarray,
    side: int = 480,
) -> Image.Image:
    """Hundreds of matches in two colours: inside the objects (blue) and outside (red-orange).

    Arguments are those of :func:`draw_matches`, and ``inside``, ``n``: which have both ends inside the objects.

    Raises:
        InputError: the numbers of points and of ``inside`` differ, or a point is not finite.

    Example:
        >>> grey, one = Image.new("RGB", (60, 60), "grey"), np.array([[30.0, 30.0]])
        >>> draw_inside_matches(grey, grey, one, one, np.array([True]), side=120).size
        (276, 138)
    """
    for others in (target_points, inside):
        check_pairs(source_points, others)
    order = np.argsort(np.asarray(inside), kind="stable").tolist()  # outside first: they never hide the others
    shades = [colour(0) if right else colour(1) for right in inside]
    return _draw_many([source, target], [source_points, target_points], shades, order, side)


def draw_scales(
    source: Image.Image,
    target: Image.Image,
    source_points: np.ndarray,
    target_points: np.ndarray,
    scales: np.ndarray,
    truth: np.ndarray | None = None,
    side: int = 480,
) -> Image.Image:
    """The winning scales of each match, as sizes of its circles (the paper's appendix A).

    Args:
        source, target, source_points, target_points, side: as of :func:`draw_matches`.
        scales: ``n`` rows: the winning scale of the source and of the target, such as (1, √2).
        truth: where the points really lie in the target: drawn as crosses, with a line as long as the error.

    Raises:
        InputError: the numbers of points and scales differ, or a number is not finite.

    Example:
        >>> grey, one = Image.new("RGB", (60, 40), "grey"), np.array([[30.0, 20.0]])
        >>> draw_scales(grey, grey, one, one, np.array([[1.0, 1.4]]), side=120).width
        324
    """
    for others in (target_points, scales, *(() if truth is None else (truth,))):
        check_pairs(source_points, others)
    scales = np.asarray(scales, dtype=np.float64).reshape(-1, 2)
    row, size = panels([source, target], side, SCALES_MARGIN), sizes(side)
    canvas, halo = Canvas(row.picture), 0.6 * size.line
    sides = [(row.on(0, source_points), scales[:, 0]), (row.on(1, target_points), scales[:, 1])]
    if truth is not None:
        for number, (cross, end) in enumerate(zip(row.on(1, truth), sides[1][0], strict=True)):
            canvas.line(cross, end, colour(number), size.line, halo=halo)
            canvas.cross(cross, 0.6 * size.radius, colour(number), size.line, halo=halo)
    for places, side_scales in sides:
        radii = [_scale_radius(scale, size.radius) for scale in side_scales.tolist()]
        for number, place in enumerate(places):
            canvas.ring(place, radii[number], colour(number), 1.6 * size.line, halo)
        for number, place in enumerate(places):
            canvas.beside(place, radii[number], str(number + 1), 0.9 * size.text)
    entries = [_scale_entry(value, size) for value in np.unique(np.round(scales, 6)).tolist()]
    if truth is not None:
        reach = 0.6 * size.radius
        entries.append(Entry(lambda legend, place: legend.cross(place, reach, INK, size.line), "truth", reach))
    return add_legend(canvas.picture(), entries, size.text) if entries else canvas.picture()


def _scale_radius(scale: float, radius: float) -> float:
    """Circles of half and double area would look alike: the radius grows with the scale's square."""
    return max(3.0, 1.1 * radius * scale**2)


def _scale_entry(scale: float, size: Sizes) -> Entry:
    radius = _scale_radius(scale, size.radius)
    words = f"scale {scale:.2f}".rstrip("0").rstrip(".")
    return Entry(lambda legend, place: legend.ring(place, radius, INK, 1.6 * size.line), words, radius)


def _shares(points: np.ndarray) -> np.ndarray:
    """Points as shares, 0 … 1, of the box around them all: the matched part uses all colours."""
    if len(points) == 0:
        return np.zeros((0, 2))
    low, high = points.min(axis=0), points.max(axis=0)
    return np.asarray((points - low) / np.maximum(high - low, 1e-9))


def check_pairs(source_points: np.ndarray, others: np.ndarray) -> None:
    """Check that each source point has one row in ``others``."""
    if len(source_points) != len(others):
        raise InputError(
            f"each source point needs one row of the rest, got {len(source_points)} and {len(others)}"
        )
