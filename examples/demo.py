"""What chmnet finds in the example pictures, as drawings and a page that shows them all.

    python examples/demo.py [FOLDER]

Files of an earlier run are replaced. The functions below are meant to be read: they are most of what there is.
"""

import html
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from chmnet import Matcher, MatchResult
from chmnet.data.examples import PAIRS
from chmnet.viz import (
    draw_confidence,
    draw_heat,
    draw_kernels,
    draw_matches,
    draw_top_matches,
    draw_warp,
    morph_frames,
)

EXAMPLES = Path(__file__).resolve().parent


class Drawing(NamedTuple):
    """A file of the demo and what it shows."""

    file: str
    title: str
    words: str


def draw_pairs(results: list[MatchResult], folder: Path) -> list[Drawing]:
    """Where the chosen points of each pair were found."""
    drawings = []
    for pair, result in zip(PAIRS, results, strict=True):
        found = result.transfer(pair.points)
        ends = [Path(name).stem for name in (pair.source, pair.target)]
        name = "-".join(ends)
        picture = draw_matches(*pictures(result), found.source, found.target, confidence=found.confidence)
        picture.save(folder / f"matches-{name}.png")
        drawings.append(Drawing(f"matches-{name}.png", " → ".join(ends), pair.words))
    return drawings


def draw_result(result: MatchResult, point: np.ndarray, folder: Path) -> list[Drawing]:
    """One result, looked at in every way there is."""
    source, target = pictures(result)
    best = result.matches(top=300)
    draw_top_matches(source, target, best.source, best.target).save(folder / "top-300.png")
    draw_confidence(source, result.confidence).save(folder / "confidence.png")
    found = result.transfer(point).target[0]
    draw_heat(source, target, point, result.heat(point), found).save(folder / "heat.png")
    warped = result.warp()
    draw_warp(source, warped, target).save(folder / "warp.png")
    first, *others = morph_frames(target, warped)
    first.save(folder / "morph.gif", save_all=True, append_images=others, duration=90, loop=0)
    return [
        Drawing(
            "top-300.png",
            "The 300 most confident matches",
            "Coloured by where they lie on the left: the colours on the right run the same way.",
        ),
        Drawing("confidence.png", "Confidence", "How far the match of each part of the source can be trusted."),
        Drawing(
            "heat.png",
            "One point",
            "Where the point marked on the left may lie on the right, and where it was found (ring).",
        ),
        Drawing("warp.png", "Warp", "The source in the shape of the target. Its background goes along."),
        Drawing("morph.gif", "Morph", "The target turns into the warped source and back."),
    ]


def draw_layers(matcher: Matcher, folder: Path) -> list[Drawing]:
    """What the model's two Hough layers learned."""
    head = matcher.model.head
    votes = {"first vote, 15 × 15 cells": head.first, "last vote, 30 × 30 cells": head.last}
    kernels = [(title, vote.kernel()[0, 0].numpy()) for title, vote in votes.items()]
    draw_kernels(kernels).save(folder / "kernels.png")
    return [Drawing("kernels.png", "The learned kernels", "Which neighbours vote for a match, and how strongly.")]


def pictures(result: MatchResult) -> tuple[Image.Image, Image.Image]:
    """The two pictures of a result, as they were matched."""
    assert result.source_picture is not None
    assert result.target_picture is not None
    return result.source_picture, result.target_picture


def write_page(sections: dict[str, list[Drawing]], path: Path) -> None:
    """An HTML page with all drawings."""
    lines = ["<!doctype html><html lang=en><meta charset=utf-8><title>chmnet: demo</title>", STYLE]
    lines.append("<h1>What chmnet finds in the example pictures</h1>")
    for heading, drawings in sections.items():
        lines.append(f"<h2>{html.escape(heading)}</h2><div>")
        for drawing in drawings:
            title, words = html.escape(drawing.title), html.escape(drawing.words)
            image = f'<a href="{drawing.file}"><img src="{drawing.file}" alt="{title}"></a>'
            lines.append(f"<figure>{image}<figcaption><b>{title}</b><br>{words}</figcaption></figure>")
        lines.append("</div>")
    path.write_text("\n".join([*lines, "</html>\n"]), encoding="utf-8")


STYLE = """<style>
body { font: 16px/1.4 sans-serif; margin: 2em auto; max-width: 1300px; padding: 0 1em; color: #222 }
div { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); gap: 1.5em }
figure { margin: 0 } img { min-width: 300px; max-width: 100%; height: auto }
</style>"""


def main(folder: Path) -> None:
    """Match all pairs, draw them, and write the page."""
    folder.mkdir(parents=True, exist_ok=True)
    matcher = Matcher()  # chmnet-lite: comes with the package
    results = list(matcher.match_many((EXAMPLES / pair.source, EXAMPLES / pair.target) for pair in PAIRS))
    sections = {
        "Numbered points, chosen on the left and found on the right": draw_pairs(results, folder),
        "One pair in every way": draw_result(results[0], np.array(PAIRS[0].points[0]), folder),
        "Inside the model": draw_layers(matcher, folder),
    }
    write_page(sections, folder / "index.html")
    print(f"Open {folder / 'index.html'} in a browser, or look at the pictures beside it.")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
