"""Heat maps over pictures: how sure each part of the source is, where one point may lie in the target."""

import math

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image

from chmnet.errors import InputError
from chmnet.geometry import normalised_to_grid, pixels_to_normalised
from chmnet.viz.canvas import Canvas
from chmnet.viz.panels import Panels, panels, stack
from chmnet.viz.style import FRAME, INK, PAPER, colour, map_colours, sizes


def draw_confidence(
    picture: Image.Image, confidence: Shaped[np.ndarray, "h w"], side: int = 480, words: str = "confidence"
) -> Image.Image:
    """How sure the matches of each part of a picture are: colours over the picture in grey, and their scale.

    Args:
        picture: RGB picture, usually the source.
        confidence: numbers from 0 to 1 on a regular grid whose outer points lie on the picture's border.
        side: largest height and width of the picture in the drawing, in pixels.
        words: what the numbers are.

    Raises:
        InputError: the map is empty, or a number in it is not finite.

    Example:
        >>> drawing = draw_confidence(Image.new("RGB", (60, 40), "grey"), np.array([[0.0, 1.0]]), side=120)
        >>> drawing.getpixel((15, 50))[2] > 100, drawing.getpixel((120, 50))[2] < 100  # dark blue … yellow
        (True, True)
    """
    _check_map(confidence)
    row = panels([picture], side)
    _lay_over(row, 0, np.clip(confidence, 0, 1), least=0.6, most=0.6)
    return stack([row.picture, colour_bar(row.picture.width, 1.0, words, side)])


def draw_heat(
    source: Image.Image,
    target: Image.Image,
    point: np.ndarray,
    heat: Shaped[np.ndarray, "ht wt"],
    found: np.ndarray | None = None,
    side: int = 480,
    words: str = "probability",
) -> Image.Image:
    """Where one chosen point of the source may lie in the target.

    Args:
        source: RGB picture on the left, with the point marked.
        target: RGB picture on the right, with the heat map over it.
        point: (x, y) in pixels of the source.
        heat: numbers of 0 or more on a regular grid whose outer points lie on the target's border.
        found: (x, y) in pixels of the target where the match was found; ``None`` marks nothing.
        side: largest height and width of each picture in the drawing, in pixels.
        words: what the numbers are.

    Raises:
        InputError: the map is empty, or a number in it, or of a point, is not finite.

    Example:
        >>> grey, heat = Image.new("RGB", (60, 40), "grey"), np.array([[0.0, 0.2]])
        >>> draw_heat(grey, grey, np.array([30, 20]), heat, side=120).width
        276
    """
    _check_map(heat)
    row, size = panels([source, target], side), sizes(side)
    largest = float(max(heat.max(), 0.0))
    _lay_over(row, 1, np.clip(heat, 0, None) / (largest or 1.0), least=0.0, most=0.9)
    canvas = Canvas(row.picture)
    width, halo = 1.2 * size.line, 0.6 * size.line
    canvas.cross(row.on(0, point)[0], 0.7 * size.radius, colour(1), width, halo)
    canvas.ring(row.on(0, point)[0], 1.4 * size.radius, colour(1), width, halo)
    if found is not None:  # a ring alone, and a wide one: the map shows through
        canvas.ring(row.on(1, found)[0], 2 * size.radius, colour(1), width, halo)
    return stack([canvas.picture(), colour_bar(row.picture.width, largest, words, side)])


def colour_bar(width: int, largest: float, words: str, side: int) -> Image.Image:
    """The colours from 0 to the largest value, with numbers and what they mean."""
    text = sizes(side).text
    length = round(min(width, max(14 * text, 0.6 * side)))
    margin, thickness = round(2.5 * text), round(0.9 * text)
    length = max(length - 2 * margin, round(8 * text))
    strip = Image.new("RGB", (length + 2 * margin, round(3.9 * text)), PAPER)
    top = round(1.5 * text)
    strip.paste(FRAME, (margin - 1, top - 1, margin + length + 1, top + thickness + 1))
    shades = map_colours(np.linspace(0, 1, length))[None].repeat(thickness, axis=0)
    strip.paste(Image.fromarray(shades), (margin, top))
    canvas = Canvas(strip)
    canvas.text((margin + length / 2, 0.75 * text), words, text, INK)
    for share in (0.0, 0.5, 1.0):
        x = margin + share * length
        canvas.line((x, top + thickness), (x, top + 1.3 * thickness), INK, max(1.0, text / 14))
        canvas.text((x, top + 1.4 * thickness), f"{share * largest:.2g}", text, INK, anchor="ma")
    return canvas.picture()


def _lay_over(row: Panels, number: int, values: np.ndarray, least: float, most: float) -> None:
    """Colour one picture of a row by values from 0 to 1, over its pale grey form: the larger, the more opaque."""
    left, top, right, bottom = row.boxes[number]
    shown = enlarge_map(values, bottom - top, right - left)
    grey = np.asarray(row.picture.crop((left, top, right, bottom)).convert("L"), dtype=np.float64)[..., None]
    pale = 255 - 0.7 * (255 - grey)
    opacity = (least + (most - least) * np.sqrt(shown))[..., None]
    mixed = opacity * map_colours(shown) + (1 - opacity) * pale
    row.picture.paste(Image.fromarray(np.round(mixed).astype(np.uint8)), (left, top))


def enlarge_map(values: Shaped[np.ndarray, "h w"], height: int, width: int) -> Float[np.ndarray, "height width"]:
    """Values of a regular grid at the middle of every pixel of a picture, linear in between.

    Example:
        >>> enlarge_map(np.array([[0.0, 1.0]]), height=1, width=4).tolist()
        [[0.125, 0.375, 0.625, 0.875]]
    """
    middles = np.stack(np.broadcast_arrays(*(np.arange(max(height, width)) + 0.5,) * 2), axis=-1)
    places = pixels_to_normalised(torch.from_numpy(middles), (height, width))
    columns, rows = normalised_to_grid(places, (values.shape[0], values.shape[1])).numpy().T
    weights = [
        np.clip(1 - np.abs(axis[:, None] - np.arange(length)), 0, 1)
        for axis, length in ((rows[:height], values.shape[0]), (columns[:width], values.shape[1]))
    ]
    return np.asarray(weights[0] @ values.astype(np.float64) @ weights[1].T)


def _check_map(values: np.ndarray) -> None:
    if values.size == 0 or not math.isfinite(float(values.sum())):
        raise InputError(
            f"a heat map needs at least one number, all of them finite, got shape {list(values.shape)}"
        )
