"""For everybody: phones, keyboards, eyes; and the screenshots."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import EXAMPLES
from .conftest import SPOTS, Visit

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(visit: Callable[..., Visit], scheme: str) -> None:
    """WCAG AA: 4.5 to 1, or 3 to 1 for large text, for all text of both views as the browser draws it."""
    person = visit(color_scheme=scheme)
    person.page.mouse.click(*person.at((0.5, 0.5)))
    person.evaluate("document.getElementById('notice').hidden = false")
    seen = {}
    for view in ("#view-annotate", "#view-pair"):
        person.page.click(view)
        seen.update(person.evaluate(CONTRASTS))
    assert len(seen) > 25
    assert {text: ratio for text, ratio in seen.items() if ratio < 1} == {}


CONTRASTS = """(() => {
    const channels = (text) => text.match(/[0-9.]+/g).map(Number);
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = ([r, g, b]) => [r, g, b].map((v) => linear(v / 255))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const found = {};
    for (const each of document.querySelectorAll('body *')) {
        const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!own || !each.checkVisibility() || each.disabled || each.closest('.hidden-text, .skip')) continue;
        let behind = each, colour;
        do { colour = channels(getComputedStyle(behind).backgroundColor); behind = behind.parentElement; }
        while (behind && colour.length === 4 && colour[3] === 0);
        const style = getComputedStyle(each), [a, b] = [light(channels(style.color)), light(colour)];
        const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const name = `${each.tagName} ${each.innerText.slice(0, 30)} ${style.color} on ${colour}`;
        found[name] = ratio / (large ? 3 : 4.5);
    }
    return found;
})()"""


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


def test_screenshot_of_annotating(visit: Callable[..., Visit], tmp_path: Path) -> None:
    folder = Path(os.environ.get("CHMNET_SCREENSHOTS", tmp_path))
    person = visit(viewport={"width": 1000, "height": 640})
    person.page.click("#view-annotate")
    names = ("black-bear.png", "donkey.png", "european-bear.png", "zebra.png")
    person.page.set_input_files("[data-part=files-input]", [str(EXAMPLES / name) for name in names])
    person.wait("chmnet.annotate.items.length === 4")
    person.page.click(".thumb:has-text('donkey')")
    person.evaluate("chmnet.annotate.stage.paintNow()")  # its place is known once it is drawn
    parts = {"nose": (7, 72), "withers": (85, 44), "croup": (178, 38), "forefoot": (70, 157), "belly": (110, 80)}
    for number, (name, (x, y)) in enumerate(parts.items()):
        left, top = person.evaluate(f"chmnet.annotate.stage.toCanvas({x}, {y})")
        person.page.locator("[data-part=canvas]").click(position={"x": left, "y": top})
        person.page.locator(".names input").nth(number).fill(name)
    person.page.click("[data-part=propagate]")
    person.wait("!chmnet.annotate.working && chmnet.annotate.items.every((item) => item.points.length)")
    person.page.click(".thumb:has-text('zebra')")
    person.page.screenshot(path=folder / "page-annotate.png")
    assert (folder / "page-annotate.png").stat().st_size < 400_000
    assert person.errors == []
