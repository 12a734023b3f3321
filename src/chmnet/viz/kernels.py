"""Learned kernels as offset maps (figures of the paper's appendix A): which neighbours vote, and how strongly."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped
from PIL import Image, ImageOps

from chmnet.errors import InputError
from chmnet.viz.canvas import FRAME, INK, PAPER, Canvas, Colour, font, map_colours
from chmnet.viz.panels import stack

WEIGHTS = "YlGnBu"
"""Colours of weights: the darker, the larger; light ones hardly stand out from the paper."""
LIGHTEST = 0.12
"""Where in the colour map the smallest weight lies."""
CELL = 19
"""Pixels from one cell of a window to the next."""
MAP_SIDE = 106
"""Pixels of a map with its border; windows of more than five cells have finer cells."""
COLUMNS = 15
"""Maps in a line: as many as a window of 5 × 5 has distances."""
SLICES_DRAWN = 9
"""Of kernels with more distinct slices, those nearest to the match's own scales are drawn."""
CHANNELS_DRAWN = 4
"""Kernels drawn of a layer with several channels."""
SHARING = {
    "psi": "shared by offset and positions (psi)",
    "iso": "shared by offset (iso)",
    "full": "none shared (full)",
}
TEXT = 15.0
LABEL_WIDTH = 190


class Slice(NamedTuple):
    """A 4D kernel, and the scale steps of source and target at which it is used."""

    weights: np.ndarray
    """``hs ws ht wt``."""
    steps: list[tuple[int, int]]


READING = (
    "Each map is the window around a match. Disc: a neighbour that moves just as the match does. "
    "Arrow: one that moves differently, by the arrow.",
    "The darker, the more its vote counts; below 0 it counts against. Columns: length of the arrows, in cells.",
)


def titled_kernels(name: str, first: Any, last: Any, fine: Any = None) -> list[tuple[str, np.ndarray]]:
    """The kernels of a model's votes, each with a title; of several channels the first four.

    Args:
        name: of the model.
        first: a :class:`chmnet.nn.HoughMatching` layer; other layers have no kernel to draw.
        last: likewise.
        fine: likewise, of a fine branch.

    Raises:
        InputError: none is a Hough layer.

    Example:
        >>> from chmnet.nn import HoughMatching
        >>> titled_kernels("untrained", HoughMatching(5), None)[0][0]
        'untrained, first vote: pairs of positions (4D), 55 weights, shared by offset and positions (psi)'
    """
    titled = []
    for vote, layer in (("first vote", first), ("last vote", last), ("fine vote", fine)):
        if not hasattr(layer, "sharing"):
            continue
        space = "positions (4D)" if layer.scale is None else "positions and scales (6D)"
        title = f"{name}, {vote}: pairs of {space}, {layer.groups.number} weights, {SHARING[layer.sharing]}"
        kernels = layer.kernel().detach().float().cpu().flatten(0, 1).numpy()
        for channel, kernel in enumerate(kernels[:CHANNELS_DRAWN], start=1):
            titled.append((title + (f", channel {channel} of {len(kernels)}" if len(kernels) > 1 else ""), kernel))
    if not titled:
        raise InputError(f"{name} has no Hough layers; draw the kernels of chmnet-lite or hough-prior")
    return titled


def draw_kernels(kernels: Sequence[tuple[str, np.ndarray]]) -> Image.Image:
    """Several kernels below each other, each with its title, and above them how to read the maps.

    Args:
        kernels: title and array of each; see :func:`draw_kernel`.

    Raises:
        InputError: there is none, or one is not a kernel.

    Example:
        >>> kernel = np.random.default_rng(0).random((3, 3, 3, 3))
        >>> draw_kernels([("first", kernel)]).height < draw_kernels([("first", kernel), ("last", kernel)]).height
        True
    """
    if not kernels:
        raise InputError("expected at least one kernel to draw, got none")
    words = [_words(line, TEXT) for line in READING]
    page = stack([stack(words), *(draw_kernel(kernel, title) for title, kernel in kernels)])
    return ImageOps.expand(page, round(TEXT), PAPER)


