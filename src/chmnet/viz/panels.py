"""Pictures beside each other: where each one goes, and where its points go; sheets of captioned pictures."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from chmnet.errors import InputError
from chmnet.geometry import Size, rescale_points
from chmnet.viz.canvas import FRAME, INK, PAPER, Canvas, font, sizes

MOST_EXTREME = 8.0
"""Pictures narrower than 1 to 8 are drawn as 1 to 8: a drawing one pixel high shows nothing."""

SHEET_PIXELS = 40_000_000
"""A sheet has no more pixels than this: with many pictures each gets smaller."""


class Panels(NamedTuple):
    """Pictures on one canvas, and where their pixels went."""

    picture: Image.Image
    boxes: list[tuple[int, int, int, int]]
    """Left, top, right and bottom of each picture on the canvas."""
    originals: list[Size]

    def on(self, number: int, points: np.ndarray) -> np.ndarray:
        """Points (x, y) of the picture with this number, in pixels of the canvas."""
        left, top, right, bottom = self.boxes[number]
        rows = np.asarray(points, dtype=np.float64).reshape(-1, 2)
        shift = np.array([left, top], dtype=np.float64)
        return rescale_points(rows, self.originals[number], (bottom - top, right - left)) + shift


def panels(pictures: Sequence[Image.Image], side: int, margin_radii: float = 1.4) -> Panels:
    """Put pictures in a row, neither higher nor wider than ``side``, with one height where that suits all.

    Around each is a thin frame, and a margin, measured in radii of a numbered point, for marks on its border.

    Example:
        >>> wide, square = Image.new("RGB", (80, 40)), Image.new("RGB", (9, 9))
        >>> panels([wide, square], side=100).boxes
        [(9, 9, 109, 59), (127, 9, 177, 59)]
    """
    widest = max(_aspect(picture) for picture in pictures)
    # Beside a very wide picture others would be tiny at its height: they may be up to half a side high.
    fitted = [_fit(picture, side, max(side / max(widest, 1.0), side / 2)) for picture in pictures]
    height, margin = max(picture.height for picture in fitted), math.ceil(margin_radii * sizes(side).radius)
    width = sum(picture.width + 2 * margin for picture in fitted)
    row = Image.new("RGB", (width, height + 2 * margin), PAPER)
    boxes, left = [], margin
    for picture in fitted:
        top = margin + (height - picture.height) // 2
        right, bottom = left + picture.width, top + picture.height
        row.paste(FRAME, (left - 1, top - 1, right + 1, bottom + 1))
        row.paste(picture, (left, top))
        boxes.append((left, top, right, bottom))
        left = right + 2 * margin
    return Panels(row, boxes, [(picture.height, picture.width) for picture in pictures])


def contact_sheet(
    pictures: Sequence[Image.Image],
    captions: Sequence[str] = (),
    columns: int | None = None,
    side: int | None = 320,
) -> Image.Image:
    """Several pictures in rows and columns on white, each with its caption above it.

    Args:
        pictures: of any sizes; small ones are enlarged.
        captions: one for each picture, or none at all; what is too long for two lines ends in "…".
        columns: how many pictures in a row; ``None``: about as many as there are rows.
        side: largest height and width of each picture on the sheet, in pixels, less where there are very many;
            ``None`` pastes the pictures as they are, which suits drawings with letters in them.

    Raises:
        InputError: there are no pictures, fewer than one column, or another number of captions.

    Example:
        >>> red, blue = Image.new("RGB", (30, 20), "red"), Image.new("RGB", (20, 30), "blue")
        >>> sheet = contact_sheet([red, blue], ["a car", "a bus"], columns=2, side=100)
        >>> sheet.getpixel((50, 80)), sheet.getpixel((sheet.width - 50, 80))
        ((255, 0, 0), (0, 0, 255))
    """
    if not pictures:
        raise InputError("a contact sheet needs at least one picture, got none")
    if captions and len(captions) != len(pictures):
        raise InputError(
            f"a contact sheet needs a caption for each picture, got {len(captions)} captions "
            f"for {len(pictures)} pictures"
        )
    columns = math.ceil(math.sqrt(len(pictures))) if columns is None else columns
    if columns < 1:
        raise InputError(f"a contact sheet needs at least one column, got {columns}")
    if side is not None:
        side = min(side, math.isqrt(SHEET_PIXELS // len(pictures)))
        pictures = [_fit(picture, side, side) for picture in pictures]
    columns = min(columns, len(pictures))
    text = sizes(side or max(max(picture.size) for picture in pictures) // 2).text
    gap = round(text)
    width = max(max(picture.width for picture in pictures), round(10 * text) if captions else 1)
    lines = [_wrap(caption, width, text) for caption in captions] or [[]] * len(pictures)
    return _lay_out(pictures, lines, columns, width, gap, text)


class Entry(NamedTuple):
    """A sign of a legend and what it means."""

    draw: Callable[[Canvas, np.ndarray], None]
    """Draws the sign around a place on a canvas."""
    words: str
    reach: float
    """How far the sign extends from its place."""


def add_legend(picture: Image.Image, entries: Sequence[Entry], text: float) -> Image.Image:
    """The picture with signs and what they mean in a strip below it, on as many lines as they need."""
    letters, gap = font(text), 0.7 * text
    lengths = [2 * entry.reach + gap + letters.getlength(entry.words) + 2 * gap for entry in entries]
    lines: list[list[int]] = [[]]
    for number, length in enumerate(lengths):
        if lines[-1] and sum(lengths[item] for item in lines[-1]) + length > picture.width:
            lines.append([])
        lines[-1].append(number)
    height = round(2 * max(text, *(entry.reach for entry in entries)) + gap)
    width = max(picture.width, *(math.ceil(sum(lengths[item] for item in line)) for line in lines))
    strip = Canvas(Image.new("RGB", (width, height * len(lines)), PAPER))
    for row, line in enumerate(lines):
        left, middle = (width - sum(lengths[item] for item in line)) / 2 + gap, (row + 0.5) * height
        for item in line:
            entry = entries[item]
            entry.draw(strip, np.array([left + entry.reach, middle]))
            strip.text((left + 2 * entry.reach + gap, middle), entry.words, text, anchor="lm")
            left += lengths[item]
    return stack([picture, strip.picture()])


def stack(pictures: Sequence[Image.Image], gap: int = 0) -> Image.Image:
    """Pictures below each other, centred on white."""
    width = max(picture.width for picture in pictures)
    height = sum(picture.height + gap for picture in pictures) - gap
    canvas, top = Image.new("RGB", (width, height), PAPER), 0
    for picture in pictures:
        canvas.paste(picture, ((width - picture.width) // 2, top))
        top += picture.height + gap
    return canvas


def _lay_out(
    pictures: Sequence[Image.Image], lines: list[list[str]], columns: int, width: int, gap: int, text: float
) -> Image.Image:
    """Cells of one width; each row as high as its highest picture and its longest caption."""
    rows = [range(first, min(first + columns, len(pictures))) for first in range(0, len(pictures), columns)]
    line_height = round(1.3 * text)
    heads = [max(len(lines[item]) for item in row) * line_height for row in rows]
    bodies = [max(pictures[item].height for item in row) for row in rows]
    size = gap + columns * (width + gap), gap + sum(heads) + sum(bodies) + len(rows) * gap
    canvas, places, top = Image.new("RGB", size, PAPER), [], gap
    for row, head, body in zip(rows, heads, bodies, strict=True):
        for column, item in enumerate(row):
            left = gap + column * (width + gap)
            canvas.paste(pictures[item], (left + (width - pictures[item].width) // 2, top + head))
            places.append((left + width / 2, top))
        top += head + body + gap
    if not any(lines):
        return canvas
    letters = Canvas(canvas)
    for (centre, top), caption in zip(places, lines, strict=True):
        for number, line in enumerate(caption):
            letters.text((centre, top + number * line_height), line, text, INK, anchor="ma")
    return letters.picture()


def _wrap(caption: str, width: float, text: float, most: int = 2) -> list[str]:
    """Lines no longer than ``width`` pixels, at most so many; words that are too long are cut."""
    letters = font(text)
    lines: list[str] = []
    rest = " ".join(caption.split())
    while rest:
        end = len(rest)
        while end > 1 and letters.getlength(rest[:end]) > width:
            end -= 1
        if end < len(rest):
            if len(lines) == most - 1:
                return [*lines, rest[: max(1, end - 1)].rstrip() + "…"]
            space = rest.rfind(" ", 1, end + 1)
            end = space if space > 0 else end
        lines.append(rest[:end].strip())
        rest = rest[end:].strip()
    return lines


def _aspect(picture: Image.Image) -> float:
    return min(max(picture.width / picture.height, 1 / MOST_EXTREME), MOST_EXTREME)


def _fit(picture: Image.Image, width: float, height: float) -> Image.Image:
    """The picture as large as it may be; very narrow ones are widened."""
    aspect = _aspect(picture)
    size = max(1, round(min(width, height * aspect))), max(1, round(min(height, width / aspect)))
    return picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
