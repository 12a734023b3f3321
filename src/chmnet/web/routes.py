"""The HTTP API: each path is a few lines that check, ask the service and shape the answer."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as InPath

from chmnet import __version__
from chmnet.config import HoughConfig
from chmnet.place import PLACES
from chmnet.poses import DEFAULT_POSES, POSES
from chmnet.result import Matches, MatchResult
from chmnet.turns import seen_area
from chmnet.web.answers import (
    ERRORS,
    ExamplesAnswer,
    MatchAnswer,
    MatchRow,
    ModelAnswer,
    PictureAnswer,
    PoseAnswer,
    StatusAnswer,
    WebError,
)
from chmnet.web.container import flow_file, pack_result, warp_file
from chmnet.web.decoder import FORMATS, media_type
from chmnet.web.models import DEFAULT_MODEL, Offer
from chmnet.web.service import Pair, Search, Service, Timed
from chmnet.web.sessions import Session, StoredPicture, example_pairs
from chmnet.web.uploads import INSTANCES, MIRRORED, parse_box, parse_points, read_match_form

COOKIE = "chmnet-session"

router = APIRouter(prefix="/api", responses=ERRORS)

PictureId = Annotated[str, InPath(pattern="^[0-9a-f]{32}$", description="As POST /api/pictures gave it.")]
ModelName = Annotated[str, Query(alias="model", max_length=200, description="A name from GET /api/models.")]


Poses = Annotated[
    Literal["upright", "mirror", "any", "mirrored"],
    Query(description="The target as it is; mirrored too; mirrored and turned too; or its mirror image only."),
]
Place = Annotated[
    Literal["whole", "found"],
    Query(description="Match the whole pictures, or the thing found in each of them."),
]
BoxText = Annotated[
    str, Query(max_length=100, description="Where the thing is: left,top,right,bottom in pixels of the picture.")
]


async def get_service(request: Request) -> Service:
    """The server's state."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


TheService = Annotated[Service, Depends(get_service)]


# FastAPI runs what is not `async` in threads of its own, but sessions and jobs belong to the event loop.
async def find_session(request: Request, service: TheService) -> Session:
    """The session of the request's cookie. Without one, or with an old one, it is empty and not stored."""
    return service.sessions.find(request.cookies.get(COOKIE, ""))


async def open_session(request: Request, response: Response, service: TheService) -> Session:
    """As :func:`find_session`, or a new one, whose cookie the response sets: for requests that store something.

    The server makes every token itself; unknown ones are never accepted.
    """
    session = service.sessions.open(request.cookies.get(COOKIE, ""))
    if request.cookies.get(COOKIE) != session.token:
        response.set_cookie(COOKIE, session.token, httponly=True, samesite="strict", path="/")
    return session


TheSession = Annotated[Session, Depends(find_session)]
OpenSession = Annotated[Session, Depends(open_session)]


async def get_pair(
    source: PictureId,
    target: PictureId,
    service: TheService,
    session: TheSession,
    model: ModelName = DEFAULT_MODEL,
    poses: Poses = DEFAULT_POSES,
    place: Place = "whole",
    source_box: BoxText = "",
    target_box: BoxText = "",
) -> Pair:
    """The two pictures of a path, the model, and how to look."""
    service.models.check(model)
    pictures = service.find_picture(session, source), service.find_picture(session, target)
    return Pair(*pictures, model, read_search(*pictures, poses, place, source_box, target_box))


ThePair = Annotated[Pair, Depends(get_pair)]


def read_search(
    source: StoredPicture, target: StoredPicture, poses: str, place: str, first: str, second: str
) -> Search:
    """How to look, as a client wrote it."""
    if not (first or second):
        return Search(poses, place)
    boxes = parse_box(first, "source_box", source.size), parse_box(second, "target_box", target.size)
    return Search(poses, place, boxes)


_BINARY: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": {}}}}
_PNG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/png": {}}}}
Side = Annotated[int, Query(ge=16, le=2048, description="Largest side; smaller pictures keep their size.")]

# ---------------------------------------------------------------- status, models, examples


@router.get("/status", summary="Version, limits, and how busy the server is")
async def status(service: TheService) -> StatusAnswer:
    """Also answered while the server is busy."""
    limits = service.settings.limits
    return StatusAnswer(
        version=__version__,
        waiting=service.queue.waiting,
        queue=limits.queue,
        upload_bytes=limits.upload_bytes,
        pixels=limits.pixels,
        session_seconds=limits.session_seconds,
        types=list(FORMATS.values()),
    )


