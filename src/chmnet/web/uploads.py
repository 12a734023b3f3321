"""What clients send: bodies, limited while they are received and never written to disk, and the pictures in them.

Pictures are decoded in another process (:mod:`chmnet.web.decoder`), which is ended when it takes too long: a small
file can keep a decoder busy for minutes or ask for gigabytes, and a thread could not be stopped. The server never
holds a whole large picture, only what it asked for: the picture at the size of a network's input or within a given
side.
"""

import asyncio
import contextlib
import json
import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from PIL import Image
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from chmnet.geometry import Size
from chmnet.pictures import Box
from chmnet.place import PLACES
from chmnet.poses import DEFAULT_POSES, POSES
from chmnet.web.answers import WebError
from chmnet.web.decoder import Decoded
from chmnet.web.settings import Limits

logger = logging.getLogger(__name__)

INSTANCES = 20
"""Most things of the target that are matched one by one."""

# ---------------------------------------------------------------- bodies


MIRRORED = "mirrored"
"""The mirror image of the target is matched, and no other pose: as ``chmnet match --mirrored``."""


class MatchForm(NamedTuple):
    """The fields of ``POST /api/match``."""

    source: bytes
    target: bytes
    model: str
    points: list[tuple[float, float]] | None
    top: int
    instances: int | None = None
    poses: str = DEFAULT_POSES
    place: str = "whole"
    source_box: str = ""
    target_box: str = ""


class Bodies:
    """Request bodies that are in memory now, those of all clients together within a limit.

    Args:
        limits: how much, and how long to wait for a client that sends nothing.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.bytes = 0

    @contextmanager
    def reading(self, request: Request, most: int) -> Iterator["Body"]:
        """One request's body; it counts until the request is answered."""
        body = Body(self, request, most)
        try:
            yield body
        finally:
            self.bytes -= body.length


