"""Points of labelled pictures carried to many others: long work in small steps, and its HTTP API."""

import asyncio
import logging
import secrets
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Depends, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from chmnet.annotation.choice import Guess, choose, make_guess
from chmnet.annotation.coco import doubtful_keypoints
from chmnet.annotation.records import Moved, mean_confidence
from chmnet.config import CONFIDENCE_THRESHOLD
from chmnet.data.pairs import mirrored_rows
from chmnet.pictures import Box
from chmnet.web.answers import (
    ERRORS,
    ErrorAnswer,
    LabelledPicture,
    PoseAnswer,
    PropagatedPicture,
    PropagationAnswer,
    PropagationRequest,
    WebError,
)
from chmnet.web.routes import OpenSession, TheService, TheSession
from chmnet.web.service import Pair, Search, Service
from chmnet.web.sessions import Session, StoredPicture
from chmnet.web.uploads import check_box

logger = logging.getLogger(__name__)

BUSY_SECONDS = 0.2
"""How long a step waits before it asks again for a place in the queue."""

KEPT_JOBS = 2
"""Finished jobs of one session that can still be asked about."""

State = Literal["running", "done", "cancelled", "failed"]


class Labelled(NamedTuple):
    """A picture whose points are known."""

    picture: StoredPicture
    points: np.ndarray
    """``n`` rows (x, y); NaN where a point is not visible."""


@dataclass
class Job:
    """One propagation: what is done, and what is to be done."""

    id: str
    owner: str
    sources: list[Labelled]
    targets: list[StoredPicture]
    model: str
    names: list[str] = field(default_factory=list)
    """Of the points; they tell left from right. Empty: they have none."""
    boxes: dict[str, Box] = field(default_factory=dict)
    """Where the thing is in some of the targets, by their ids."""
    state: State = "running"
    error: str | None = None
    found: list[Moved] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None


class Jobs:
    """All jobs; each belongs to a session and ends with it. Used by the event loop only.

    Args:
        service: does the work; each step waits in the same queue as requests.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._jobs: dict[str, Job] = {}

    def start(
        self,
        owner: str,
        sources: list[Labelled],
        targets: list[StoredPicture],
        model: str,
        names: list[str],
        boxes: dict[str, Box],
    ) -> Job:
        """Begin to carry the points of all sources to each of the targets.

        Raises:
            WebError: the session has a running job already.
        """
        mine = [job for job in self._jobs.values() if job.owner == owner]
        if any(job.state == "running" for job in mine):
            raise WebError(
                409, "a propagation of this session is already running", "wait for it, or DELETE it first"
            )
        for old in mine[: max(0, len(mine) - KEPT_JOBS + 1)]:
            del self._jobs[old.id]
        job = Job(secrets.token_hex(16), owner, sources, targets, model, names, boxes)
        self._jobs[job.id] = job
        job.task = asyncio.get_running_loop().create_task(self._work(job))
        return job

    def find(self, owner: str, key: str) -> Job:
        """A job of a session.

        Raises:
            WebError: it has no such job.
        """
        job = self._jobs.get(key)
        if job is None or job.owner != owner:
            raise WebError(404, "this session has no such propagation, or no longer", "start it again")
        return job

    def cancel(self, job: Job) -> None:
        """Cancel a job after its current step; results so far stay."""
        if job.state == "running":
            job.state = "cancelled"
            if job.task is not None:
                job.task.cancel()

    def drop(self, owner: str) -> None:
        """Forget all jobs of a session."""
        for job in [job for job in self._jobs.values() if job.owner == owner]:
            self.cancel(job)
            del self._jobs[job.id]

    def close(self) -> None:
        """End all jobs."""
        for job in self._jobs.values():
            self.cancel(job)

    async def _work(self, job: Job) -> None:
        try:
            for target in job.targets:
                job.found.append(await self._find(job, target))
            job.state = "done"
        except WebError as error:
            job.state, job.error = "failed", error.error
        except Exception:
            logger.exception("a propagation failed")
            job.state, job.error = "failed", "internal server error"

    async def _find(self, job: Job, target: StoredPicture) -> Moved:
        """What the sources say of one target; the choice is that of ``chmnet propagate``."""
        return choose("", [[await self._guess(job, source, target)] for source in job.sources])

    async def _guess(self, job: Job, source: Labelled, target: StoredPicture) -> Guess:
        queue = self.service.queue
        while queue.waiting >= queue.length and not queue.stopping:
            await asyncio.sleep(BUSY_SECONDS)
        search = Search(boxes=(None, job.boxes.get(target.id)))
        pair, sides = Pair(source.picture, target, job.model, search), mirrored_rows(job.names)
        return await queue.run(lambda: make_guess(self.service.match_now(pair).result, source.points, sides))


# ---------------------------------------------------------------- the HTTP API

router = APIRouter(prefix="/api", responses=ERRORS)

JobId = Annotated[str, InPath(pattern="^[0-9a-f]{32}$")]


def get_jobs(request: Request) -> Jobs:
    """The server's jobs."""
    jobs = request.app.state.jobs
    assert isinstance(jobs, Jobs)
    return jobs


