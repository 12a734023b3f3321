"""What the server does, without HTTP: keeps pictures, matches pairs, answers questions about them."""

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeVar

from PIL import Image
from starlette.requests import Request

from chmnet.features import FeatureCache, Features
from chmnet.matcher import Matchable
from chmnet.pictures import Box, Size, View
from chmnet.poses import DEFAULT_POSES
from chmnet.result import MatchResult
from chmnet.web.answers import WebError
from chmnet.web.models import DEFAULT_MODEL, Models, offers
from chmnet.web.queue import WorkQueue
from chmnet.web.sessions import PUBLIC, Session, Sessions, StoredPicture, content_id, load_examples
from chmnet.web.settings import Settings
from chmnet.web.uploads import MIRRORED, Bodies, Decoder
from chmnet.weights import MODELS

logger = logging.getLogger(__name__)

DETAIL_SIDE = 1536
"""Where a part of a picture is matched, or a turned one, the whole is decoded to fit a square of this side."""
Answer = TypeVar("Answer")


class Search(NamedTuple):
    """How the thing is looked for in a pair; see :meth:`chmnet.Matcher.match`."""

    poses: str = DEFAULT_POSES
    """Or :data:`chmnet.web.uploads.MIRRORED`."""
    place: str = "whole"
    boxes: tuple[Box | None, Box | None] = (None, None)

    @property
    def detailed(self) -> bool:
        """Whether more pixels are needed than the whole pictures have at the size of a network's input."""
        return self.poses == "any" or self.place == "found" or self.boxes != (None, None)


class Pair(NamedTuple):
    """Which pictures are matched with which model, and how."""

    source: StoredPicture
    target: StoredPicture
    model: str
    search: Search = Search()

    @property
    def owner(self) -> str:
        """The session that what is computed belongs to."""
        return self.source.owner or self.target.owner


class Timed(NamedTuple):
    """A result and the seconds that the network took for it; ``None``: it was in the cache."""

    result: MatchResult
    seconds: float | None


