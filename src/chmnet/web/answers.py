"""The JSON of the HTTP API: the shape of every answer, and how errors become a message and advice."""

import logging
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, FiniteFloat
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from chmnet.errors import ChmnetError
from chmnet.weights import DEFAULT_MODEL

logger = logging.getLogger(__name__)

# ---------------------------------------------------------------- errors


class WebError(ChmnetError):
    """A request that cannot be answered.

    Args:
        status: of HTTP.
        error: what happened, one sentence.
        what_to_do: what the client can do about it.
        retry_after: seconds after which to try again.
    """

    def __init__(self, status: int, error: str, what_to_do: str, retry_after: int | None = None) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.what_to_do = what_to_do
        self.retry_after = retry_after


class ErrorAnswer(BaseModel):
    """What went wrong, and what to do about it."""

    error: str
    what_to_do: str


def for_log(text: str) -> str:
    """Text of a client on one line and not too long, so that it cannot forge lines of the log.

    Example:
        >>> for_log("/api" + chr(10) + "2026-01-01 INFO all is fine")
        '/api\\\\n2026-01-01 INFO all is fine'
    """
    return text[:200].encode("unicode_escape").decode("ascii")


def answer(error: WebError) -> JSONResponse:
    """An error as a response."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return JSONResponse({"error": error.error, "what_to_do": error.what_to_do}, error.status, headers)


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "The request cannot be understood."},
    403: {"model": ErrorAnswer, "description": "The request comes from another site."},
    404: {"model": ErrorAnswer, "description": "It does not exist, or no longer."},
    413: {"model": ErrorAnswer, "description": "Too large."},
    415: {"model": ErrorAnswer, "description": "Not a picture of an accepted type."},
    421: {"model": ErrorAnswer, "description": "The host name is not one of this server."},
    422: {"model": ErrorAnswer, "description": "A value is missing or out of range."},
    503: {"model": ErrorAnswer, "description": "Busy or stopping; `Retry-After` says when to try again."},
}
"""For the OpenAPI document: every path may return these."""

_ADVICE = {
    404: "see /api for the list of paths",
    405: "use a method that /api lists for this path",
}


def _methods(request: Request) -> set[str]:
    """The methods that there are for a request's address."""
    paths = request.app.openapi()["paths"]
    fitting = [methods for path, methods in paths.items() if compile_path(path)[0].match(request.url.path)]
    return {method.upper() for methods in fitting for method in methods} or {"GET"}


def add_error_handlers(app: FastAPI) -> None:
    """Make every error of the application an :class:`ErrorAnswer`, and log it."""

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
        response = answer(WebError(error.status_code, f"{error.detail}: {request.url.path[:200]}", advice))
        response.headers.update(error.headers or {})
        if error.status_code == 405:  # the router names only the methods of the first path that fits
            response.headers["Allow"] = ", ".join(sorted(_methods(request)))
        return response


# ---------------------------------------------------------------- answers and requests


class StatusAnswer(BaseModel):
    """Whether the server runs, and how busy it is."""

    version: str
    waiting: int = Field(description="Requests that are waiting for the network.")
    queue: int = Field(description="Most requests that may wait; more get HTTP 503.")
    upload_bytes: int
    pixels: int
    session_seconds: float
    types: list[str] = Field(description="Accepted picture types.")


class ModelAnswer(BaseModel):
    """One model of the menu."""

    name: str
    title: str
    description: str
    default: bool
    dimensions: str | None = Field(description="`4d-4d` or `6d-4d`; null for a file that is not loaded yet.")
    kernel: str | None = Field(description="Kernel type of the votes: psi, iso or full; null without votes.")
    scales: bool | None = Field(description="Whether the first vote runs over scales.")


class PictureAnswer(BaseModel):
    """A picture that the server knows."""

    id: str = Field(description="Names the picture in further requests of this session.")
    width: int
    height: int
    title: str | None = None
    url: str | None = Field(None, description="Where an example's file is.")


class ExamplesAnswer(BaseModel):
    """Pictures to try, and which go together."""

    pictures: list[PictureAnswer]
    pairs: list[tuple[str, str]]


class MatchRow(BaseModel):
    """A point of the source, where it lies in the target, and the confidence (0 … 1)."""

    source: tuple[float, float]
    target: tuple[float, float]
    confidence: float
    unmatched: float | None = Field(
        None, description="Probability that it has no match: hidden, or outside; null: the model cannot tell."
    )
    scales: tuple[float, float] | None = Field(None, description="Winning scales of source and target.")
    instance: int | None = Field(
        None, description="Number of the thing of the target, the best is 1; null: instances were not asked for."
    )


class PoseAnswer(BaseModel):
    """How the target was seen when it was matched."""

    mirrored: bool
    turn: float = Field(description="Degrees counter-clockwise, after mirroring.")
    probability: float | None = Field(description="That this is the right pose; null: only one was tried.")


class MatchAnswer(BaseModel):
    """What matching two pictures found. Points are (x, y) in pixels, sizes are (height, width)."""

    model: str
    source_size: tuple[int, int]
    target_size: tuple[int, int]
    source_area: tuple[int, int, int, int] | None = Field(
        description="Left, top, right, bottom of the box around what was matched; null: the whole picture."
    )
    target_area: tuple[int, int, int, int] | None
    pose: PoseAnswer
    same_kind: float | None = Field(
        description="Probability that both show the same kind of thing; null: the model cannot tell."
    )
    milliseconds: float | None = Field(description="Time that matching took; null: the result was in the cache.")
    matches: list[MatchRow]


class LabelledPicture(BaseModel):
    """A picture whose points are known."""

    picture: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    points: list[tuple[FiniteFloat, FiniteFloat] | None] = Field(
        min_length=1, max_length=500, description="The same points in every picture; null: not visible in it."
    )


class PropagationRequest(BaseModel):
    """Pictures with their points, and the pictures to find them in."""

    sources: list[LabelledPicture] = Field(min_length=1, max_length=20)
    targets: list[Annotated[str, Field(pattern="^[0-9a-f]{32}$")]] = Field(min_length=1, max_length=500)
    model: str = Field(DEFAULT_MODEL, max_length=200)
    names: list[Annotated[str, Field(max_length=200)]] = Field(
        [], max_length=500, description="Of the points, such as left_eye; they tell left from right. Empty: none."
    )
    boxes: dict[
        Annotated[str, Field(pattern="^[0-9a-f]{32}$")], tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]
    ] = Field(
        {},
        max_length=500,
        description="Left, top, right, bottom of the thing in some of the targets; only that is matched.",
    )


class PropagatedPicture(BaseModel):
    """Where the points lie in one of the pictures."""

    picture: str
    points: list[tuple[float, float] | None] = Field(description="null: no source shows it.")
    confidences: list[float]
    doubtful: list[bool] = Field(
        description="Whether a person should review it: low confidence, hidden, on the background, or outside."
    )
    score: float = Field(description="Mean confidence of the points.")
    sources: list[str] = Field(description="The labelled pictures that the points come from, the best first.")
    pose: PoseAnswer = Field(description="Where it was mirrored, left and right were exchanged by name.")
    unmatched: list[float] | None = Field(description="Probability that each point is hidden; null: not known.")
    foreground: list[float] | None = Field(
        description="Probability that each point lies on a thing, not on the background; null: not known."
    )


class PropagationAnswer(BaseModel):
    """Progress of a propagation, and its results so far."""

    id: str
    state: Literal["running", "done", "cancelled", "failed"]
    error: str | None
    done: int
    total: int
    pictures: list[PropagatedPicture]
