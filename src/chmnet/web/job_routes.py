"""The HTTP API of propagations: start, look, end."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from chmnet.annotation.coco import doubtful_keypoints
from chmnet.annotation.records import score
from chmnet.config import CONFIDENCE_THRESHOLD
from chmnet.web.answers import ERRORS, ErrorAnswer
from chmnet.web.errors import WebError
from chmnet.web.jobs import Job, Jobs, Labelled
from chmnet.web.routes import OpenSession, TheService, TheSession
from chmnet.web.schemas import LabelledPicture, PropagatedPicture, PropagationAnswer, PropagationRequest
from chmnet.web.service import Service
from chmnet.web.sessions import Session, StoredPicture

router = APIRouter(prefix="/api", responses=ERRORS)

JobId = Annotated[str, InPath(pattern="^[0-9a-f]{32}$")]


def get_jobs(request: Request) -> Jobs:
    """The server's jobs."""
    jobs = request.app.state.jobs
    assert isinstance(jobs, Jobs)
    return jobs


async def read_wish(request: Request, service: TheService) -> PropagationRequest:
    """The body, counted as it comes: FastAPI itself would take in any amount."""
    with service.bodies.reading(request, service.settings.limits.body_bytes) as body:
        data = await body.read()
    try:
        return PropagationRequest.model_validate_json(data)
    except ValidationError as error:
        problems = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise RequestValidationError(problems) from None


def _wish_schema() -> dict[str, Any]:
    """The schema of the body, whole: OpenAPI documents have no place for definitions inside of one."""
    schema = PropagationRequest.model_json_schema()
    (labelled,) = schema.pop("$defs").values()
    schema["properties"]["sources"]["items"] = labelled
    return schema


_WISH_BODY: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": _wish_schema()}}}
}


@router.post(
    "/propagations",
    status_code=202,
    summary="Carry points of labelled pictures to many others",
    responses={409: {"model": ErrorAnswer, "description": "One runs already."}},
    openapi_extra=_WISH_BODY,
)
async def propagate(
    wish: Annotated[PropagationRequest, Depends(read_wish)],
    request: Request,
    service: TheService,
    session: OpenSession,
) -> PropagationAnswer:
    """Answers at once; ask for the progress at `GET /api/propagations/{job}`.

    Several labelled pictures take a vote, as those of `chmnet propagate` do.
    """
    model = service.shelf.check(wish.model)
    if len({len(source.points) for source in wish.sources}) > 1:
        raise WebError(422, "labelled pictures have different numbers of points", "write null for those not seen")
    sources = [_labelled(source, service, session) for source in wish.sources]
    targets = [service.find_picture(session, target) for target in wish.targets]
    return _answer(get_jobs(request).start(session.token, sources, targets, model))


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
def look(job: JobId, request: Request, session: TheSession) -> PropagationAnswer:
    """Pictures appear in the order they were named in."""
    return _answer(get_jobs(request).find(session.token, job))


@router.delete("/propagations/{job}", summary="End a propagation")
def end(job: JobId, request: Request, session: TheSession) -> PropagationAnswer:
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
        score=score(moved),
    )