def draw_kernel(kernel: Shaped[np.ndarray, "*taps"], title: str = "") -> Image.Image:
    """One kernel as maps of arrows, a line of maps for each of its distinct 4D slices.

    A tap is a pair of cells: p in the source's window and p′ in the target's. It is drawn as an arrow from p to
    p′, or as a disc where the two are the same: dark for a large weight, light for a small one. Each map holds
    the taps of one length ‖p′ − p‖, from 0 on the left, which is "the neighbour moves as I do", to the longest.

    Args:
        kernel: ``hs ws ht wt``, or with scales ``ss st hs ws ht wt``; windows are square and odd.
        title: a line above the maps.

    Raises:
        InputError: the array is no such kernel, or a weight is not finite.

    Example:
        >>> drawing = draw_kernel(np.random.default_rng(0).random((3, 3, 3, 3)), title="three by three")
        >>> drawing.width > 6 * MAP_SIDE  # offsets of six lengths: 0, 1, √2, 2, √5 and √8
        True
    """
    _check_kernel(kernel)
    low, high = float(kernel.min()), float(kernel.max())
    slices = kernel_slices(kernel)
    lines: list[Image.Image] = []
    if len(slices) > SLICES_DRAWN:
        title = f"{title} ({SLICES_DRAWN} of {len(slices)} pairs of scales)"
    if title:
        lines.append(_words(title, 1.3 * TEXT))
    for number, one in enumerate(slices[:SLICES_DRAWN]):
        label = [] if kernel.ndim == 4 else _describe(one.steps)
        lines.append(_draw_slice(one.weights, low, high, label, lengths=number == 0))
    lines.append(_weight_bar(low, high))
    return ImageOps.expand(stack(lines, round(TEXT / 2)), round(TEXT), PAPER)


def kernel_slices(kernel: Shaped[np.ndarray, "*taps"]) -> list[Slice]:
    """The distinct 4D slices of a kernel: four of a 6D psi kernel, three of an iso, nine of a full one.

    The slice of the match's own scales comes first, then those of growing distance from it.

    Example:
        >>> kernel = np.zeros((3, 3, 5, 5, 5, 5))
        >>> kernel[1, 1] = 1
        >>> [one.steps for one in kernel_slices(kernel)][0], len(kernel_slices(kernel))
        ([(0, 0)], 2)
    """
    if kernel.ndim == 4:
        return [Slice(kernel, [(0, 0)])]
    reach = kernel.shape[0] // 2
    pairs = [(s, t) for s in range(-reach, reach + 1) for t in range(-reach, reach + 1)]
    slices: list[Slice] = []
    for source, target in sorted(pairs, key=lambda pair: (abs(pair[1] - pair[0]), abs(pair[0]) + abs(pair[1]))):
        weights = kernel[source + reach, target + reach]
        same = next((one for one in slices if np.array_equal(one.weights, weights)), None)
        if same is None:
            slices.append(Slice(weights, [(source, target)]))
        else:
            same.steps.append((source, target))
    return slices


def _check_kernel(kernel: np.ndarray) -> None:
    window, scales = set(kernel.shape[-4:]), set(kernel.shape[:-4])
    odd = all(length % 2 == 1 for length in kernel.shape)
    if kernel.ndim not in (4, 6) or len(window) != 1 or len(scales) > 1 or not odd:
        raise InputError(
            "a kernel must have the axes hs ws ht wt or ss st hs ws ht wt, with square and odd windows, "
            f"got shape {list(kernel.shape)}"
        )
    if not np.isfinite(kernel).all():
        raise InputError("the weights of a kernel must be finite, got NaN or infinity")


