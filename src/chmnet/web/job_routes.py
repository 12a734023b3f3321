"""The HTTP API of propagations: start, look, end."""

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as InPath

from chmnet.web.answers import ERRORS, ErrorAnswer
from chmnet.web.errors import WebError
from chmnet.web.jobs import Job, Jobs
from chmnet.web.routes import TheService, TheSession
from chmnet.web.schemas import PropagatedPicture, PropagationAnswer, PropagationRequest
from chmnet.web.service import Pair

router = APIRouter(prefix="/api", responses=ERRORS)

JobId = Annotated[str, InPath(pattern="^[0-9a-f]{32}$")]


def get_jobs(request: Request) -> Jobs:
    """The server's jobs."""
    jobs = request.app.state.jobs
    assert isinstance(jobs, Jobs)
    return jobs


@router.post(
    "/propagations",
    status_code=202,
    summary="Carry points of one picture to many others",
    responses={409: {"model": ErrorAnswer, "description": "One runs already."}},
)
async def propagate(
    wish: PropagationRequest, request: Request, service: TheService, session: TheSession
) -> PropagationAnswer:
    """Answers at once; ask for the progress at `GET /api/propagations/{job}`."""
    model = service.shelf.check(wish.model)
    source = service.find_picture(session, wish.source)
    height, width = source.size
    if any(not (0 <= x <= width and 0 <= y <= height) for x, y in wish.points):
        raise WebError(
            422, f"a point lies outside the picture, which has {width}×{height} pixels", "move it inside"
        )
    pairs = [Pair(source, service.find_picture(session, target), model) for target in wish.targets]
    return _answer(get_jobs(request).start(session.token, pairs, wish.points))


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
        PropagatedPicture(
            picture=pair.target.id, points=found.target.tolist(), confidences=found.confidence.tolist()
        )
        for pair, found in zip(job.pairs, job.found, strict=False)  # those that are done
    ]
    return PropagationAnswer(
        id=job.id, state=job.state, error=job.error, done=len(job.found), total=len(job.pairs), pictures=pictures
    )