class Body:
    """One request's body, refused beyond so many bytes, or when those of all clients are too many."""

    def __init__(self, bodies: Bodies, request: Request, most: int) -> None:
        self.bodies = bodies
        self.request = request
        self.most = most
        self.length = 0

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The pieces, as they are received.

        Raises:
            WebError: it is too much, or takes too long.
        """
        limits = self.bodies.limits
        stream = self.request.stream()
        begun = time.monotonic()
        while True:
            late = time.monotonic() - begun - self.length / limits.body_rate
            try:
                piece = await asyncio.wait_for(anext(stream), max(0.0, limits.body_seconds - max(0.0, late)))
            except StopAsyncIteration:
                return
            except asyncio.TimeoutError:
                raise WebError(408, "the request body was not received in time", "send it again") from None
            except ClientDisconnect:
                raise WebError(400, "the request ended before its body was complete", "send it again") from None
            self.length += len(piece)
            self.bodies.bytes += len(piece)
            if self.length > self.most:
                raise WebError(413, f"this is larger than {self.most / 2**20:.3g} MB", "send a smaller file")
            if self.bodies.bytes > limits.bodies_bytes:
                raise WebError(503, "too many pictures are being sent at once", "try again in a moment", 2)
            yield piece

    async def read(self) -> bytes:
        """All of it.

        Raises:
            WebError: it is empty, too much, or takes too long.
        """
        data = b"".join([piece async for piece in self.pieces()])
        if not data:
            raise WebError(400, "the request has no body", "send the picture file as the body of the request")
        return data


async def read_match_form(body: Body, default_model: str) -> MatchForm:
    """The form of ``POST /api/match``: two files, and what to find.

    Raises:
        WebError: it is no such form.
    """
    request, limits = body.request, body.bodies.limits
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise WebError(
            415, "the body must be multipart/form-data", "send it with curl -F, or as the page /api shows"
        )
    parser = MultiPartParser(
        request.headers,
        body.pieces(),
        max_files=2,
        max_fields=12,
        max_part_size=limits.body_bytes,
    )
    parser.spool_max_size = body.most  # starlette would move larger files to disk
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "message", "") or "it is not a complete multipart form"
        raise WebError(400, f"the form cannot be read: {reason}", "send it with curl -F source=@a.png …") from None
    try:
        files = [await _read_file(form, name, limits.upload_bytes) for name in ("source", "target")]
    finally:
        await form.close()
    texts = {name: value for name, value in form.items() if isinstance(value, str)}
    model = texts.get("model") or default_model
    points = parse_points(texts["points"], limits.points) if texts.get("points") else None
    search = {"poses": texts.get("poses") or DEFAULT_POSES, "place": texts.get("place") or "whole"}
    for name, known in (("poses", (*POSES, MIRRORED)), ("place", PLACES)):
        if search[name] not in known:
            raise WebError(422, f"{name} must be one of {', '.join(known)}", "leave it out for the usual one")
    search |= {name: texts.get(name, "")[:100] for name in ("source_box", "target_box")}
    top = _parse_count("top", texts.get("top", "300"), 5000, "leave it out for 300")
    things = texts.get("instances")
    instances = _parse_count("instances", things, INSTANCES, "leave it out to match all") if things else None
    return MatchForm(files[0], files[1], model, points, top, instances, **search)


async def _read_file(form: FormData, name: str, most: int) -> bytes:
    part = form.get(name)
    if not isinstance(part, UploadFile):
        raise WebError(422, f"the form has no file {name!r}", "send the files source and target")
    data = await part.read()
    if len(data) > most:
        raise WebError(413, f"{name} is larger than {most >> 20} MB", "send a smaller file")
    return data


def parse_points(text: str, most: int) -> list[tuple[float, float]]:
    """Points written as JSON.

    Example:
        >>> parse_points("[[1, 2.5]]", 10)
        [(1.0, 2.5)]

    Raises:
        WebError: they are not, or too many.
    """
    malformed = WebError(
        422, "points must be JSON rows of two finite numbers", "write them as [[10, 20], [30.5, 40]]"
    )
    try:
        rows = json.loads(text)
        points = [(float(x), float(y)) for x, y in rows]
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise malformed from None
    if not all(math.isfinite(number) for row in points for number in row):
        raise malformed
    if len(points) > most:
        raise WebError(413, f"{len(points)} points are more than {most}", "send fewer at a time")
    return points


def parse_box(text: str, name: str, size: Size) -> Box | None:
    """A box written as "left,top,right,bottom", in a picture of (height, width); ``None`` where none is written.

    Example:
        >>> parse_box("10,20,30.5,40", "source_box", (50, 60))
        (10.0, 20.0, 30.5, 40.0)

    Raises:
        WebError: it is something else, empty, or does not lie in the picture.
    """
    if not text:
        return None
    try:
        left, top, right, bottom = (float(part) for part in text.split(","))
    except ValueError:
        raise WebError(422, f"{name} must be left,top,right,bottom", "write it as 10,20,300.5,400") from None
    return check_box((left, top, right, bottom), name, size)


def check_box(box: Box, name: str, size: Size) -> Box:
    """The box, if it lies in a picture of (height, width) and is not empty.

    Raises:
        WebError: it does not.
    """
    (left, top, right, bottom), (height, width) = box, size
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):  # NaN is neither
        raise WebError(
            422,
            f"{name} must be a box within the picture of {width}×{height} pixels",
            "draw it inside, or leave it out",
        )
    return box


def _parse_count(name: str, text: str, most: int, advice: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= most):
        raise WebError(422, f"{name} must be a number from 1 to {most}, got {text[:40]!r}", advice)
    return int(text)


# ---------------------------------------------------------------- pictures


_REFUSALS = {
    "type-not-accepted": (415, "use PNG, JPEG, WebP, GIF or BMP"),
    "too-large": (413, "make it smaller"),
}
"""The status of HTTP and the advice to each reason of :class:`chmnet.errors.InputError`."""


class Decoder:
    """The decoding process, started again after it had to be ended.

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
                if late.is_set():  # also when its answer came at the last moment: the next picture needs another
                    self._end()
        if "error" in answer:
            status, advice = _REFUSALS.get(answer["reason"], (422, "save it again as PNG or JPEG"))
            too_large = f"the picture has more than {self.pixels / 1e6:g} million pixels"
            raise WebError(status, too_large if answer["reason"] == "too-large" else answer["error"], advice)
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
