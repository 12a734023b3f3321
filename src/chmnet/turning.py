"""Pictures turned by any angle. Starts without PyTorch, as the module of pictures does."""

import math
from numbers import Real
from typing import Any

from PIL import Image, ImageOps, ImageStat

from chmnet.errors import InputError

Size = tuple[int, int]
"""(height, width)."""

MAX_FRAME_PIXELS = 300_000_000
"""Larger frames are refused: twice the pixels of the largest picture, which a square needs when turned by half a
right angle."""

_QUARTERS = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}
_OVERSAMPLING = 2
"""A picture is turned at so many times the resolution that is asked for, then reduced: both steps stay sharp."""


def check_turn(degrees: Any) -> int | float:
    """An angle as a number from 0 to below 360: whole for quarter turns, otherwise with a fraction.

    Raises:
        InputError: it is no finite number.

    Example:
        >>> check_turn(-90), check_turn(405), check_turn(180.0)
        (270, 45.0, 180)
    """
    try:
        number = float(degrees) if isinstance(degrees, Real) and not isinstance(degrees, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"a view is turned by a finite number of degrees, got {str(degrees)[:40]}")
    angle = number % 360 % 360  # the first is 360 for a little less than 0
    return int(angle) if angle % 90 == 0 else angle


def turned_size(size: Size, degrees: float) -> Size:
    """(height, width) of the smallest upright frame of whole pixels around a turned picture.

    Example:
        >>> turned_size((30, 40), 90), turned_size((30, 40), 45), turned_size((30, 40), 180)
        ((40, 30), (50, 50), (30, 40))
    """
    height, width = size
    if degrees % 90 == 0:
        return (width, height) if degrees % 180 else (height, width)
    across, down = abs(math.cos(math.radians(degrees))), abs(math.sin(math.radians(degrees)))
    sides = height * across + width * down, width * across + height * down
    return math.ceil(sides[0] - 1e-6), math.ceil(sides[1] - 1e-6)


def turn_matrix(size: Size, degrees: float) -> tuple[float, float, float, float]:
    """What moves normalised points of the frame of a turned picture of ``size`` to those of the picture itself.

    Returns:
        a, b, c, d of ``x = a x' + b y'`` and ``y = c x' + d y'``.
    """
    (height, width), (frame_height, frame_width) = size, turned_size(size, degrees)
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return (
        cosine * frame_width / width,
        -sine * frame_height / width,
        sine * frame_width / height,
        cosine * frame_height / height,
    )


def turn_quarters(image: Image.Image, mirrored: bool, degrees: float) -> Image.Image:
    """An image perhaps mirrored, then turned counter-clockwise by 0, 90, 180 or 270 degrees; nothing is lost."""
    image = ImageOps.mirror(image) if mirrored else image
    return image.transpose(_QUARTERS[int(degrees)]) if degrees else image


def turn_image(
    image: Image.Image,
    size: Size,
    mirrored: bool,
    degrees: float,
    shown: Size | None = None,
    window: tuple[int, int, int, int] | None = None,
) -> Image.Image:
    """An RGB image perhaps mirrored, then turned counter-clockwise, in the smallest upright frame around it.

    It is reduced before it is turned, so that a large picture costs what its reduction costs. What lies outside of
    the image has its mean colour.

    Args:
        image: RGB, with any number of pixels.
        size: (height, width) that decides the shape of the frame: of the image where its pixels are square.
        mirrored: left and right are exchanged first.
        degrees: any angle.
        shown: (height, width) of the answer; ``None``: as many pixels as the image has.
        window: left, top, right, bottom of the part of the frame that is wanted; ``None``: all of it.

    Raises:
        InputError: the frame is too large to be shown with all pixels of the image.
    """
    (height, width), frame = size, turned_size(size, degrees)
    left, top, right, bottom = window or (0, 0, frame[1], frame[0])
    frame_height, frame_width = bottom - top, right - left
    if shown is None:
        scale = max(image.size) / max(size)
        shown = max(1, round(frame_height * scale)), max(1, round(frame_width * scale))
        if shown[0] * shown[1] > MAX_FRAME_PIXELS:
            raise InputError(
                f"turned, the picture needs a frame of {shown[1]}×{shown[0]} pixels; make it smaller",
                reason="too-large",
            )
    finest = _OVERSAMPLING * max(shown[0] / frame_height, shown[1] / frame_width)
    columns, rows = (
        max(1, round(given / max(1, int(given / (side * finest)))))
        for given, side in ((image.width, width), (image.height, height))
    )
    if (columns, rows) != image.size:
        image = image.resize((columns, rows), Image.Resampling.BOX)
    scale = columns / width if width > height else rows / height  # the shorter may be less than a pixel
    canvas = max(1, round(frame_width * scale)), max(1, round(frame_height * scale))
    a, b, c, d = turn_matrix(size, degrees)
    a, b = (-a, -b) if mirrored else (a, b)
    # From the pixels of the canvas to those of the image; frame and image are −1 … 1 from edge to edge.
    first_x, first_y = 2 * left / frame[1] - 1, 2 * top / frame[0] - 1
    share_x, share_y = frame_width / frame[1], frame_height / frame[0]
    steps = share_x / canvas[0], share_y / canvas[1]
    across = a * columns * steps[0], b * columns * steps[1], (1 + a * first_x + b * first_y) * columns / 2
    down = c * rows * steps[0], d * rows * steps[1], (1 + c * first_x + d * first_y) * rows / 2
    turned = image.transform(
        canvas,
        Image.Transform.AFFINE,
        (*across, *down),
        Image.Resampling.BICUBIC,
        fillcolor=tuple(round(mean) for mean in ImageStat.Stat(image).mean),
    )
    return turned if canvas == shown[::-1] else turned.resize(shown[::-1], Image.Resampling.BILINEAR)
