"""Pictures that people loaded: in memory only, each tied to a session, forgotten when the session ends."""

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from PIL import Image

from chmnet.geometry import Size
from chmnet.web.answers import WebError
from chmnet.web.settings import Limits

Value = TypeVar("Value")

PUBLIC = ""
"""The owner of example pictures: no session, and no end."""

IDLE_SECONDS = 60.0
"""When memory is short, sessions that asked nothing for this long are ended early, the idlest first."""


@dataclass(frozen=True)
class StoredPicture:
    """A picture file in memory; pixels are decoded again when they are needed at another size."""

    id: str
    data: bytes = field(repr=False)
    media_type: str
    size: Size
    small: Image.Image = field(repr=False)
    """At the input size of the default model."""
    owner: str = field(default=PUBLIC, repr=False)

    def bytes(self) -> int:
        """Memory that it takes; Pillow keeps four bytes a pixel."""
        return len(self.data) + 4 * self.small.width * self.small.height


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

    def bytes(self) -> int:
        """Memory of its pictures."""
        return sum(picture.bytes() for picture in self.pictures.values())


class Sessions:
    """All sessions, within limits. Used by the event loop only; nothing here blocks.

    Args:
        limits: time and memory.
        on_end: told the token of every session that ends.
        clock: seconds that never go back.

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

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, token: str) -> bool:
        return token in self._sessions

    def find(self, token: str) -> Session:
        """The session of a token; one that has nothing, and is not kept, where there is none."""
        self.sweep()
        if token in self._sessions:
            return self.open(token)
        return Session("", self._clock())

    def open(self, token: str) -> Session:
        """The session of a token, or a new one.

        Raises:
            WebError: there are too many, all of them in use.
        """
        self.sweep()
        session = self._sessions.get(token)
        if session is None:
            if len(self._sessions) >= self.limits.sessions and not self._end_an_idle_one():
                raise WebError(503, "too many people use this server now", "try again in a minute", 30)
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
        if len(session.pictures) >= limits.session_pictures or session.bytes() + new_bytes > limits.session_bytes:
            raise WebError(
                413,
                f"a session keeps at most {limits.session_pictures} pictures and {limits.session_bytes >> 20} MB",
                "forget the pictures of this session (DELETE /api/session) and load fewer",
            )
        while sum(each.bytes() for each in self._sessions.values()) + new_bytes > limits.picture_bytes:
            if not self._end_an_idle_one(but=session.token):
                raise WebError(503, "the server's memory for pictures is full", "try again in a minute", 30)

    def end(self, token: str) -> None:
        """Forget a session and all that belongs to it."""
        if self._sessions.pop(token, None) is not None:
            self._on_end(token)

    def sweep(self) -> None:
        """Forget every session that was not used for too long."""
        oldest = self._clock() - self.limits.session_seconds
        for token in [session.token for session in self._sessions.values() if session.used < oldest]:
            self.end(token)

    def _end_an_idle_one(self, but: str = "") -> bool:
        session = next((each for each in self._sessions.values() if each.token != but), None)
        if session is None or session.used > self._clock() - IDLE_SECONDS:
            return False
        self.end(session.token)
        return True


class OwnedCache(Generic[Value]):
    """Values that can be computed again, within so many bytes; the least recently used go first.

    Args:
        limit: bytes.
        measure: bytes of one value.

    Example:
        >>> cache = OwnedCache(10, len)
        >>> cache.put("anna", 1, b"12345678"); cache.put("bert", 1, b"1234")
        >>> cache.get("anna", 1), cache.get("bert", 1)
        (None, b'1234')
    """

    def __init__(self, limit: int, measure: Callable[[Value], int]) -> None:
        self.limit = limit
        self.bytes = 0
        self._measure = measure
        self._values: OrderedDict[tuple[str, Hashable], Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, owner: str, key: Hashable) -> Value | None:
        """A value, if it is still there."""
        with self._lock:
            if (owner, key) not in self._values:
                return None
            self._values.move_to_end((owner, key))
            return self._values[owner, key]

    def put(self, owner: str, key: Hashable, value: Value) -> None:
        """Keep a value, and as many of the others as fit beside it."""
        with self._lock:
            self._remove((owner, key))
            self._values[owner, key] = value
            self.bytes += self._measure(value)
            while self.bytes > self.limit and self._values:
                self._remove(next(iter(self._values)))

    def drop(self, owner: str) -> None:
        """Forget everything of one owner."""
        with self._lock:
            for key in [key for key in self._values if key[0] == owner]:
                self._remove(key)

    def _remove(self, key: tuple[str, Hashable]) -> None:
        if key in self._values:
            self.bytes -= self._measure(self._values.pop(key))