async def read_body(request: Request, service: TheService) -> PropagationRequest:
    """The body, with its size limited while it is received; FastAPI itself has no limit."""
    with service.bodies.reading(request, service.settings.limits.body_bytes) as body:
        data = await body.read()
    try:
        return PropagationRequest.model_validate_json(data)
    except ValidationError as error:
        problems = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise RequestValidationError(problems) from None


def _body_schema() -> dict[str, Any]:
    """The schema of the body in one piece: OpenAPI allows no definitions inside it."""
    schema = PropagationRequest.model_json_schema()
    (labelled,) = schema.pop("$defs").values()
    schema["properties"]["sources"]["items"] = labelled
    return schema


_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _body_schema()}}}
}


@router.post(
    "/propagations",
    status_code=202,
    summary="Carry points of labelled pictures to many others",
    responses={409: {"model": ErrorAnswer, "description": "One is already running."}},
    openapi_extra=_BODY,
)
async def propagate(
    body: Annotated[PropagationRequest, Depends(read_body)],
    request: Request,
    service: TheService,
    session: OpenSession,
) -> PropagationAnswer:
    """Answers at once; ask for the progress at `GET /api/propagations/{job}`.

    Of several labelled pictures the one that matches best is taken, with those that agree, as in `chmnet
    propagate`. Where a picture matches better mirrored, left and right are exchanged by the names of the points.
    """
    model = service.models.check(body.model)
    if len({len(source.points) for source in body.sources}) > 1:
        raise WebError(
            422, "labelled pictures have different numbers of points", "use null for points that are not visible"
        )
    if body.names and len(body.names) != len(body.sources[0].points):
        raise WebError(
            422,
            f"there are {len(body.names)} names of {len(body.sources[0].points)} points",
            "name every point, or none",
        )
    sources = [_labelled(source, service, session) for source in body.sources]
    targets = [service.find_picture(session, target) for target in body.targets]
    boxes = _check_boxes(body.boxes, targets)
    return _answer(get_jobs(request).start(session.token, sources, targets, model, body.names, boxes))


def _check_boxes(boxes: dict[str, Box], targets: list[StoredPicture]) -> dict[str, Box]:
    sizes = {target.id: target.size for target in targets}
    for key, box in boxes.items():
        if key not in sizes:
            raise WebError(422, "a box is of a picture that is no target", "name the picture in targets, too")
        check_box(box, "a box", sizes[key])
    return boxes


def _labelled(source: LabelledPicture, service: Service, session: Session) -> Labelled:
    picture = service.find_picture(session, source.picture)
    height, width = picture.size
    for point in source.points:
        if point is not None and not (0 <= point[0] <= width and 0 <= point[1] <= height):
            raise WebError(
                422, f"a point lies outside the picture, which has {width}×{height} pixels", "move it inside"
            )
    return Labelled(picture, np.array([point or (np.nan, np.nan) for point in source.points], dtype=np.float64))


@router.get("/propagations/{job}", summary="Progress and what was found so far")
async def look(job: JobId, request: Request, session: TheSession) -> PropagationAnswer:
    """Pictures appear in the order they were named in."""
    return _answer(get_jobs(request).find(session.token, job))


@router.delete("/propagations/{job}", summary="End a propagation")
async def end(job: JobId, request: Request, session: TheSession) -> PropagationAnswer:
    """What was found so far stays."""
    found = get_jobs(request).find(session.token, job)
    get_jobs(request).cancel(found)
    return _answer(found)


def _answer(job: Job) -> PropagationAnswer:
    pictures = [
        _propagated(job, number, target)
        for number, target in enumerate(job.targets[: len(job.found)])  # those that are done
    ]
    return PropagationAnswer(
        id=job.id, state=job.state, error=job.error, done=len(job.found), total=len(job.targets), pictures=pictures
    )


def _propagated(job: Job, number: int, target: StoredPicture) -> PropagatedPicture:
    moved = job.found[number]
    return PropagatedPicture(
        picture=target.id,
        points=[None if np.isnan(x) else (x, y) for x, y in moved.points.tolist()],
        confidences=moved.confidence.tolist(),
        doubtful=doubtful_keypoints(moved, target.size, CONFIDENCE_THRESHOLD).tolist(),
        score=mean_confidence(moved),
        sources=list(dict.fromkeys(job.sources[source].picture.id for source in moved.sources)),
        pose=PoseAnswer(**moved.pose._asdict()),
        unmatched=None if moved.unmatched is None else moved.unmatched.tolist(),
        foreground=None if moved.foreground is None else moved.foreground.tolist(),
    )
