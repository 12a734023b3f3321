"""Pictures that the server keeps: in memory only, each tied to a session and forgotten with it; and examples."""

import hashlib
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from chmnet.data.examples import PAIRS
from chmnet.errors import InputError
from chmnet.pictures import Picture, Size
from chmnet.web.answers import WebError
from chmnet.web.decoder import decode_here, media_type
from chmnet.web.settings import Limits

logger = logging.getLogger(__name__)

PUBLIC = ""
"""The owner of example pictures: no session, and no end."""

IDLE_SECONDS = 60.0
"""When memory is short, sessions without a request for this long are ended, the idlest first."""

MOST_EXAMPLES = 24


class StoredPicture(Picture):
    """A picture file in memory, with its pixels at the input size of the default model.

    Args:
        data: the file.
        size: (height, width) of the whole picture.
        pixels: the picture at the size of a network's input, or what decodes it when it is asked for.
        owner: token of its session.
        rendition: tells features of other pixels of the same file apart.
    """

    def __init__(
        self,
        data: bytes,
        size: Size,
        pixels: Image.Image | Callable[[], Image.Image],
        owner: str = PUBLIC,
        rendition: str = "",
    ) -> None:
        super().__init__(data, size)
        self.id = content_id(data)
        self.data = data
        self.owner = owner
        self._pixels = pixels
        self._rendition = rendition

    @property
    def image(self) -> Image.Image:
        """Its pixels at the size of a network's input."""
        return self._pixels if isinstance(self._pixels, Image.Image) else self._pixels()

    @property
    def key(self) -> tuple[str, str]:
        """The name of the file by its content, and which pixels of it there are."""
        return self.id, self._rendition

    @property
    def nbytes(self) -> int:
        """Memory that it takes; Pillow keeps four bytes a pixel."""
        kept = self._pixels.width * self._pixels.height if isinstance(self._pixels, Image.Image) else 0
        return len(self.data) + 4 * kept

    def at(self, size: Size, decode: Callable[[bytes, Size], Image.Image]) -> "StoredPicture":
        """The picture for a network whose input has another size: decoded when its pixels are asked for.

        Args:
            size: (height, width).
            decode: makes pixels of that size of the file.
        """
        if isinstance(self._pixels, Image.Image) and (self._pixels.height, self._pixels.width) == size:
            return self
        return StoredPicture(self.data, self.size, lambda: decode(self.data, size), self.owner)

    def detailed(self, decode: Callable[[bytes], Image.Image]) -> "StoredPicture":
        """The picture for views of parts of it, which need more pixels than a network sees of the whole.

        They are decoded when first asked for, and stay until this picture is forgotten.

        Args:
            decode: makes them of the file.
        """
        return StoredPicture(self.data, self.size, cache(lambda: decode(self.data)), self.owner, "detailed")


def content_id(data: bytes) -> str:
    """Name of a file by its content.

    Example:
        >>> content_id(b"")
        'e3b0c44298fc1c149afbf4c8996fb924'
    """
    return hashlib.sha256(data).hexdigest()[:32]


