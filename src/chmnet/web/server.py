"""Runs the application: one process, one loop, deadlines for slow clients, a stop that answers every request.

All that is used of uvicorn's inside is in this file; ``tests/web/test_server.py`` tells when it changes.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
import webbrowser
from types import FrameType
from typing import Any

import typer
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from chmnet.errors import InputError
from chmnet.web.app import create_app
from chmnet.web.security import is_loopback
from chmnet.web.service import Service
from chmnet.web.settings import Settings

STOP_SECONDS = 2
"""After this, what is still being answered is cut off."""


class Server(uvicorn.Server):
    """Answers waiting requests with HTTP 503 as soon as it is asked to stop."""

    def __init__(self, config: uvicorn.Config, service: Service, browser: bool) -> None:
        super().__init__(config)
        self.service = service
        self.browser = browser

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Print the address of the page, once it is reachable."""
        await super().startup(sockets)
        announce(self.service.settings.host, sockets[0].getsockname()[1] if sockets else 0, self.browser)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """What a signal does: stop without an error message; a second Ctrl-C stops at once."""
        self.service.stop()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def announce(host: str, port: int, browser: bool) -> None:
    """Print the address of the page, and open it."""
    address = page_address(host, port)
    typer.echo(f"chmnet: open {address} (Ctrl-C stops it)")
    if not is_loopback(host):
        typer.echo("chmnet: other machines can reach this server; it has no password", err=True)
    if browser and has_display():
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def page_address(host: str, port: int) -> str:
    """Where a person on this machine finds the page.

    Example:
        >>> page_address("127.0.0.1", 8000), page_address("::", 80)
        ('http://127.0.0.1:8000/', 'http://[::1]:80/')
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def has_display() -> bool:
    """Whether a browser would have a window: without one, some would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def run(settings: Settings, port: int, browser: bool = False) -> None:
    """Serve until a signal stops it.

    Args:
        settings: limits, examples and models.
        port: to listen on; 0: any free one.
        browser: whether to open the page.

    Raises:
        InputError: the address cannot be listened on.
    """
    listener = listen(settings.host, port)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=30,
        limit_concurrency=settings.limits.connections,
        http=PatientProtocol,
        ws="none",
        proxy_headers=False,  # there is no proxy whose headers could be trusted
    )
    Server(config, app.state.service, browser).run(sockets=[listener])
    typer.echo("chmnet: stopped")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        InputError: the address is taken, or none of this machine's.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host}, port {port}: {reason}; choose another --port or --host"
        ) from None
    return listener


# ---------------------------------------------------------------- deadlines

REQUEST_SECONDS = 20.0
"""Time for the first line and the headers of a request; bodies are watched by :mod:`chmnet.web.uploads`."""

ANSWER_SECONDS = 120.0
"""Time in which a client must take what does not fit into the network's buffers; until then it fills memory."""


class PatientProtocol(H11Protocol):
    """One connection, with two deadlines that uvicorn does not have."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._request_timer = Timer(self, REQUEST_SECONDS)
        self._answer_timer = Timer(self, ANSWER_SECONDS)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connects, and must send a request in time."""
        super().connection_made(transport)
        self._request_timer.start()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ends."""
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
        """The client reads more slowly than the response is sent."""
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
        """Begin to wait, unless it waits already."""
        if self._handle is None:
            self._handle = self.protocol.loop.call_later(self.seconds, self.protocol.transport.abort)

    def stop(self) -> None:
        """Wait no longer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
