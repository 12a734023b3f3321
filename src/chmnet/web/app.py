"""The application: pages, API and the life of the server."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from chmnet import __version__
from chmnet.web import propagations, routes
from chmnet.web.answers import add_error_handlers
from chmnet.web.propagations import Jobs
from chmnet.web.security import Guard
from chmnet.web.service import Service
from chmnet.web.settings import Settings

logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
SWEEP_SECONDS = 10.0

DESCRIPTION = """Find which point in one picture is which point in another.

Points are (x, y) in pixels of the upright picture, sizes (height, width). Errors are JSON:
`{"error": what happened, "what_to_do": …}`. A busy server returns HTTP 503 with `Retry-After`. Pictures stay in
memory, belong to a session (a cookie) and are deleted with it."""


def create_app(settings: Settings = Settings()) -> FastAPI:  # noqa: B008 (frozen)
    """The application of one server.

    Args:
        settings: limits, examples and models.
    """
    service = Service(settings)
    jobs = Jobs(service)
    service.on_forget(jobs.drop)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(service.start)
        sweeping = asyncio.create_task(_sweep(service))
        yield
        sweeping.cancel()
        jobs.close()
        service.close()

    app = FastAPI(
        title="chmnet",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from other hosts; /api is ours
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.service = service
    app.state.jobs = jobs
    add_error_handlers(app)
    app.include_router(routes.router)
    app.include_router(propagations.router)
    app.add_middleware(Guard, settings=settings)

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/api", include_in_schema=False)
    def api_page() -> FileResponse:
        return FileResponse(STATIC / "api.html")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


async def _sweep(service: Service) -> None:
    """End idle sessions, also while there are no requests."""
    while True:
        await asyncio.sleep(min(SWEEP_SECONDS, service.settings.limits.session_seconds))
        service.sessions.sweep()
