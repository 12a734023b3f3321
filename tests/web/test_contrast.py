"""Whether text can be read: WCAG AA, measured from the colours of the style sheet and of the points."""

import re

import pytest

from tests.conftest import REPOSITORY

STATIC = REPOSITORY / "src" / "chmnet" / "web" / "static"

PAIRS = [
    ("text", "ground"),
    ("text", "surface"),
    ("text", "accent-soft"),
    ("soft", "ground"),
    ("soft", "surface"),
    ("accent", "ground"),
    ("accent", "surface"),
    ("accent-text", "accent"),
    ("warn", "warn-soft"),
]
"""Colours of text, and what the page shows them on."""


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(part * value for part, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def schemes() -> dict[str, dict[str, str]]:
    """The variables of the light and the dark page."""
    light, dark = re.findall(r":root \{(.*?)\}", (STATIC / "style.css").read_text("utf-8"), flags=re.DOTALL)
    colours = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part)) for part in (light, dark)]
    return {"light": colours[0], "dark": colours[1]}


def test_control_contrast_of_known_colours() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the famous one that just fails


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_stands_out(scheme: str, text: str, ground: str) -> None:
    colours = schemes()[scheme]
    assert contrast(colours[text], colours[ground]) >= 4.5


def test_numbers_stand_out_on_the_colours_of_points() -> None:
    """The page writes in black or white, black where the luminance is above 0.179."""
    script = (STATIC / "stage.js").read_text("utf-8")
    assert "> 0.179" in script
    colours = re.findall(r'"(#[0-9A-Fa-f]{6})"', re.search(r"COLOURS = \[(.*?)\]", script).group(1))  # type: ignore[union-attr]
    assert len(colours) == 8
    for colour in colours:
        assert contrast(colour, "#000000" if luminance(colour) > 0.179 else "#ffffff") >= 4.5
