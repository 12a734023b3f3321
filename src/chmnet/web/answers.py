"""Every answer that is not a picture: its shape, and how errors become one sentence and an advice."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from chmnet.errors import ChmnetError

logger = logging.getLogger(__name__)


class WebError(ChmnetError):
    """A request that cannot be answered.

    Args:
        status: of HTTP.
        error: what happened, one sentence.
        what_to_do: what the person can do about it.
        retry_after: seconds after which to try again.
    """

    def __init__(self, status: int, error: str, what_to_do: str, retry_after: int | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.what_to_do = what_to_do
        self.retry_after = retry_after

    def answer(self) -> JSONResponse:
        """The error as a response."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return JSONResponse({"error": self.error, "what_to_do": self.what_to_do}, self.status, headers)


class ErrorAnswer(BaseModel):
    """What went wrong, and what to do about it."""

    error: str
    what_to_do: str


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "The request cannot be understood."},
    403: {"model": ErrorAnswer, "description": "The request comes from another site."},
    404: {"model": ErrorAnswer, "description": "There is no such thing (any more)."},
    413: {"model": ErrorAnswer, "description": "Too large."},
    415: {"model": ErrorAnswer, "description": "Not a picture of an accepted type."},
    421: {"model": ErrorAnswer, "description": "Not a name of this server."},
    422: {"model": ErrorAnswer, "description": "A value is missing or out of range."},
    503: {"model": ErrorAnswer, "description": "Busy or stopping; `Retry-After` says when to ask again."},
}
"""For the OpenAPI document: every path may answer with these."""

_ADVICE = {
    404: "look at /api for what there is",
    405: "use the method that /api gives for this address",
}


def add_error_handlers(app: FastAPI) -> None:
    """Make every error of the application an :class:`ErrorAnswer`; the log is told what happened."""

    @app.exception_handler(WebError)
    async def web_error(request: Request, error: WebError) -> JSONResponse:
        logger.info("%s %s: %s %s", request.method, request.url.path, error.status, error.error)
        return error.answer()

    @app.exception_handler(ChmnetError)
    async def chmnet_error(request: Request, error: ChmnetError) -> JSONResponse:
        logger.info("%s %s: 422 %s", request.method, request.url.path, error)
        return WebError(422, str(error), "change the request and send it again").answer()

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        logger.info("%s %s: 422 %s: %s", request.method, request.url.path, where, first["msg"])
        return WebError(422, f"{where}: {first['msg']}", "change the request and send it again").answer()

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        advice = _ADVICE.get(error.status_code, "change the request and send it again")
        answer = WebError(error.status_code, f"{error.detail}: {request.url.path}", advice).answer()
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return WebError(
            500, "something went wrong inside the server", "look into its log, then try again"
        ).answer()
