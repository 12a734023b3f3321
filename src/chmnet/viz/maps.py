"""Maps over pictures: confidence, heat, warped pictures beside and over their targets, morphing."""

import math

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image

from chmnet.errors import InputError
from chmnet.geometry import normalised_to_grid, pixels_to_normalised
from chmnet.viz.canvas import FRAME, INK, PAPER, Canvas, colour, map_colours, sizes
from chmnet.viz.panels import Panels, contact_sheet, panels, stack


def draw_confidence(
    picture: Image.Image, confidence: Shaped[np.ndarray, "h w"], side: int = 480, words: str = "confidence"
) -> Image.Image:
    """Confidence of the matches of each part of a picture: colours over the grey picture, and a colour bar.

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
    """Heat map over the target: where one point of the source may lie.

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


def blend(warped: Image.Image, target: Image.Image, share: float = 0.5) -> Image.Image:
    """Both pictures at once: ``share`` of the warped one, the rest of the target.

    Raises:
        InputError: the pictures differ in size, or the share is not from 0 to 1.

    Example:
        >>> black, white = Image.new("RGB", (2, 2)), Image.new("RGB", (2, 2), "white")
        >>> blend(white, black, 0.2).getpixel((0, 0))
        (51, 51, 51)
    """
    _check_sizes(warped, target)
    if not 0 <= share <= 1:
        raise InputError(f"the share of a blend must be from 0 to 1, got {share:g}")
    return Image.blend(target.convert("RGB"), warped.convert("RGB"), share)


def checkerboard(warped: Image.Image, target: Image.Image, squares: int = 8) -> Image.Image:
    """Alternating squares of both pictures: edges are continuous where the two agree.

    Args:
        warped: its squares begin at the top left.
        target: of the same size.
        squares: how many along the longer side.

    Raises:
        InputError: the pictures differ in size, or ``squares`` is below 1.

    Example:
        >>> black, white = Image.new("RGB", (2, 1)), Image.new("RGB", (2, 1), "white")
        >>> np.asarray(checkerboard(white, black, squares=2))[0, :, 0].tolist()
        [255, 0]
    """
    _check_sizes(warped, target)
    if squares < 1:
        raise InputError(f"a checkerboard needs at least one square, got {squares}")
    length = max(1.0, max(target.size) / squares)
    rows, columns = np.floor(np.arange(target.height) / length), np.floor(np.arange(target.width) / length)
    chosen = (rows[:, None] + columns) % 2 == 0
    mask = Image.fromarray(np.where(chosen, 255, 0).astype(np.uint8))
    return Image.composite(warped.convert("RGB"), target.convert("RGB"), mask)


def draw_warp(source: Image.Image, warped: Image.Image, target: Image.Image, side: int = 320) -> Image.Image:
    """Source, warped source and target; below, the last two in a checkerboard and blended.

    Args:
        source: RGB picture.
        warped: the source in the frame of the target.
        target: of the same size as ``warped``.
        side: largest height and width of each picture in the drawing, in pixels.

    Raises:
        InputError: warped picture and target differ in size.

    Example:
        >>> grey = Image.new("RGB", (60, 40), "grey")
        >>> draw_warp(grey, grey, grey, side=120).size
        (404, 249)
    """
    pictures = [source, warped, target, checkerboard(warped, target), blend(warped, target)]
    captions = ["source", "source warped onto target", "target", "checkerboard of the two", "the two blended"]
    return contact_sheet(pictures, captions, columns=3, side=side)


def morph_frames(first: Image.Image, second: Image.Image, steps: int = 10, side: int = 320) -> list[Image.Image]:
    """Frames that fade from one picture to another of the same size and back, ready to be looped.

    Args:
        first: RGB picture at the beginning.
        second: RGB picture in the middle.
        steps: frames from one to the other.
        side: largest height and width of the frames, in pixels.

    Example:
        >>> dark, bright = Image.new("RGB", (640, 320)), Image.new("RGB", (640, 320), "white")
        >>> frames = morph_frames(dark, bright, steps=2)
        >>> frames[0].size, [frame.convert("RGB").getpixel((9, 9))[0] for frame in frames]
        ((320, 160), [0, 127, 255, 127])
    """
    scale = min(1.0, side / max(first.size))
    size = max(1, round(first.width * scale)), max(1, round(first.height * scale))
    ends = [picture.resize(size, Image.Resampling.LANCZOS) for picture in (first, second)]
    shares = (1 - np.cos(np.linspace(0, np.pi, steps + 1))) / 2  # slow at both ends
    there = [Image.blend(ends[0], ends[1], float(share)) for share in shares]
    frames = [*there, *there[-2:0:-1]]
    # One palette for all frames: colours that stay do not flicker, and the file is smaller.
    strip = Image.new("RGB", (size[0] * 3, size[1]))
    for number, frame in enumerate((there[0], there[len(there) // 2], there[-1])):
        strip.paste(frame, (size[0] * number, 0))
    palette = strip.quantize(256)
    return [frame.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG) for frame in frames]


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


def _check_sizes(warped: Image.Image, target: Image.Image) -> None:
    if warped.size != target.size:
        raise InputError(
            f"the warped picture must have the target's {target.width}×{target.height} pixels, "
            f"got {warped.width}×{warped.height}"
        )
