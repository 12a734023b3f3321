"""Every answer that is not a picture: its shape, and how errors become one sentence and an advice."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from chmnet.errors import ChmnetError
from chmnet.web.errors import WebError

logger = logging.getLogger(__name__)


class ErrorAnswer(BaseModel):
    """What went wrong, and what to do about it."""

    error: str
    what_to_do: str


def for_log(text: str) -> str:
    """What a client sent, on one line and not too long: nobody writes lines of their own into the log.

    Example:
        >>> for_log("/api" + chr(10) + "2026-01-01 INFO all is well")
        '/api\\\\n2026-01-01 INFO all is well'
    """
    return text[:200].encode("unicode_escape").decode("ascii")


def answer(error: WebError) -> JSONResponse:
    """An error as a response."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return JSONResponse({"error": error.error, "what_to_do": error.what_to_do}, error.status, headers)


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


def _methods(request: Request) -> set[str]:
    """The methods that there are for a request's address."""
    paths = request.app.openapi()["paths"]
    fitting = [methods for path, methods in paths.items() if compile_path(path)[0].match(request.url.path)]
    return {method.upper() for methods in fitting for method in methods} or {"GET"}


def add_error_handlers(app: FastAPI) -> None:
    """Make every error of the application an :class:`ErrorAnswer`; the log is told what happened."""

    @app.exception_handler(WebError)
    async def web_error(request: Request, error: WebError) -> JSONResponse:
        logger.info("%s %s: %s %s", request.method, for_log(request.url.path), error.status, error.error)
        return answer(error)

    @app.exception_handler(ChmnetError)
    async def chmnet_error(request: Request, error: ChmnetError) -> JSONResponse:
        logger.info("%s %s: 422 %s", request.method, for_log(request.url.path), error)
        return answer(WebError(422, str(error), "change the request and send it again"))

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        logger.info("%s %s: 422 %s: %s", request.method, for_log(request.url.path), for_log(where), first["msg"])
        return answer(WebError(422, f"{where[:200]}: {first['msg']}", "change the request and send it again"))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        advice = _ADVICE.get(error.status_code, "change the request and send it again")
        told = answer(WebError(error.status_code, f"{error.detail}: {request.url.path[:200]}", advice))
        told.headers.update(error.headers or {})
        if error.status_code == 405:  # the router names only the methods of the first path that fits
            told.headers["Allow"] = ", ".join(sorted(_methods(request)))
        return told
