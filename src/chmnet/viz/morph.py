"""One picture turning into another."""

import numpy as np
from PIL import Image


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
