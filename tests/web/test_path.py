"""Which files a request for a pair goes through."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fastapi.testclient import TestClient

import chmnet
from chmnet.web.app import create_app
from chmnet.web.settings import Settings

from .conftest import ADDRESS, DONKEY, ZEBRA, load

PACKAGE = Path(chmnet.__file__).parent
MOST_FILES = 21


class Trace:
    """Files of chmnet in which a function runs, in all threads that begin after it."""

    def __init__(self) -> None:
        self.on = False
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            self.files.add(Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix())


@contextmanager
def tracing() -> Iterator[Trace]:
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_a_pair_goes_through_few_files() -> None:
    with tracing() as trace, TestClient(create_app(Settings()), base_url=ADDRESS) as client:
        source, target = (load(client, path.read_bytes()) for path in (DONKEY, ZEBRA))
        trace.on = True
        assert client.get(f"/api/pairs/{source}/{target}").status_code == 200
        trace.on = False
    assert {"matcher.py", "ops/transfer.py", "web/routes.py", "web/container.py"} <= trace.files
    assert len(trace.files) <= MOST_FILES, sorted(trace.files)
