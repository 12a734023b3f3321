"""Two pictures side by side with numbered points and a line from each point to its match."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# Okabe and Ito's colours: told apart by people with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A7A00", "#000000")


def draw_matches(
    source: Image.Image,
    target: Image.Image,
    source_points: np.ndarray,
    target_points: np.ndarray,
    side: int = 480,
) -> Image.Image:
    """Draw matches; both pictures get the same height.

    Args:
        source: RGB picture on the left.
        target: RGB picture on the right.
        source_points: ``n`` rows (x, y) in pixels of the source.
        target_points: where they lie in the target.
        side: largest height and width of each picture in the drawing, in pixels.

    Example:
        >>> grey = Image.new("RGB", (60, 40), "grey")
        >>> draw_matches(grey, grey, np.array([[10, 10]]), np.array([[12, 9]]), side=120).size
        (244, 80)
    """
    widest = max(source.width / source.height, target.width / target.height, 1.0)
    height = max(1, round(side / widest))
    gap = max(4, side // 40)
    left, right = _scaled(source, height), _scaled(target, height)
    canvas = Image.new("RGB", (left.width + gap + right.width, height), "white")
    canvas.paste(left, (0, 0))
    canvas.paste(right, (left.width + gap, 0))
    shift = np.array([left.width + gap, 0.0])
    starts = source_points * (left.width / source.width, height / source.height)
    ends = target_points * (right.width / target.width, height / target.height) + shift
    draw = ImageDraw.Draw(canvas)
    line, radius = max(1, side // 240), max(4, side // 50)
    font = ImageFont.load_default(size=max(7, int(radius * 1.3)))
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        draw.line([*start, *end], fill=COLOURS[number % len(COLOURS)], width=line)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for x, y in (start, end):
            box = [x - radius, y - radius, x + radius, y + radius]
            draw.ellipse(box, fill=COLOURS[number % len(COLOURS)], outline="white", width=line)
            draw.text((x, y), str(number + 1), fill="white", anchor="mm", font=font)
    return canvas


def _scaled(picture: Image.Image, height: int) -> Image.Image:
    width = max(1, round(picture.width * height / picture.height))
    return picture.resize((width, height), Image.Resampling.LANCZOS)
