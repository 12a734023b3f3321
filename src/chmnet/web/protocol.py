"""HTTP that does not wait for ever: clients that send a request or read the answer too slowly are cut off."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 20.0
"""Time for the first line and the headers of a request; bodies are watched by :mod:`chmnet.web.bodies`."""

ANSWER_SECONDS = 120.0
"""Time in which a client must take what does not fit into the network's buffers; until then it fills memory."""


class PatientProtocol(H11Protocol):
    """One connection, with two deadlines that uvicorn does not have."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._request_timer = Timer(self, REQUEST_SECONDS)
        self._answer_timer = Timer(self, ANSWER_SECONDS)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody connects, and should say why."""
        super().connection_made(transport)
        self._request_timer.start()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._request_timer.stop()
        self._answer_timer.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A piece of a request."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # the request is complete, or its headers
            self._request_timer.stop()
        else:  # a further request begins
            self._request_timer.start()

    def pause_writing(self) -> None:
        """The client reads more slowly than the answer comes."""
        super().pause_writing()
        self._answer_timer.start()

    def resume_writing(self) -> None:
        """It has read nearly all of it."""
        self._answer_timer.stop()
        super().resume_writing()


class Timer:
    """Cuts a connection off, unless it is stopped before."""

    def __init__(self, protocol: H11Protocol, seconds: float) -> None:
        self.protocol = protocol
        self.seconds = seconds
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to wait; once begun, it goes on."""
        if self._handle is None:
            self._handle = self.protocol.loop.call_later(self.seconds, self.protocol.transport.abort)

    def stop(self) -> None:
        """Wait no longer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
