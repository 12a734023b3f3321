"""Request bodies, counted as they come and never written to disk."""

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from chmnet.web.errors import WebError
from chmnet.web.settings import Limits


class MatchForm(NamedTuple):
    """The fields of ``POST /api/match``."""

    source: bytes
    target: bytes
    model: str
    points: list[tuple[float, float]] | None
    top: int


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
    """One request's body, refused beyond so many bytes, or when everybody's together are too many."""

    def __init__(self, bodies: Bodies, request: Request, most: int) -> None:
        self.bodies = bodies
        self.request = request
        self.most = most
        self.length = 0

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """What comes, as it comes.

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
                raise WebError(408, "the rest of the request did not come", "send it again") from None
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
        max_fields=8,
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
    return MatchForm(files[0], files[1], model, points, _parse_top(texts.get("top", "300")))


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
    refusal = WebError(
        422, "points must be JSON rows of two finite numbers", "write them as [[10, 20], [30.5, 40]]"
    )
    try:
        rows = json.loads(text)
        points = [(float(x), float(y)) for x, y in rows]
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise refusal from None
    if not all(math.isfinite(number) for row in points for number in row):
        raise refusal
    if len(points) > most:
        raise WebError(413, f"{len(points)} points are more than {most}", "send fewer at a time")
    return points


def _parse_top(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 5000):
        raise WebError(422, f"top must be a number from 1 to 5000, got {text[:40]!r}", "leave it out for 300")
    return int(text)