@dataclass
class Session:
    """What one browser or script has loaded."""

    token: str
    used: float
    pictures: dict[str, StoredPicture] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory of its pictures."""
        return sum(picture.nbytes for picture in tuple(self.pictures.values()))  # another thread may add one


class Sessions:
    """All sessions, within limits. Threads may share it; nothing here blocks for long.

    Args:
        limits: time and memory.
        on_end: called with the token of every session that ends.
        clock: seconds, monotonic.

    Example:
        >>> now = [0.0]
        >>> sessions = Sessions(Limits(session_seconds=60), clock=lambda: now[0])
        >>> token = sessions.open("").token
        >>> now[0] = 59.0
        >>> sessions.open(token).token == token
        True
        >>> now[0] = 120.0
        >>> sessions.open(token).token == token
        False
    """

    def __init__(
        self,
        limits: Limits,
        on_end: Callable[[str], None] = lambda token: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._on_end = on_end
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # the idlest first
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, token: str) -> bool:
        return token in self._sessions

    def find(self, token: str) -> Session:
        """The session of a token; one that has nothing, and is not kept, where there is none."""
        with self._lock:
            self.sweep()
            if token in self._sessions:
                return self.open(token)
            return Session("", self._clock())

    def open(self, token: str) -> Session:
        """The session of a token, or a new one.

        Raises:
            WebError: there are too many, all of them in use.
        """
        with self._lock:
            self.sweep()
            session = self._sessions.get(token)
            if session is None:
                if len(self._sessions) >= self.limits.sessions and not self._end_an_idle_one():
                    raise WebError(503, "too many sessions are open", "try again in a minute", 30)
                session = Session(secrets.token_urlsafe(24), self._clock())
                self._sessions[session.token] = session
            session.used = self._clock()
            self._sessions.move_to_end(session.token)
            return session

    def check_room(self, session: Session, new_bytes: int) -> None:
        """Make room for a picture.

        Raises:
            WebError: the session has too many pictures, or the memory is full of sessions in use.
        """
        limits = self.limits
        if len(session.pictures) >= limits.session_pictures or session.nbytes + new_bytes > limits.session_bytes:
            raise WebError(
                413,
                f"a session keeps at most {limits.session_pictures} pictures and {limits.session_bytes >> 20} MB",
                "delete the pictures of this session (DELETE /api/session) and load fewer",
            )
        with self._lock:
            while sum(each.nbytes for each in self._sessions.values()) + new_bytes > limits.picture_bytes:
                if not self._end_an_idle_one(but=session.token):
                    raise WebError(503, "the server's memory for pictures is full", "try again in a minute", 30)

    def end(self, token: str) -> None:
        """Forget a session and all that belongs to it."""
        with self._lock:
            known = self._sessions.pop(token, None) is not None
        if known:
            self._on_end(token)

    def sweep(self) -> None:
        """Forget every session that was not used for too long."""
        oldest = self._clock() - self.limits.session_seconds
        with self._lock:
            ended = [session.token for session in self._sessions.values() if session.used < oldest]
        for token in ended:
            self.end(token)

    def _end_an_idle_one(self, but: str = "") -> bool:
        session = next((each for each in self._sessions.values() if each.token != but), None)
        if session is None or session.used > self._clock() - IDLE_SECONDS:
            return False
        self.end(session.token)
        return True


# ---------------------------------------------------------------- examples


class Example(NamedTuple):
    """A picture and what to call it."""

    title: str
    picture: StoredPicture


def load_examples(folder: Path | None, size: Size, limits: Limits) -> dict[str, Example]:
    """The pictures of a folder by content; other files are skipped, unreadable pictures also logged."""
    found: dict[str, Example] = {}
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder is not None else []
    for path in files:
        if len(found) == MOST_EXAMPLES or path.stat().st_size > limits.upload_bytes:
            continue
        data = path.read_bytes()
        if media_type(data) is None:
            continue
        try:
            decoded = decode_here(data, size, 0, limits.pixels)
        except InputError as error:
            logger.warning("the example %s is left out: %s", path.name, error)
            continue
        picture = StoredPicture(data, decoded.size, decoded.picture)
        found[picture.id] = Example(_title(path), picture)
    return found


def example_pairs(examples: dict[str, Example]) -> list[tuple[str, str]]:
    """Pairs to offer: those of chmnet's own examples, else each picture with the next."""
    by_title = {example.title: key for key, example in examples.items()}
    names = [(_title(Path(pair.source)), _title(Path(pair.target))) for pair in PAIRS]
    known = [(by_title[a], by_title[b]) for a, b in names if a in by_title and b in by_title]
    keys = list(examples)
    return known or list(zip(keys[::2], keys[1::2], strict=False))


def _title(path: Path) -> str:
    return path.stem.replace("-", " ").replace("_", " ")
