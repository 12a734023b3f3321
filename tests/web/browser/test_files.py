"""Pictures that come and go: paste, drop, wrong ones, huge ones, and a server that restarts."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ..conftest import DONKEY, EXAMPLES, ZEBRA
from ..process import running_server
from .conftest import Visit
from .test_pair import command_line

pytestmark = pytest.mark.slow


def drag_data(person: Visit, name: str) -> Any:
    """What a drag or the clipboard carries: one of the example files."""
    return person.page.evaluate_handle(
        """async (name) => {
            const { pictures } = await (await fetch("/api/examples")).json();
            const blob = await (await fetch(pictures.find((each) => each.title === name).url)).blob();
            const data = new DataTransfer();
            data.items.add(new File([blob], `${name}.png`, { type: "image/png" }));
            return data;
        }""",
        name,
    )


def test_paste_and_drop(visit: Callable[..., Visit]) -> None:
    person = visit()
    matched = "chmnet.view.pair && document.querySelector('.busy').hidden"
    for side, name in (("source", "sedan"), ("target", "sportscar")):  # paste fills one after the other
        person.page.evaluate(
            "(data) => document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }))",
            drag_data(person, name),
        )
        person.wait(f"chmnet.view.pictures.{side}?.name === '{name}.png'")
    person.wait(matched)
    person.page.mouse.click(*person.at((0.5, 0.5)))
    assert len(person.points()) == 1
    carried = drag_data(person, "zebra")
    person.page.dispatch_event("#target", "dragover", {"dataTransfer": carried})
    assert person.evaluate("document.getElementById('target').classList.contains('over')")
    person.page.dispatch_event("#target", "drop", {"dataTransfer": carried})
    person.wait("chmnet.view.pictures.target.name === 'zebra.png'")
    assert not person.evaluate("document.getElementById('target').classList.contains('over')")
    person.wait(matched)
    person.page.dispatch_event("footer", "drop", {"dataTransfer": drag_data(person, "donkey")})  # beside both
    person.wait("chmnet.view.pictures.source.name === 'donkey.png'")
    person.wait(matched)
    person.page.click("#view-annotate")
    person.page.dispatch_event("#annotate-view", "drop", {"dataTransfer": drag_data(person, "zebra")})
    person.wait("chmnet.annotate.items.length === 1")
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
    assert re.search(r"confidence \d+ %", person.page.locator("#reading").inner_text())
    person.page.click("#swap")
    person.wait("!document.getElementById('notice').hidden")
    assert "server does not respond" in person.notice()
    with running_server(port=port):
        person.page.click("#swap")  # the new server has never seen these pictures
        person.wait("chmnet.view.pair")
        person.page.mouse.click(*person.at((0.5, 0.5)))
        assert len(person.points()) == 1
        person.close()
