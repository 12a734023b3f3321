"""A real browser at a real server: Debian's chromium, driven by playwright."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ..process import RunningServer, running_server

ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP = {"width": 1240, "height": 900}
SPOTS = [(0.14, 0.43), (0.12, 0.22), (0.45, 0.33), (0.82, 0.35), (0.38, 0.75)]
"""Places on the source canvas to click, as shares of its size."""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:  # type: ignore[misc]
    with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if find_spec("playwright") is None or shutil.which("chromium") is None:
        pytest.skip("needs chromium and playwright: `make test-web` brings them")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """A person at the page, who notices everything that goes wrong on it."""

    def __init__(self, browser: Any, server: RunningServer, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESKTOP, "accept_downloads": True, **options})
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.page.goto(server.address)
        self.wait("window.chmnet?.view.pair")

    def evaluate(self, script: str) -> Any:
        return self.page.evaluate(script)

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Wait for an expression; the page's policy forbids playwright's own way."""
        until = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < until, (condition, self.notice(), self.errors)
            time.sleep(0.05)

    def upload(self, source: Path, target: Path) -> None:
        for side, path in (("source", source), ("target", target)):
            self.page.set_input_files(f"#{side} input[type=file]", str(path))
            self.wait(f"chmnet.view.pictures.{side}?.name === {json.dumps(path.name)}")
        self.wait("chmnet.view.pair && document.querySelector('.busy').hidden")

    def at(self, share: tuple[float, float], canvas: str = "#source canvas") -> tuple[float, float]:
        box = self.page.locator(canvas).bounding_box()
        return box["x"] + share[0] * box["width"], box["y"] + share[1] * box["height"]

    def notice(self) -> str:
        box = self.page.locator("#notice")
        return box.inner_text() if box.is_visible() else ""

    def download(self, act: Callable[[], None]) -> bytes:
        with self.page.expect_download() as waiting:
            act()
        return Path(waiting.value.path()).read_bytes()

    def points(self) -> list[dict[str, Any]]:
        return self.evaluate("chmnet.view.points")

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def visit(browser: Any, server: RunningServer) -> Iterator[Callable[..., Visit]]:
    visits: list[Visit] = []

    def begin(**options: Any) -> Visit:
        visits.append(Visit(browser, server, **options))
        return visits[-1]

    yield begin
    for each in visits:
        each.close()
