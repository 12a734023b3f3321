"""Questions about a result whose answers are files: dense flow, the warped picture."""

import io

from PIL import Image

from chmnet.formats import DenseFlow, save_npz
from chmnet.geometry import Size
from chmnet.result import MatchResult


def within(size: Size, side: int) -> Size:
    """A (height, width) made to fit a square, with the same shape; what fits already stays.

    Example:
        >>> within((4000, 3000), 1000), within((40, 30), 1000)
        ((1000, 750), (40, 30))
    """
    scale = min(1.0, side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def flow_file(result: MatchResult, side: int) -> bytes:
    """Flow and confidence as ``chmnet match --flow flow.npz`` writes them, on a map within a square."""
    size = within(result.source_size, side)
    dense = DenseFlow(result.flow(size), result.confidence_at(size), result.source_size, result.target_size)
    file = io.BytesIO()
    save_npz(file, dense)
    return file.getvalue()


def warp_file(result: MatchResult, picture: Image.Image, side: int) -> bytes:
    """The source picture in the frame of the target, within a square, as PNG."""
    return png(result.warp(picture=picture, size=within(result.target_size, side)))


def png(picture: Image.Image) -> bytes:
    """A picture as a file."""
    file = io.BytesIO()
    picture.save(file, format="PNG")
    return file.getvalue()
