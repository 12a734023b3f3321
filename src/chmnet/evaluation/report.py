"""One page about an evaluation: self-contained HTML, or Markdown."""

import base64
import html
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from chmnet.data.pairs import Pair
from chmnet.evaluation.predictions import PredictionFile
from chmnet.metrics import Protocol, alpha_key, curve, per_pair
from chmnet.outputs import atomic_path
from chmnet.pictures import to_picture
from chmnet.viz import draw_errors, plot_pck, plot_precision_recall

PAIRS_SHOWN = 3
CURVE_ALPHAS = [step / 100 for step in range(1, 21)]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .2rem .8rem; text-align: right; }
td:first-child, th:first-child { text-align: left; } tr:nth-child(even) { background: #f3f3f3; }
figure { margin: 1rem 0; } img { max-width: 100%; } figcaption { color: #555; }
"""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title><style>{{ style }}</style></head><body>
<h1>{{ title }}</h1>
{% for heading, blocks in sections %}
<h2>{{ heading }}</h2>
{% for block in blocks %}
{% if block.address %}
<figure>
<img alt="{{ block.caption }}" src="{{ block.address }}">
<figcaption>{{ block.caption }}</figcaption>
</figure>
{% elif block.headings %}
<table>
<tr>{% for cell in block.headings %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in block.rows %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</table>
{% else %}
<p>{{ block }}</p>
{% endif %}
{% endfor %}
{% endfor %}
</body></html>
"""


@dataclass(frozen=True)
class Table:
    """Headings and rows of text."""

    headings: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """The table in Markdown; special characters in its texts are escaped.

        Example:
            >>> print(Table(["class", "PCK"], [["cat", "50.0"]]).markdown())
            | class | PCK |
            | --- | --- |
            | cat | 50.0 |
        """
        lines = ["| " + " | ".join(map(_plain, row)) + " |" for row in (self.headings, *self.rows)]
        return "\n".join([lines[0], "|" + " --- |" * len(self.headings), *lines[1:]])


@dataclass(frozen=True)
class Illustration:
    """An encoded picture and what it shows."""

    data: bytes
    kind: str
    caption: str

    @property
    def address(self) -> str:
        """The whole picture as an address."""
        return f"data:image/{self.kind};base64,{base64.b64encode(self.data).decode('ascii')}"


Block = str | Table | Illustration
Section = tuple[str, list[Block]]


def write_report(
    path: Path,
    result: dict[str, Any],
    pairs: list[Pair],
    file: PredictionFile,
    protocol: Protocol,
    overwrite: bool = False,
) -> None:
    """Write a report, as HTML or Markdown by the ending of ``path``; both carry their pictures inside.

    Args:
        path: ``.html`` or ``.md``.
        result: from :func:`chmnet.evaluation.evaluate`, given ``pairs``, ``file`` and ``protocol``.
        overwrite: whether an existing file may be replaced.
    """
    title = f"{result['model']['name']} on {result['dataset']} ({result['split']})"
    sections = list(_sections(result, pairs, file, protocol))
    text = _as_markdown(title, sections) if path.suffix.lower() == ".md" else _as_html(title, sections)
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _sections(
    result: dict[str, Any], pairs: list[Pair], file: PredictionFile, protocol: Protocol
) -> Iterator[Section]:
    alphas = [f"PCK@{alpha}" for alpha in result["pck"]]
    rows = [[name, *_numbers(values)] for name, values in result["per_class"].items()]
    rows.append(["all", *_numbers(result["pck"])])
    left_out = " Pairs of the training list are left out." if result.get("deduplicated") else ""
    counts = f"{result['pairs']} pairs, {result['keypoints']} keypoints.{left_out}"
    yield "Result", [result["protocol"]["description"] + ".", counts, Table(["class", *alphas], rows)]
    points = curve(pairs, file.predictions.values(), protocol, CURVE_ALPHAS)
    figure = plot_pck({result["model"]["name"]: points})
    yield "PCK over the tolerance", [_plot(figure, "Share of keypoints within α times the protocol's length.")]
    if "difficulty" in result:
        rows = [
            [f"{flag} {level}", str(entry["pairs"]), *_numbers(entry["pck"])]
            for flag, levels in result["difficulty"].items()
            for level, entry in levels.items()
        ]
        yield "Difficulty", [Table(["annotated as", "pairs", *alphas], rows)]
    if "clutter" in result:
        clutter = result["clutter"]
        line = list(zip(clutter["recall"], clutter["precision"], strict=True))
        figure = plot_precision_recall({result["model"]["name"]: line})
        caption = f"Area under the curve: {clutter['area']:.3f}. Candidates: {clutter['description']}."
        yield "Robustness to clutter", [_plot(figure, caption)]
    yield from _example_sections(pairs, file, protocol)
    model = result["model"]
    facts = [["parameters", str(model["parameters"])], ["weights (SHA-256)", model["weights_sha256"][:16] + "…"]]
    facts += [[key, str(value)] for key, value in model["config"].items()]
    yield "Model", [Table(["setting", "value"], facts)]


def _example_sections(pairs: list[Pair], file: PredictionFile, protocol: Protocol) -> Iterator[Section]:
    """Best, median and worst pairs, by the largest α and then by the smaller ones."""
    by_name = {pair.name: pair for pair in pairs}
    scores = per_pair(pairs, file.predictions.values(), protocol)
    largest_first = sorted(protocol.alphas, reverse=True)
    order = sorted(scores, key=lambda name: [scores[name][alpha] for alpha in largest_first])
    middle = max(0, len(order) // 2 - PAIRS_SHOWN // 2)
    chosen = {
        "Best pairs": order[::-1][:PAIRS_SHOWN],
        "Median pairs": order[middle : middle + PAIRS_SHOWN],
        "Worst pairs": order[:PAIRS_SHOWN],
    }
    for title, names in chosen.items():
        blocks: list[Block] = ["Circles are the truth, crosses the predictions; a line joins the two."]
        for name in names:
            pair, found = by_name[name], file.predictions[name].points
            source, target = to_picture(pair.source.path), to_picture(pair.target.path)
            drawing = draw_errors(source, target, pair.source.keypoints, found, pair.target.keypoints)
            figures = ", ".join(f"{value:.0f} % at {alpha_key(alpha)}" for alpha, value in scores[name].items())
            blocks.append(Illustration(_encoded(drawing), "jpeg", f"{pair.category}, {name}: {figures}"))
        yield title, blocks


def _numbers(values: dict[str, float]) -> list[str]:
    return [f"{value:.1f}" for value in values.values()]


def _plot(figure: Figure, caption: str) -> Illustration:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return Illustration(buffer.getvalue(), "png", caption)


def _encoded(drawing: Image.Image) -> bytes:
    buffer = io.BytesIO()
    drawing.save(buffer, format="JPEG", quality=85)
    return buffer.getvalue()


def _as_html(title: str, sections: list[Section]) -> str:
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_PAGE)
    return page.render(title=title, sections=sections, style=Markup(_STYLE))


def _plain(text: str) -> str:
    """Text that Markdown shows as it is: category and pair names come from other people's files."""
    return re.sub(r"([\\`*_{}\[\]()#!|~$])", r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _as_markdown(title: str, sections: list[Section]) -> str:
    parts = [f"# {_plain(title)}"]
    for heading, blocks in sections:
        parts.append(f"## {_plain(heading)}")
        for block in blocks:
            if isinstance(block, Illustration):
                parts.append(f"![{_plain(block.caption)}]({block.address})\n\n{_plain(block.caption)}")
            elif isinstance(block, Table):
                parts.append(block.markdown())
            else:
                parts.append(_plain(block))
    return "\n\n".join(parts) + "\n"
