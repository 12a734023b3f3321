"""Which requests are accepted, and the security headers of every response."""

import ipaddress
import logging
import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chmnet.web.answers import WebError, answer, for_log
from chmnet.web.settings import Settings

logger = logging.getLogger(__name__)

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_allowed(header: str, settings: Settings) -> bool:
    """Whether a ``Host`` header names this server.

    A page of another site can make its own name lead to this machine (DNS rebinding), so names must be known;
    this is not possible with addresses, so all are accepted once the server listens beyond loopback.

    Example:
        >>> host_allowed("localhost:8000", Settings()), host_allowed("evil.example", Settings())
        (True, False)
    """
    found = _HOST.fullmatch(header.lower())
    if found is None:
        return False
    name = found["name"].strip("[]")
    if is_loopback(name) or name in {known.lower() for known in (settings.host, *settings.allowed_hosts)}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return not is_loopback(settings.host)


def check_origin(headers: Headers, path: str) -> None:
    """Refuse requests that another site made in a person's browser.

    Raises:
        WebError: the browser says that the request is not from this server's own page.
    """
    site = headers.get("sec-fetch-site")
    foreign = path.startswith("/api/") and site not in (None, "same-origin", "none")
    origin = headers.get("origin")
    if origin is not None:
        try:
            foreign = foreign or urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
        except ValueError:
            foreign = True
    if foreign:
        raise WebError(403, "requests from other sites are refused", "use the page of this server")


UNEXPECTED = WebError(500, "internal server error", "see the log of the server, then try again")


class Guard:
    """Checks host, origin and size of every request, and puts the security headers on every answer.

    Unexpected errors become a response here too; the traceback goes to the log.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store" if scope["path"].startswith("/api/") else "no-cache"
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, send_guarded)
        except WebError as error:
            logger.warning("%s %s: %s", scope["method"], for_log(scope["path"]), error.error)
            await answer(error)(scope, receive, send_guarded)
        except Exception:
            logger.exception("%s %s failed", scope["method"], for_log(scope["path"]))
            if started:
                raise  # half an answer is out already; the connection must end
            await answer(UNEXPECTED)(scope, receive, send_guarded)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if not host_allowed(headers.get("host", ""), self.settings):
            raise WebError(
                421,
                "this host name is not allowed",
                "use the address of the server, or start it with --allow-host NAME",
            )
        check_origin(headers, scope["path"])
        length = headers.get("content-length", "0")
        # The largest request is two pictures and a form; bodies are counted again while they are received.
        if not length.isascii() or not length.isdigit():
            raise WebError(400, "Content-Length is not a number", "send the request again with its true length")
        most = 2 * self.settings.limits.upload_bytes + self.settings.limits.body_bytes
        if int(length[:20]) > most:
            raise WebError(413, f"the request has more than {most // 2**20} MB", "send smaller pictures")
