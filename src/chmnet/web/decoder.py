"""Pictures are decoded in a process of their own, which is ended when it takes too long.

A file of a few kilobytes can keep a decoder busy for minutes or ask for gigabytes; a thread could not be
stopped. The child reads one request after the other from its standard input (a line of JSON, then the file) and
answers on its standard output (a line of JSON, then RGB bytes). It never sees a path, and the parent never sees
a whole large picture: only what it asked for, the picture at the size of a network's input or within a given
side.
"""

import contextlib
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from PIL import Image

from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.pictures import read_picture
from chmnet.web.errors import WebError

logger = logging.getLogger(__name__)

FORMATS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif", "BMP": "image/bmp"}
"""What is accepted: all that every browser can show too."""

MEMORY_BYTES = 8 * 2**30
"""Address space of the child; decoding 100 million pixels needs a tenth of it."""


class Decoded(NamedTuple):
    """A picture as a person sees it: its own size, and its pixels at the size that was asked for."""

    size: Size
    picture: Image.Image


class Decoder:
    """The parent's side: one child, started again after it had to be ended.

    Args:
        seconds: time limit of one picture.
        pixels: most pixels of a picture.
    """

    def __init__(self, seconds: float, pixels: int) -> None:
        self.seconds = seconds
        self.pixels = pixels
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the child ahead of the first picture: loading its libraries takes a second."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def decode(self, data: bytes, size: Size | None = None, side: int = 0) -> Decoded:
        """Decode a picture file.

        Args:
            data: the file.
            size: (height, width) to resize to, as for a network.
            side: without ``size``, the picture keeps its shape and is made to fit a square of this side.

        Raises:
            WebError: not a picture of an accepted type, broken, too large, or too slow.
        """
        order = {"length": len(data), "size": size, "side": side, "pixels": self.pixels}
        with self._lock:
            child = self._running()
            late = threading.Event()
            timer = threading.Timer(self.seconds, _end_late, (child, late))
            timer.daemon = True
            timer.start()
            try:
                answer, pixels = _ask(child, order, data)
            except (OSError, ValueError, EOFError):
                self._end()
                if late.is_set():
                    logger.warning("a picture of %d bytes took longer than %g s", len(data), self.seconds)
                    sentence = f"the picture takes longer than {self.seconds:g} seconds to decode"
                else:
                    logger.warning("the decoder ended at a picture of %d bytes", len(data))
                    sentence = "the picture cannot be decoded"
                raise WebError(422, sentence, "save it again as PNG or JPEG, or make it smaller") from None
            finally:
                timer.cancel()
        if "error" in answer:
            raise WebError(answer["status"], answer["error"], answer["what_to_do"])
        height, width = answer["shape"]
        return Decoded((answer["size"][0], answer["size"][1]), Image.frombytes("RGB", (width, height), pixels))

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            self._end()
            command = [sys.executable, "-m", "chmnet.web.decoder"]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what could not be written is lost anyway
                        pipe.close()
            self._child = None


def _ask(child: "subprocess.Popen[bytes]", order: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(order).encode() + b"\n" + data)
    child.stdin.flush()
    line = child.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    answer = json.loads(line)
    pixels = child.stdout.read(answer.get("length", 0))
    if len(pixels) < answer.get("length", 0):
        raise EOFError
    return answer, pixels


def _end_late(child: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    late.set()
    child.kill()


# ---------------------------------------------------------------- the child's side


def decode_here(data: bytes, size: Size | None, side: int, pixels: int) -> Decoded:
    """Decode in this process.

    Example:
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (60, 30)).save(file, format="PNG")
        >>> decoded = decode_here(file.getvalue(), None, side=20, pixels=10_000)
        >>> decoded.size, decoded.picture.size
        ((30, 60), (20, 10))

    Raises:
        WebError: as :meth:`Decoder.decode`.
    """
    kind = media_type(data)
    if kind is None:
        raise WebError(415, "this is not a picture of an accepted type", "use PNG, JPEG, WebP, GIF or BMP")
    try:
        picture = read_picture(io.BytesIO(data), "the picture", pixels, formats=tuple(FORMATS))
    except InputError as error:
        large = "pixels" in str(error)
        raise WebError(
            413 if large else 422,
            str(error).split(";")[0],
            "make it smaller" if large else "save it again as PNG or JPEG",
        ) from None
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
    except WebError as error:
        refusal = {"status": error.status, "error": error.error, "what_to_do": error.what_to_do}
        yield json.dumps(refusal).encode() + b"\n"
        return
    pixels = decoded.picture.tobytes()
    shape = (decoded.picture.height, decoded.picture.width)
    yield json.dumps({"size": decoded.size, "shape": shape, "length": len(pixels)}).encode() + b"\n"
    yield pixels


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    _limit_memory()
    with open(0, "rb") as orders, open(1, "wb") as answers:
        answer_all(orders, answers)