@router.get("/models", summary="Models to choose from")
async def models(service: TheService) -> list[ModelAnswer]:
    """The default one comes with chmnet; files come from `chmnet serve --model`."""
    return [_model(name, offer) for name, offer in service.models.offers.items()]


def _model(name: str, offer: Offer) -> ModelAnswer:
    config = offer.config
    votes = config.matching if config is not None and isinstance(config.matching, HoughConfig) else None
    over_scales = config is not None and len(config.correlation.scales) > 1
    return ModelAnswer(
        name=name,
        title=offer.title,
        description=offer.description,
        default=name == DEFAULT_MODEL,
        dimensions=None if config is None else "6d-4d" if over_scales else "4d-4d",
        kernel=None if votes is None else votes.first_sharing,
        scales=None if config is None else votes is not None and over_scales,
    )


@router.get(
    "/models/{name}/kernel.png", summary="Drawing of a model's kernels", response_class=Response, responses=_PNG
)
async def kernel(
    name: Annotated[str, InPath(max_length=200, description="A name from GET /api/models.")],
    request: Request,
    service: TheService,
) -> Response:
    """As `chmnet kernels` draws them; models without votes have none (422)."""
    return Response(await service.draw_kernels(name, request), media_type="image/png")


@router.get("/examples", summary="Example pictures")
async def examples(service: TheService) -> ExamplesAnswer:
    """Empty where chmnet is installed without its repository."""
    pictures = [
        _picture(example.picture, example.title, f"/api/examples/{key}")
        for key, example in service.examples.items()
    ]
    return ExamplesAnswer(pictures=pictures, pairs=example_pairs(service.examples))


@router.get("/examples/{picture}", summary="An example's file", response_class=Response)
async def example_file(picture: PictureId, service: TheService) -> Response:
    """The file as it is in the folder of examples."""
    if picture not in service.examples:
        raise WebError(404, "there is no such example", "GET /api/examples lists them")
    stored = service.examples[picture].picture
    return Response(
        stored.data, media_type=media_type(stored.data), headers={"Cache-Control": "private, max-age=3600"}
    )


# ---------------------------------------------------------------- pictures of a session

_PICTURE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in FORMATS.values()},
    }
}


@router.post("/pictures", status_code=201, summary="Load a picture", openapi_extra=_PICTURE_BODY)
async def add_picture(request: Request, service: TheService, session: OpenSession) -> PictureAnswer:
    """The body is the file itself; its type is recognised by its content."""
    with service.bodies.reading(request, service.settings.limits.upload_bytes) as body:
        return _picture(await service.add_picture(session, await body.read(), request))


@router.delete("/session", status_code=204, summary="Delete all pictures of this session")
async def forget(request: Request, service: TheService) -> None:
    """Everything that was loaded or computed is dropped at once."""
    service.sessions.end(request.cookies.get(COOKIE, ""))


def _picture(picture: StoredPicture, title: str | None = None, url: str | None = None) -> PictureAnswer:
    height, width = picture.size
    return PictureAnswer(id=picture.id, width=width, height=height, title=title, url=url)


# ---------------------------------------------------------------- pairs


@router.get(
    "/pairs/{source}/{target}", summary="A pair as the page needs it", response_class=Response, responses=_BINARY
)
async def pair(pair: ThePair, request: Request, service: TheService) -> Response:
    """Positions, confidences and likely places in one binary answer; `docs/serve.md` describes it."""

    def pack(found: Timed) -> bytes:
        result = found.result
        facts = {"pose": _pose(result).model_dump(), "same_kind": result.same_kind}
        return pack_result(result, model=pair.model, milliseconds=_milliseconds(found), **facts)

    return Response(await service.ask(pair, pack, request), media_type="application/octet-stream")


@router.get("/pairs/{source}/{target}/matches", summary="The most confident matches")
async def matches(
    pair: ThePair,
    request: Request,
    service: TheService,
    top: Annotated[int, Query(ge=1, le=5000)] = 300,
    instances: Annotated[
        int | None, Query(ge=1, le=INSTANCES, description="Match so many things of the target one by one.")
    ] = None,
    points: Annotated[
        str,
        Query(max_length=10_000, description="JSON: [[x, y], …] in pixels of the source; else the best."),
    ] = "",
) -> MatchAnswer:
    """The best first; with the winning scales, for models that vote over scales."""
    given = parse_points(points, service.settings.limits.points) if points else None
    return await service.ask(pair, lambda found: _answer(pair.model, found, given, top, instances), request)


