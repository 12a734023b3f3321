"""How the thing is looked for on the page: poses, and boxes drawn by pointer and by keys."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from chmnet.matcher import Matcher
from chmnet.pictures import to_picture

from ..conftest import DONKEY, ZEBRA
from .conftest import Visit

pytestmark = pytest.mark.slow


def matched(person: Visit) -> None:
    person.wait("chmnet.view.pair && document.querySelector('.busy').hidden")


def drag(person: Visit, canvas: str, first: tuple[float, float], last: tuple[float, float]) -> None:
    """Draw with the pointer from one place of the picture to another, as shares of it."""
    places = person.evaluate(
        f"(() => {{ const s = chmnet.view.{canvas}, b = s.canvas.getBoundingClientRect();"
        f"return {[list(first), list(last)]}.map(([x, y]) => {{"
        "const [u, v] = s.toCanvas(x * s.picture.width, y * s.picture.height);"
        "return [b.left + u, b.top + v]; }); })()"
    )
    person.page.mouse.move(*places[0])
    person.page.mouse.down()
    person.page.mouse.move(*places[1], steps=5)
    person.page.mouse.up()


def test_the_page_says_which_pose_won(visit: Callable[..., Visit], tmp_path: Path) -> None:
    person = visit()
    ImageOps.mirror(to_picture(ZEBRA)).save(tmp_path / "mirrored.png")
    person.upload(DONKEY, tmp_path / "mirrored.png")
    words = person.page.locator("#pose")
    person.wait("document.getElementById('pose').innerText.includes('mirrored before matching')")
    expected = Matcher().match(DONKEY, tmp_path / "mirrored.png")
    assert words.inner_text() == f"The target was mirrored before matching, {expected.pose_probability:.0%} sure."
    for point in ([85.0, 44.0], [178.0, 38.0]):
        found = person.evaluate(f"chmnet.view.pair.transfer({point[0]}, {point[1]})")
        np.testing.assert_allclose([[found["x"], found["y"]]], expected.locate(point), atol=1)
    person.page.mouse.move(*person.at((0.4, 0.4)))  # the heat map of a mirrored target
    person.page.select_option("#poses", "upright")
    person.wait("chmnet.view.pair.pose.probability === null")
    assert words.inner_text() == ""
    person.page.select_option("#poses", "any")
    person.wait("chmnet.view.pair.pose.probability !== null")
    assert "sure" in words.inner_text()
    assert person.errors == []


def test_the_place_that_was_found_is_matched(visit: Callable[..., Visit], tmp_path: Path) -> None:
    person = visit()
    wide = Image.new("RGB", (700, 500), "white")
    wide.paste(to_picture(ZEBRA), (420, 250))
    wide.save(tmp_path / "wide.png")
    person.upload(DONKEY, tmp_path / "wide.png")
    person.page.select_option("#place", "found")
    person.wait("chmnet.view.pair.targetView.part !== null")
    expected = Matcher(place="found").match(DONKEY, tmp_path / "wide.png")
    assert person.evaluate("chmnet.view.pair.targetView.part") == list(expected.target.area or ())
    found = person.evaluate("chmnet.view.pair.transfer(85, 44)")
    np.testing.assert_allclose([[found["x"], found["y"]]], expected.locate([85, 44]), atol=2)
    person.page.select_option("#place", "whole")
    person.wait("chmnet.view.pair.targetView.part === null")
    assert person.errors == []


def test_a_box_is_drawn_kept_exchanged_and_cleared(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.page.click("#target .box")
    drag(person, "target", (0.25, 0.3), (0.75, 0.9))
    person.wait("chmnet.view.pair.targetView.area[0] > 0")
    box = person.evaluate("chmnet.view.search.boxes.target.box")
    expected = Matcher().match(DONKEY, ZEBRA, boxes=(None, tuple(map(float, box))))
    assert person.evaluate("chmnet.view.pair.targetView.area") == list(expected.target.area or ())
    found = person.evaluate("chmnet.view.pair.transfer(85, 44)")
    np.testing.assert_allclose([[found["x"], found["y"]]], expected.locate([85, 44]), atol=1)
    assert person.page.locator("#target .box").inner_text() == "Clear box"
    person.page.click("#source canvas")
    assert len(person.points()) == 1  # clicks are points again
    person.page.click("#swap")
    person.wait("chmnet.view.pair && chmnet.view.pair.sourceView.area[0] > 0")
    assert person.evaluate("chmnet.view.search.boxes.source.box") == box
    assert person.evaluate("chmnet.view.search.boxes.target.box") is None
    person.page.click("#source .box")
    person.wait("chmnet.view.pair.sourceView.area[0] === 0")
    assert person.page.locator("#source .box").inner_text() == "Box"
    assert person.errors == []


def test_a_box_is_drawn_with_keys_and_a_click_draws_none(visit: Callable[..., Visit]) -> None:
    person = visit()
    person.page.click("#source .box")
    drag(person, "source", (0.5, 0.5), (0.5, 0.5))
    assert person.evaluate("chmnet.view.search.boxes.source.box") is None
    assert person.evaluate("chmnet.view.search.boxes.source.active")
    person.page.keyboard.press("Escape")
    assert not person.evaluate("chmnet.view.search.boxes.source.active")
    assert person.points() == []
    person.page.click("#source .box")
    person.page.keyboard.press("Enter")
    for _ in range(3):
        person.page.keyboard.press("Shift+ArrowLeft")
        person.page.keyboard.press("Shift+ArrowUp")
    person.page.keyboard.press("Enter")
    person.wait("chmnet.view.search.boxes.source.box !== null")
    person.wait("chmnet.view.pair.sourceView.area[2] < chmnet.view.pictures.source.width")
    matched(person)
    assert person.errors == []
