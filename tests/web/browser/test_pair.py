"""Two pictures on the page: hover, pin, drag, tabs, exports."""

import csv
import io
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chmnet

from ..conftest import DONKEY, EXAMPLES, ZEBRA
from .conftest import SPOTS, Visit

pytestmark = pytest.mark.slow


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
    assert re.search(r"confidence \d+ %", person.page.locator("#reading").inner_text())


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
    person.page.locator("#things").select_option("3")
    person.wait("document.getElementById('things-found').textContent === '1 thing found'")
    person.page.locator("#things").select_option("0")
    person.wait("document.getElementById('things-found').textContent === ''")
    person.page.click("#tab-scales")
    assert "positions only" in person.page.locator("#scales").inner_text()
    assert person.errors == []


def test_heat_on_the_page_is_that_of_the_library(visit: Callable[..., Visit]) -> None:
    person = visit()
    result = chmnet.match(DONKEY, ZEBRA)
    for point in ([85.0, 44.0], [178.0, 38.0]):
        heat = np.array(person.evaluate(f"Array.from(chmnet.view.pair.heat({point[0]}, {point[1]}))"))
        expected = result.heat(point)
        assert abs(heat.sum() - 1) < 1e-9
        assert np.abs(heat.reshape(expected.shape) - expected).max() < 0.03 * expected.max() + 1e-4


def test_scales_and_kernels(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.page.select_option("#model", "hough-prior-6d")
    person.wait("chmnet.view.pair?.model === 'hough-prior-6d'")
    person.page.click("#tab-scales")
    person.wait("document.querySelectorAll('#scales .legend li').length > 1")
    sizes = person.evaluate("[...document.querySelectorAll('#scales .legend i')].map((each) => each.clientWidth)")
    assert sizes == sorted(set(sizes))  # the larger the scale, the larger the ring
    person.page.click("#tab-kernel")
    person.wait("document.querySelector('#kernel img')?.naturalWidth > 900")
    person.page.select_option("#model", "nearest-neighbour")
    person.wait("document.getElementById('kernel').innerText.includes('no votes')")
    assert person.errors == []