@router.get("/pairs/{source}/{target}/flow.npz", summary="Dense flow", response_class=Response, responses=_BINARY)
async def flow(pair: ThePair, request: Request, service: TheService, side: Side = 2048) -> Response:
    """What `chmnet match --flow flow.npz` writes: `flow`, `confidence`, and both sizes.

    `flow` is height × width × 2: displacements (x, y) in pixels of the pictures as they are. The map of a picture
    larger than `side` is made to fit it.
    """
    file = await service.ask(pair, lambda found: flow_file(found.result, side), request)
    return Response(file, media_type="application/octet-stream")


@router.get(
    "/pairs/{source}/{target}/warp.png",
    summary="Source in the frame of the target",
    response_class=Response,
    responses=_PNG,
)
async def warp(pair: ThePair, request: Request, service: TheService, side: Side = 1024) -> Response:
    """The source picture drawn so that it lies over the target, as `chmnet warp` does."""

    def draw(found: Timed) -> bytes:
        return warp_file(found.result, service.view(pair.source, side), side)

    return Response(await service.ask(pair, draw, request), media_type="image/png")


_MATCH_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["source", "target"],
                    "properties": {
                        "source": {"type": "string", "format": "binary"},
                        "target": {"type": "string", "format": "binary"},
                        "model": {"type": "string"},
                        "points": {"type": "string", "description": "JSON: [[x, y], …] in pixels of the source"},
                        "top": {"type": "integer", "minimum": 1, "maximum": 5000, "default": 300},
                        "instances": {"type": "integer", "minimum": 1, "maximum": INSTANCES},
                        "poses": {"type": "string", "enum": [*POSES, MIRRORED], "default": DEFAULT_POSES},
                        "place": {"type": "string", "enum": list(PLACES), "default": "whole"},
                        "source_box": {"type": "string", "description": "left,top,right,bottom in pixels"},
                        "target_box": {"type": "string", "description": "left,top,right,bottom in pixels"},
                    },
                }
            }
        },
    }
}


@router.post("/match", summary="Match two picture files", openapi_extra=_MATCH_BODY)
async def match(request: Request, service: TheService) -> MatchAnswer:
    """For scripts: matches of two files; nothing is stored. Without points: the most confident matches."""
    limits = service.settings.limits
    with service.bodies.reading(request, 2 * limits.upload_bytes + limits.body_bytes) as body:
        form = await read_match_form(body, DEFAULT_MODEL)
        service.models.check(form.model)

        def answer(found: Timed) -> MatchAnswer:
            return _answer(form.model, found, form.points, form.top, form.instances)

        with service.one_shot() as owner:
            source = await service.read_picture(form.source, owner, request)
            target = await service.read_picture(form.target, owner, request)
            search = read_search(source, target, form.poses, form.place, form.source_box, form.target_box)
            return await service.ask(Pair(source, target, form.model, search), answer, request)


def _answer(
    model: str, found: Timed, points: list[tuple[float, float]] | None, top: int, instances: int | None
) -> MatchAnswer:
    result = found.result
    results = [result] if instances is None else result.instances(instances)
    rows = []
    for number, each in enumerate(results, start=1):
        matches = each.matches(top) if points is None else each.transfer(points)
        rows += _rows(each, matches, None if instances is None else number)
    return MatchAnswer(
        model=model,
        source_size=result.source_size,
        target_size=result.target_size,
        source_area=seen_area(result.source),
        target_area=seen_area(result.target),
        pose=_pose(result),
        same_kind=result.same_kind,
        milliseconds=_milliseconds(found),
        matches=rows,
    )


def _rows(result: MatchResult, matches: Matches, instance: int | None) -> list[MatchRow]:
    nothing = [None] * len(matches.source)
    scales = nothing if result.scale_pairs is None else result.winning_scales(matches).tolist()
    unmatched = result.unmatched_at(matches.source)
    hidden = nothing if unmatched is None else unmatched.tolist()
    columns = zip(*(column.tolist() for column in matches), hidden, scales, strict=True)
    return [
        MatchRow(source=a, target=b, confidence=c, unmatched=d, scales=e, instance=instance)
        for a, b, c, d, e in columns
    ]


def _pose(result: MatchResult) -> PoseAnswer:
    view = result.target
    return PoseAnswer(mirrored=view.mirrored, turn=view.turn, probability=result.pose_probability)


def _milliseconds(found: Timed) -> float | None:
    return None if found.seconds is None else round(1000 * found.seconds, 3)
