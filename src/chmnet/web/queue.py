"""A bounded queue in front of one worker thread: further requests get HTTP 503."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from chmnet.web.answers import WebError

Result = TypeVar("Result")

POLL_SECONDS = 0.1
"""How often a waiting request checks whether its client has disconnected or the server stops."""


class WorkQueue:
    """One thread that works, and a number of requests that may wait for it.

    The network itself uses the cores there are; two pairs at once would only take them from each other.

    Args:
        name: of the thread.
        length: how many may wait, the one at work among them.

    Example:
        >>> queue = WorkQueue("example", length=2)
        >>> asyncio.run(queue.run(lambda: 6 * 7))
        42
        >>> queue.close()
    """

    def __init__(self, name: str, length: int) -> None:
        self.length = length
        self.stopping = False
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"chmnet-{name}")
        self._lock = threading.Lock()
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many wait now, the one at work among them."""
        return self._waiting

    async def run(self, work: Callable[[], Result], request: Request | None = None) -> Result:
        """Wait for one piece of work; it is dropped when the client of ``request`` disconnects before its turn.

        Raises:
            WebError: too many wait already, or the server is stopping.
        """
        future = self._submit(work)
        waited = asyncio.wrap_future(future)
        waited.add_done_callback(_look_at)
        try:
            while True:
                finished, _ = await asyncio.wait({waited}, timeout=POLL_SECONDS)
                if finished:
                    break
                if self.stopping and future.cancel():
                    raise _stopping()
                if request is not None and await request.is_disconnected():
                    future.cancel()
                    raise WebError(499, "the client has disconnected", "nothing")
        except asyncio.CancelledError:
            future.cancel()
            raise
        if waited.cancelled():
            raise _stopping()
        return waited.result()

    def _submit(self, work: Callable[[], Result]) -> "Future[Result]":
        with self._lock:
            if self.stopping:
                raise _stopping()
            if self._waiting >= self.length:
                raise WebError(
                    503, f"the server is busy: {self._waiting} requests are waiting", "try again in a moment", 1
                )
            self._waiting += 1
        future = self._executor.submit(work)
        future.add_done_callback(self._finished)
        return future

    def _finished(self, future: "Future[Result]") -> None:
        with self._lock:
            self._waiting -= 1

    def stop(self) -> None:
        """Take no more work; what waits gets HTTP 503. Safe inside a signal handler."""
        self.stopping = True

    def close(self) -> None:
        """Drop waiting work and let the thread end after its current task."""
        self.stop()
        self._executor.shutdown(wait=False, cancel_futures=True)


def _look_at(future: "asyncio.Future[Result]") -> None:
    """Mark an error as seen: its client may have disconnected before it."""
    if not future.cancelled():
        future.exception()


def _stopping() -> WebError:
    return WebError(503, "the server is stopping", "try again after its restart", 5)
