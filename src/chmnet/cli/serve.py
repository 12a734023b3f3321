"""``chmnet serve``: the page to play with, on this machine."""

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from chmnet.errors import InputError


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: reachable from other machines.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name by which people call this machine.")
    ] = None,
    model: Annotated[list[Path] | None, typer.Option(help="A model file to offer on the page.")] = None,
    examples: Annotated[
        Path | None, typer.Option(help="Folder of example pictures. Default: those of the repository, if there.")
    ] = None,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; more are told to come back.")] = 32,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    session_minutes: Annotated[
        float, typer.Option(min=0.1, help="Pictures are forgotten after so long without a request.")
    ] = 30,
) -> None:
    """Open a page to play with matching, and an HTTP API for scripts.

    Pictures stay in the memory of this machine and are forgotten with their session.

    Examples:

    `chmnet serve`

    `chmnet serve --port 8080 --no-browser --model runs/cats/best.safetensors`
    """
    missing = [name for name in ("fastapi", "uvicorn", "python_multipart") if find_spec(name) is None]
    if missing:
        raise InputError(f"the page needs {', '.join(missing)}: install them with pip install 'chmnet[web]'")
    if examples is not None and not examples.is_dir():
        raise InputError(f"there is no folder {examples}; name one that holds example pictures")
    files = {}
    for path in model or []:
        if not path.is_file():
            raise InputError(f"there is no model file {path}")
        files[path.stem if path.stem not in files else str(path)] = path
    from chmnet.web.server import run
    from chmnet.web.settings import Limits, Settings, example_folder

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    limits = Limits(queue=queue, session_seconds=60 * session_minutes)
    folder = examples if examples is not None else example_folder()
    run(Settings(host, tuple(allow_host or ()), folder, files, limits), port, browser)
