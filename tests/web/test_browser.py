"""The page in a real browser: Debian's chromium, driven by playwright."""

import csv
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from .conftest import DONKEY, EXAMPLES, ZEBRA
from .process import RunningServer, running_server

pytestmark = pytest.mark.slow

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


def command_line(source: Path, target: Path, points: list[list[float]], tmp_path: Path) -> np.ndarray:
    """What ``chmnet match`` finds for the same points."""
    file = tmp_path / "cli.json"
    text = " ".join(f"{x!r},{y!r}" for x, y in points)
    command = [sys.executable, "-m", "chmnet", "match", str(source), str(target), "--points", text]
    subprocess.run([*command, "--json", str(file), "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    return np.array([row["target"] for row in json.loads(file.read_text())["matches"]])


def test_upload_hover_pin_and_export(visit: Callable[..., Visit], tmp_path: Path) -> None:
    person = visit()
    person.upload(EXAMPLES / "european-bear.png", EXAMPLES / "black-bear.png")
    for spot in SPOTS:
        person.page.mouse.click(*person.at(spot))
    assert len(person.points()) == len(SPOTS)
    exported = person.download(lambda: person.page.click("[data-export=csv]")).decode()
    rows = list(csv.DictReader(io.StringIO(exported)))
    given = [[float(row["source_x"]), float(row["source_y"])] for row in rows]
    found = np.array([[float(row["target_x"]), float(row["target_y"])] for row in rows])
    expected = command_line(EXAMPLES / "european-bear.png", EXAMPLES / "black-bear.png", given, tmp_path)
    assert np.abs(found - expected).max() < 0.01
    coco = json.loads(person.download(lambda: person.page.click("[data-export=coco]")))
    keypoints = np.array(coco["annotations"][1]["keypoints"]).reshape(-1, 3)
    np.testing.assert_allclose(keypoints[:, :2], found, atol=0.002)
    assert coco["images"][0]["file_name"] == "european-bear.png"
    flow = np.load(io.BytesIO(person.download(lambda: person.page.click("[data-export=flow]"))))
    assert flow["flow"].shape == (*np.asarray(Image.open(EXAMPLES / "european-bear.png")).shape[:2], 2)
    drawing = Image.open(io.BytesIO(person.download(lambda: person.page.click("[data-export=png]"))))
    assert drawing.width > drawing.height
    assert person.errors == []
    assert person.hosts == {f"127.0.0.1:{person.page.url.split(':')[2].strip('/')}"}


def test_hover_takes_less_than_a_frame(visit: Callable[..., Visit]) -> None:
    person = visit()
    assert person.evaluate("chmnet.view.pair.sourceGrid") == [30, 30]
    person.page.mouse.move(*person.at((0.3, 0.3)))
    person.evaluate("chmnet.view.hoverTimes.length = 0")
    for step in range(200):
        person.page.mouse.move(*person.at((0.1 + 0.004 * step, 0.5 + 0.3 * np.sin(step / 20))))
    times = person.evaluate("chmnet.view.hoverTimes")
    assert len(times) > 100
    print(f"hover to highlighted match: median {statistics.median(times):.1f} ms of {len(times)}")  # noqa: T201
    assert statistics.median(times) < 16
    assert "% sure" in person.page.locator("#reading").inner_text()


def test_drag_corrects_and_undo_takes_it_back(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.page.mouse.click(*person.at((0.45, 0.4)))
    (before,) = person.points()
    x, y = person.evaluate(
        "chmnet.view.target.toCanvas(chmnet.view.points[0].target.x, chmnet.view.points[0].target.y)"
    )
    box = person.page.locator("#target canvas").bounding_box()
    person.page.mouse.move(box["x"] + x, box["y"] + y)
    person.page.mouse.down()
    person.page.mouse.move(box["x"] + x + 60, box["y"] + y - 30, steps=5)
    person.page.mouse.up()
    (after,) = person.points()
    scale = person.evaluate("chmnet.view.target.scale")
    assert after["corrected"]
    assert after["target"]["x"] == pytest.approx(before["target"]["x"] + 60 / scale, abs=2 / scale)
    assert after["target"]["y"] == pytest.approx(before["target"]["y"] - 30 / scale, abs=2 / scale)
    row = csv.DictReader(io.StringIO(person.download(lambda: person.page.click("[data-export=csv]")).decode()))
    assert next(iter(row))["corrected"] == "1"
    person.page.click("#points button:has-text('Undo')")
    assert person.points()[0]["target"] == before["target"]
    person.page.click("#points button:has-text('Remove')")
    assert person.points() == []


def canvas_mean(person: Visit) -> list[float]:
    return person.evaluate(
        """(() => { const c = chmnet.view.target; c.paintNow();
        const d = c.pen.getImageData(0, 0, c.canvas.width, c.canvas.height).data;
        let sum = 0, odd = 0; for (let i = 0; i < d.length; i += 4) { sum += d[i]; odd += d[i] * (i % 1000); }
        return [sum / d.length, odd / d.length]; })()"""
    )


def test_warp_slider_and_other_tabs(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.page.focus("#source canvas")
    person.page.keyboard.press("Escape")  # ends the demonstration
    target = canvas_mean(person)
    person.page.click("#tab-warp")
    time.sleep(3)
    seen = []
    for value in ("0", "1", "2"):
        person.evaluate(
            f"(() => {{ const s = document.getElementById('warp-slider'); s.value = {value};"
            "s.dispatchEvent(new Event('input')); })()"
        )
        person.evaluate("chmnet.view.moveProbe(null)")
        seen.append(canvas_mean(person))
    assert len({tuple(each) for each in seen}) == 3
    assert seen[2] == pytest.approx(target, abs=0.5)  # the last is the target itself
    person.page.click("#tab-matches")
    person.page.locator("#threshold").fill("0")
    assert person.page.locator("#match-count").inner_text() == "300 of 300"
    person.page.locator("#threshold").fill("1")
    assert int(person.page.locator("#match-count").inner_text().split()[0]) < 300
    person.page.click("#tab-scales")
    assert "positions only" in person.page.locator("#scales").inner_text()
    assert person.errors == []


def test_wrong_files_are_explained(visit: Callable[..., Visit], tmp_path: Path) -> None:
    person = visit()
    text = tmp_path / "letter.png"
    text.write_text("dear browser")
    person.page.set_input_files("#source input[type=file]", str(text))
    person.wait("!document.getElementById('notice').hidden")
    assert "letter.png cannot be shown" in person.notice()
    (tmp_path / "cut.png").write_bytes(DONKEY.read_bytes()[:9000])  # browsers show what there is of it
    person.page.set_input_files("#source input[type=file]", str(tmp_path / "cut.png"))
    person.wait("document.getElementById('notice').innerText.match(/cut|read|shown/)")
    person.upload(DONKEY, ZEBRA)
    person.page.mouse.click(*person.at((0.5, 0.5)))
    assert len(person.points()) == 1


def test_two_pictures_of_50_megapixels(visit: Callable[..., Visit], tmp_path: Path) -> None:
    paths = []
    for name in ("donkey", "zebra"):
        path = tmp_path / f"{name}.jpg"
        Image.open(EXAMPLES / f"{name}.png").convert("RGB").resize((8700, 5800)).save(path, quality=80)
        paths.append(path)
    person = visit()
    begun = time.monotonic()
    person.upload(*paths)
    print(f"two pictures of 50 megapixels: {time.monotonic() - begun:.1f} s")  # noqa: T201
    person.page.mouse.click(*person.at((0.5, 0.5)))
    (point,) = person.points()
    expected = command_line(*paths, [[point["source"]["x"], point["source"]["y"]]], tmp_path)
    found = [point["target"]["x"], point["target"]["y"]]
    assert np.abs(np.array(found) - expected[0]).max() < 0.01
    assert person.errors == []


def test_a_server_that_restarts(browser: Any) -> None:
    with running_server() as first:
        port = first.port
        person = Visit(browser, first)
        person.upload(EXAMPLES / "sedan.png", EXAMPLES / "sportscar.png")
    person.page.mouse.move(*person.at((0.5, 0.5)))  # works without a server
    assert "% sure" in person.page.locator("#reading").inner_text()
    person.page.click("#swap")
    person.wait("!document.getElementById('notice').hidden")
    assert "server does not answer" in person.notice()
    with running_server(port=port):
        person.page.click("#swap")  # the new server has never seen these pictures
        person.wait("chmnet.view.pair")
        person.page.mouse.click(*person.at((0.5, 0.5)))
        assert len(person.points()) == 1
        person.close()


def test_phone(visit: Callable[..., Visit]) -> None:
    person = visit(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, device_scale_factor=2)
    assert person.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    person.page.locator("#source canvas").scroll_into_view_if_needed()
    person.page.touchscreen.tap(*person.at((0.5, 0.5)))
    person.wait("chmnet.view.points.length === 1")
    person.page.click("#view-annotate")
    assert person.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert person.errors == []


def test_keyboard_alone(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.page.focus("#source canvas")
    for key in ["Escape", "ArrowRight", "ArrowRight", "Shift+ArrowUp", "Enter"]:
        person.page.keyboard.press(key)
    (point,) = person.points()
    size = person.evaluate("[chmnet.view.pictures.source.width, chmnet.view.pictures.source.height]")
    assert point["source"]["x"] == pytest.approx(size[0] / 2 + 4 * max(size) / 200)
    assert point["source"]["y"] == pytest.approx(size[1] / 2 - 10 * max(size) / 200)
    person.page.focus("#points tbody tr")
    person.page.keyboard.press("ArrowLeft")
    assert person.points()[0]["target"]["x"] == pytest.approx(point["target"]["x"] - 1)
    person.page.keyboard.press("Delete")
    assert person.points() == []
    person.page.focus("#tab-points")
    person.page.keyboard.press("ArrowRight")
    assert person.page.locator("#panel-warp").is_visible()
    assert person.errors == []


def test_every_control_has_a_name_and_motion_can_be_off(visit: Callable[..., Visit]) -> None:
    person = visit(reduced_motion="reduce")
    nameless = person.evaluate(
        """[...document.querySelectorAll('button, select, input:not([hidden]), canvas[tabindex]')]
        .filter((each) => !(each.innerText?.trim() || each.getAttribute('aria-label') || each.labels?.length))
        .map((each) => each.outerHTML)"""
    )
    assert nameless == []
    before = person.evaluate("chmnet.view.probe")
    time.sleep(1)
    assert person.evaluate("chmnet.view.probe") == before


def test_annotate_a_folder(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.page.click("#view-annotate")
    files = [str(EXAMPLES / name) for name in ("donkey.png", "zebra.png", "black-bear.png", "sedan.png")]
    person.page.set_input_files("[data-part=files-input]", files)
    person.wait("chmnet.annotate.items.length === 4")
    person.page.click(".thumb:has-text('donkey')")
    for spot in SPOTS:
        person.page.mouse.click(*person.at(spot, "[data-part=canvas]"))
    person.page.locator(".names input").first.fill("nose")
    person.page.click("[data-part=propagate]")
    person.wait("!chmnet.annotate.working && chmnet.annotate.items.every((item) => item.points.length)")
    sure = person.evaluate(
        "chmnet.annotate.order().slice(1).map((item) => Math.min(...item.points.map((point) => point.confidence)))"
    )
    assert sure == sorted(sure)  # the doubtful ones come first
    x, y = person.evaluate("(({x, y}) => chmnet.annotate.stage.toCanvas(x, y))(chmnet.annotate.current.points[0])")
    box = person.page.locator("[data-part=canvas]").bounding_box()
    person.page.mouse.move(box["x"] + x, box["y"] + y)
    person.page.mouse.down()
    person.page.mouse.move(box["x"] + x + 20, box["y"] + y + 20, steps=4)
    person.page.mouse.up()
    person.page.click("[data-part=right]")
    coco = json.loads(person.download(lambda: person.page.click("[data-part=export]")))
    assert coco["categories"][0]["keypoints"][0] == "nose"
    assert len(coco["images"]) == len(coco["annotations"]) == 4
    assert (
        sum(any(each["corrected"]) for each in coco["annotations"]) == 2
    )  # the labelled one and the corrected one
    assert person.errors == []


SCREENSHOTS = {
    "page-light": {},
    "page-dark": {"color_scheme": "dark"},
    "page-phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}


@pytest.mark.parametrize("name", list(SCREENSHOTS))
def test_screenshots(visit: Callable[..., Visit], tmp_path: Path, name: str) -> None:
    """For the README: set CHMNET_SCREENSHOTS to the folder to keep them in."""
    folder = Path(os.environ.get("CHMNET_SCREENSHOTS", tmp_path))
    person = visit(**{"viewport": {"width": 1240, "height": 820}, **SCREENSHOTS[name]})
    for spot in SPOTS:
        person.page.mouse.click(*person.at(spot))
    person.page.mouse.move(*person.at((0.55, 0.5)))
    person.page.screenshot(path=folder / f"{name}.png")
    assert (folder / f"{name}.png").stat().st_size < 400_000
    assert person.errors == []
