"""Runs the application: one process, one loop, an end that leaves nobody waiting."""

import socket
from types import FrameType

import typer
import uvicorn

from chmnet.errors import InputError
from chmnet.web.app import create_app
from chmnet.web.security import is_loopback
from chmnet.web.service import Service
from chmnet.web.settings import Settings

STOP_SECONDS = 2
"""After this, what is still being answered is cut off."""


class Server(uvicorn.Server):
    """Tells those who wait that the server stops, as soon as it is asked to."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where the page is, once it answers."""
        await super().startup(sockets)
        host, port = self.service.settings.host, sockets[0].getsockname()[1] if sockets else 0
        typer.echo(f"chmnet: open http://{f'[{host}]' if ':' in host else host}:{port}/ (Ctrl-C ends it)")
        if not is_loopback(host):
            typer.echo("chmnet: other machines can reach this server; it has no password", err=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """What a signal does."""
        self.service.stop()
        super().handle_exit(sig, frame)


def run(settings: Settings, port: int) -> None:
    """Serve until a signal comes.

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
        limit_concurrency=None,
    )
    Server(config, app.state.service).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, or a sentence why not.

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
