"""The process that decodes untrusted pictures. It loads Pillow and NumPy only, so a new one starts at once.

It reads one request after the other from its standard input (a line of JSON, then the file) and answers on its
standard output (a line of JSON, then RGB bytes). It never sees a path.
:class:`chmnet.web.uploads.Decoder` runs it.
"""

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from PIL import Image

from chmnet.errors import InputError
from chmnet.pictures import Size, read_picture

FORMATS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif", "BMP": "image/bmp"}
"""What is accepted: all that every browser can show too."""

PROCESS_BYTES = 4 * 2**30
"""Address space of this process; 100 million pixels with transparency need half of it."""


class Decoded(NamedTuple):
    """A picture as a person sees it: its own size, and its pixels at the size that was asked for."""

    size: Size
    picture: Image.Image


def decode_here(data: bytes, size: Size | None, side: int, pixels: int) -> Decoded:
    """Decode in this process.

    Args:
        data: the file.
        size: (height, width) to resize to, as for a network.
        side: without ``size``, the picture keeps its shape and is made to fit a square of this side.
        pixels: most pixels of a picture.

    Example:
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (60, 30)).save(file, format="PNG")
        >>> decoded = decode_here(file.getvalue(), None, side=20, pixels=10_000)
        >>> decoded.size, decoded.picture.size
        ((30, 60), (20, 10))

    Raises:
        InputError: with the reason ``"type-not-accepted"``, or those of :func:`read_picture`.
    """
    if media_type(data) is None:
        raise InputError("this is not a picture of an accepted type", reason="type-not-accepted")
    picture = read_picture(io.BytesIO(data), "the picture", pixels, formats=tuple(FORMATS))
    if size is not None:
        small = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)  # as to_tensor does
    else:
        small = picture.copy()
        small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return Decoded((picture.height, picture.width), small)


def media_type(data: bytes) -> str | None:
    """The accepted type that a file's first bytes belong to.

    Example:
        >>> media_type(b"GIF89a..."), media_type(b"<svg>")
        ('image/gif', None)
    """
    for start, name in (
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"\xff\xd8\xff", "JPEG"),
        (b"GIF8", "GIF"),
        (b"BM", "BMP"),
    ):
        if data.startswith(start):
            return FORMATS[name]
    return FORMATS["WEBP"] if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def answer_all(requests: io.BufferedIOBase, answers: io.BufferedIOBase) -> None:
    """Answer requests until there are no more."""
    for order in iter(requests.readline, b""):
        for piece in _answer(json.loads(order), requests):
            answers.write(piece)
        answers.flush()


def _answer(order: dict[str, Any], requests: io.BufferedIOBase) -> Iterator[bytes]:
    data = requests.read(order["length"])
    size = None if order["size"] is None else (order["size"][0], order["size"][1])
    try:
        decoded = decode_here(data, size, order["side"], order["pixels"])
    except InputError as error:
        yield json.dumps({"error": str(error), "reason": error.reason}).encode() + b"\n"
        return
    pixels = decoded.picture.tobytes()
    shape = (decoded.picture.height, decoded.picture.width)
    yield json.dumps({"size": decoded.size, "shape": shape, "length": len(pixels)}).encode() + b"\n"
    yield pixels


def _limit_itself() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (PROCESS_BYTES, PROCESS_BYTES))
        for limit in (
            resource.RLIMIT_CORE,
            resource.RLIMIT_FSIZE,
        ):  # no picture reaches the disk, nor a crash's traces
            resource.setrlimit(limit, (0, 0))


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    _limit_itself()
    with open(0, "rb") as orders, open(1, "wb") as answers:
        answer_all(orders, answers)
