"""``chmnet serve``: the web page and the HTTP API."""

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from chmnet.cli.io import Device, option
from chmnet.errors import InputError


def serve(
    host: Annotated[
        str, option("ADDRESS", "Address to listen on; 0.0.0.0 is reachable from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, option("NUMBER", "Port to listen on; 0 is any free one.", min=0, max=65535)] = 8000,
    allow_host: Annotated[
        list[str] | None, option("NAME", "Another host name under which the page may be opened; repeatable.")
    ] = None,
    model: Annotated[list[Path] | None, option("FILE", "Model file to offer on the page; repeatable.")] = None,
    examples: Annotated[
        Path | None, option("FOLDER", "Example pictures. Default: those of the repository, if it is there.")
    ] = None,
    queue: Annotated[int, option("NUMBER", "Requests that may wait; more get HTTP 503.", min=1)] = 32,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    device: Device = "auto",
    session_minutes: Annotated[
        float, option("NUMBER", "Delete a session's pictures after this idle time.", min=0.1)
    ] = 30,
) -> None:
    """Serve the web page and the HTTP API.

    Pictures stay in the memory of this machine and are deleted with their session.

    \b
    Examples:
      chmnet serve
      chmnet serve --port 8080 --no-browser --model cats.safetensors
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
    run(Settings(host, tuple(allow_host or ()), folder, files, limits, device), port, browser)