class Service:
    """One server's state: sessions, caches, models, and the threads that work.

    Args:
        settings: limits, examples, model files.
    """

    def __init__(self, settings: Settings) -> None:
        limits = settings.limits
        self.settings = settings
        self._on_forget: list[Callable[[str], None]] = []
        self.features = FeatureCache[Features](limits.feature_bytes, disk=False)
        self.results = FeatureCache[MatchResult](limits.result_bytes, disk=False)
        self.models = Models(offers(settings.models), limits.loaded_models, self.features, settings.device)
        self.queue = WorkQueue("matching", limits.queue)
        self.decoding = WorkQueue("decoding", limits.queue)
        self.decoder = Decoder(limits.decode_seconds, limits.pixels)
        self._one_shot: set[str] = set()
        self.bodies = Bodies(limits)
        self.sessions = Sessions(limits, self.forget)
        self.examples = load_examples(settings.examples, MODELS[DEFAULT_MODEL].config.image_size, limits)

    @contextmanager
    def one_shot(self) -> Iterator[str]:
        """An owner for as long as one request: nothing of it is kept."""
        owner = f"request-{secrets.token_hex(16)}"
        self._one_shot.add(owner)
        try:
            yield owner
        finally:
            self._one_shot.discard(owner)
            self.forget(owner)

    def forget(self, token: str) -> None:
        """Drop all that was computed for one owner."""
        self.features.drop(token)
        self.results.drop(token)
        for call in self._on_forget:
            call(token)

    def on_forget(self, call: Callable[[str], None]) -> None:
        """Call a function whenever what belongs to an owner is dropped."""
        self._on_forget.append(call)

    def start(self) -> None:
        """Start the decoder and load the default model, so that the first request does not wait for them."""
        self.decoder.start()
        _ = self.models.take(DEFAULT_MODEL).fingerprint.value

    def stop(self) -> None:
        """Take no more work. Safe inside a signal handler."""
        self.queue.stop()
        self.decoding.stop()

    def close(self) -> None:
        """End threads and child."""
        self.queue.close()
        self.decoding.close()
        self.decoder.close()

    # ------------------------------------------------------------ pictures

    async def add_picture(self, session: Session, data: bytes, request: Request) -> StoredPicture:
        """Check and keep a picture file for a session.

        Raises:
            WebError: it is not a picture, too large, or there is no room.
        """
        key = content_id(data)
        if key in session.pictures:
            return session.pictures[key]
        if key in self.examples:
            return self.examples[key].picture
        self.sessions.check_room(session, len(data))
        picture = await self.read_picture(data, session.token, request)
        self.sessions.check_room(session, picture.nbytes)  # others may have been added in the meantime
        session.pictures[key] = picture
        return picture

    async def read_picture(self, data: bytes, owner: str, request: Request) -> StoredPicture:
        """Decode a picture file without keeping it."""
        size = MODELS[DEFAULT_MODEL].config.image_size
        decoded = await self.decoding.run(lambda: self.decoder.decode(data, size), request)
        return StoredPicture(data, decoded.size, decoded.picture, owner)

    def find_picture(self, session: Session, key: str) -> StoredPicture:
        """A picture of this session, or an example.

        Raises:
            WebError: there is none.
        """
        if key in session.pictures:
            return session.pictures[key]
        if key in self.examples:
            return self.examples[key].picture
        raise WebError(404, "this session has no such picture, or no longer", "load the picture again")

    def view(self, picture: StoredPicture, side: int) -> Image.Image:
        """A picture's pixels within a square; for the worker thread."""
        return self.decoder.decode(picture.data, side=side).picture

    # ------------------------------------------------------------ pairs

    async def ask(self, pair: Pair, question: Callable[[Timed], Answer], request: Request) -> Answer:
        """Answer a question about a pair on the worker thread."""
        self.models.check(pair.model)
        return await self.queue.run(lambda: question(self.match_now(pair)), request)

    async def draw_kernels(self, model: str, request: Request) -> bytes:
        """What a model's votes look like, as PNG.

        Raises:
            InputError: the model has no votes.
        """
        self.models.check(model)
        return await self.queue.run(lambda: self.models.draw_kernels(model), request)

    def match_now(self, pair: Pair) -> Timed:
        """Match on this thread, which must be the worker's."""
        key = (pair.source.id, pair.target.id, pair.model, pair.search)
        known = self.results.find(key, pair.owner)
        if known is not None:
            return Timed(known, None)
        started = time.perf_counter()
        matcher = self.models.take(pair.model)
        poses, place, boxes = pair.search
        sides: tuple[Matchable, Matchable] = (
            pair.source.detailed(self._details),
            View(pair.target.detailed(self._details), mirrored=poses == MIRRORED),
        )
        if not pair.search.detailed:
            source, target = (
                picture.at(matcher.image_size, self._pixels) for picture in (pair.source, pair.target)
            )
            other = View(target, mirrored=poses == MIRRORED)
            sides = matcher.extract(source, owner=source.owner), matcher.extract(other, "target", target.owner)
        tried = "upright" if poses == MIRRORED else poses
        result = matcher.match(sides[0], sides[1], True, boxes=boxes, poses=tried, place=place, owner=pair.owner)
        views = replace(result.source, picture=pair.source), replace(result.target, picture=pair.target)
        result = replace(result, source=views[0], target=views[1])  # the result does not keep more pixels
        _ = result.forward  # computed here, not by the thread that answers
        self.results.put(key, result, pair.owner)
        self._drop_if_ended(pair)
        seconds = time.perf_counter() - started
        logger.info("matched a pair with %s in %.0f ms", pair.model, 1000 * seconds)
        return Timed(result, seconds)

    def _drop_if_ended(self, pair: Pair) -> None:
        """A session may end while its pair is computed: what came after it was forgotten goes at once."""
        for owner in {pair.source.owner, pair.target.owner, pair.owner}:
            if owner != PUBLIC and owner not in self.sessions and owner not in self._one_shot:
                self.features.drop(owner)
                self.results.drop(owner)

    def _pixels(self, data: bytes, size: Size) -> Image.Image:
        return self.decoder.decode(data, size).picture

    def _details(self, data: bytes) -> Image.Image:
        return self.decoder.decode(data, side=DETAIL_SIDE).picture
