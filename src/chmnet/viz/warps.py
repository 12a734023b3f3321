"""The source drawn in the frame of the target, beside it, mixed with it, and in turns with it."""

import numpy as np
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz.panels import contact_sheet


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
    """Squares of one picture and of the other in turns: edges run on where the two agree.

    Args:
        warped: its squares begin at the top left.
        target: of the same size.
        squares: how many along the longer side.

    Raises:
        InputError: the pictures differ in size, or there is not even one square.

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
    captions = [
        "source",
        "source warped onto target",
        "target",
        "warped and target in turns",
        "warped and target blended",
    ]
    return contact_sheet(pictures, captions, columns=3, side=side)


def _check_sizes(warped: Image.Image, target: Image.Image) -> None:
    if warped.size != target.size:
        raise InputError(
            f"the warped picture must have the target's {target.width}×{target.height} pixels, "
            f"got {warped.width}×{warped.height}"
        )