def _draw_slice(weights: np.ndarray, low: float, high: float, label: list[str], lengths: bool) -> Image.Image:
    """All maps of a 4D kernel, in lines of fifteen."""
    taps = _taps_by_length(weights, _shades(_shares(weights, low, high)))
    head, left = round(1.6 * TEXT) if lengths else 0, LABEL_WIDTH if label else 0
    columns = min(COLUMNS, len(taps))
    height = math.ceil(len(taps) / columns) * (MAP_SIDE + head)
    canvas = Canvas(Image.new("RGB", (left + columns * MAP_SIDE, height), PAPER))
    for number, line in enumerate(label):
        canvas.text(
            (0, head + MAP_SIDE / 2 + (number - (len(label) - 1) / 2) * 1.3 * TEXT), line, TEXT, anchor="lm"
        )
    if label and lengths:
        canvas.text((0, head / 2), "steps (source, target)", TEXT, anchor="lm")
    for number, (squared, rows) in enumerate(taps.items()):
        corner = np.array([left + number % columns * MAP_SIDE, number // columns * (MAP_SIDE + head) + head])
        if lengths:
            canvas.text((corner[0] + MAP_SIDE / 2, corner[1] - head / 2), _length_name(squared), TEXT)
        _draw_map(canvas, corner, rows, weights.shape[0])
    return canvas.picture()


class Tap(NamedTuple):
    """A pair of cells, both as (row, column), and the colour of its weight."""

    source: tuple[int, int]
    target: tuple[int, int]
    shade: Colour


def _taps_by_length(weights: np.ndarray, shades: np.ndarray) -> dict[int, list[Tap]]:
    """The taps of each squared length of an offset, the lightest first: dark ones are drawn over them."""
    taps: dict[int, list[Tap]] = {}
    for position in np.argsort(weights, axis=None, kind="stable"):
        a, b, c, d = (int(index) for index in np.unravel_index(position, weights.shape))
        red, green, blue = shades[a, b, c, d].tolist()
        taps.setdefault((c - a) ** 2 + (d - b) ** 2, []).append(Tap((a, b), (c, d), (red, green, blue)))
    return {squared: taps[squared] for squared in sorted(taps)}


def _draw_map(canvas: Canvas, corner: np.ndarray, taps: list[Tap], window: int) -> None:
    """The taps of one length in a frame: dots for the cells, arrows and discs for the taps."""
    cell = min(CELL, (MAP_SIDE - 12) / window)
    middle = corner + MAP_SIDE / 2

    def place(position: tuple[int, int]) -> np.ndarray:
        row, column = position
        return middle + cell * (np.array([column, row]) - (window - 1) / 2)

    reach = window * cell / 2
    for one, other in (((-1, -1), (1, -1)), ((1, -1), (1, 1)), ((1, 1), (-1, 1)), ((-1, 1), (-1, -1))):
        canvas.line(middle + reach * np.array(one), middle + reach * np.array(other), FRAME, 1)
    for source, target, shade in taps:
        if source == target:
            canvas.disc(place(source), 0.3 * cell, shade)
        else:
            _arrow(canvas, place(source), place(target), shade, cell)


def _arrow(canvas: Canvas, start: np.ndarray, end: np.ndarray, shade: Colour, cell: float) -> None:
    """An arrow, shifted to its right: the opposite arrow lies beside it."""
    along = (end - start) / np.linalg.norm(end - start)
    across = np.array([-along[1], along[0]])
    start = start + cell * (0.12 * along + 0.1 * across)
    end = end - cell * (0.12 * along - 0.1 * across)
    canvas.line(start, end, shade, max(1.0, cell / 15))
    for turn in (1, -1):
        canvas.line(end, end - 0.22 * cell * (along + 0.6 * turn * across), shade, max(1.0, cell / 15))


def _shares(weights: np.ndarray, low: float, high: float) -> np.ndarray:
    """How far each weight is from the lowest to the highest, 0 … 1, by square roots that keep the sign.

    Most weights of a trained kernel are small: as they are, all of them would look like zero.
    """
    start, values, end = (np.sign(part) * np.sqrt(np.abs(part)) for part in (low, weights, high))
    return np.asarray((values - start) / (end - start) if end > start else np.ones_like(weights))


def _shades(shares: np.ndarray) -> np.ndarray:
    """Colours of shares; the lightest still stands out from the paper."""
    return map_colours(LIGHTEST + (1 - LIGHTEST) * shares, WEIGHTS)


def _weight_bar(low: float, high: float) -> Image.Image:
    """The colours of the weights, with numbers where they lie."""
    length, thickness, top, left = 420, 14, round(0.3 * TEXT), round(10 * TEXT)
    strip = Image.new("RGB", (length + 2 * left, round(3.2 * TEXT)), PAPER)
    shades = _shades(np.linspace(0, 1, length))
    strip.paste(Image.fromarray(shades[None].repeat(thickness, axis=0)), (left, top))
    canvas = Canvas(strip)
    canvas.text((left - 2 * TEXT, top + thickness / 2), "small weight", TEXT, anchor="rm")
    canvas.text((left + length + 2 * TEXT, top + thickness / 2), "large weight", TEXT, anchor="lm")
    taken: list[float] = []
    for value in (high, low, 0.0, high / 4, low / 4):
        x = left + length * float(_shares(np.array(value), low, high))
        if low <= value <= high and all(abs(x - other) > 4 * TEXT for other in taken):
            taken.append(x)
            canvas.line((x, top + thickness), (x, top + 1.3 * thickness), INK, 1)
            canvas.text((x, top + 1.4 * thickness), f"{value:.2g}".replace("-", "−"), TEXT, anchor="ma")
    return canvas.picture()


def _words(text: str, size: float) -> Image.Image:
    canvas = Canvas(Image.new("RGB", (math.ceil(font(size).getlength(text)) + 4, round(1.5 * size)), PAPER))
    canvas.text((2, 0.75 * size), text, size, INK, anchor="lm")
    return canvas.picture()


def _length_name(squared: int) -> str:
    """√ of a squared length, as short as it can be written."""
    root = math.isqrt(squared)
    return str(root) if root * root == squared else f"√{squared}"


def _describe(steps: list[tuple[int, int]]) -> list[str]:
    """In words, for which scales of source and target a slice is used."""
    signed = {step: f"{step:+d}".replace("-", "−") if step else "0" for pair in steps for step in pair}
    names = [f"({signed[source]}, {signed[target]})" for source, target in steps]
    lines = [" ".join(names[first : first + 2]) for first in range(0, min(len(names), 6), 2)]
    if len(names) > 6:
        lines[-1] += " …"
    distance, *others = {abs(target - source) for source, target in steps}
    if others:
        return ["scale steps:", *lines]
    words = "same scale" if distance == 0 else f"scales {distance} step{'s' if distance > 1 else ''} apart"
    return [words, *lines]
