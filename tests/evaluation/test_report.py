"""Names from other people's files are shown as they are, in Markdown and in HTML."""

import re
from html.parser import HTMLParser

import pytest

from chmnet.evaluation.report import Illustration, Table, _as_html


def cells(line: str) -> list[str]:
    """Cells of a row as Markdown splits them, with its escapes taken back."""
    parts = re.split(r"(?<!\\)(?:\\\\)*\|", line)
    assert parts[0] == parts[-1] == ""
    plain = (re.sub(r"\\([\\`*_{}\[\]()#!|~$])", r"\1", part.strip()) for part in parts[1:-1])
    return [part.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for part in plain]


HOSTILE = [
    "a|b",
    "\\",
    "\\|",
    "`code` and **bold** and _so on_",
    "[link](https://example.org)",
    "![picture](https://example.org/a.png)",
    "<script>alert(1)</script>",
    "&lt;b&gt; & <b>",
    "# heading",
    "{braces}",
    "~~struck out~~ and $x^2$",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_in_its_cell(text: str) -> None:
    heading, rule, row = Table([text, "PCK"], [[text, "50.0"]]).markdown().splitlines()
    assert cells(heading) == [text, "PCK"]
    assert rule == "| --- | --- |"
    assert cells(row) == [text, "50.0"]
    assert "<" not in heading
    for mark in "`*_[]()#!~$":
        assert not re.search(rf"(?<!\\){re.escape(mark)}", heading)


@pytest.mark.parametrize(
    "text", ["two\nlines", "two\r\nlines", "two\u2028lines", " two\t lines  ", "two\x0blines"]
)
def test_text_of_several_lines_is_one_row(text: str) -> None:
    lines = Table(["name"], [[text]]).markdown().splitlines()
    assert len(lines) == 3
    assert lines[2] == "| two lines |"


def test_rows_below_headings() -> None:
    table = Table(["a", "b", "c"], [["1", "2", "3"], ["4 ± 1", "–", "α"]])
    assert table.markdown() == "| a | b | c |\n| --- | --- | --- |\n| 1 | 2 | 3 |\n| 4 ± 1 | – | α |"
    assert Table(["alone"], []).markdown() == "| alone |\n| --- |"


class Reader(HTMLParser):
    """Tags and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("text", [*HOSTILE, '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "'"])
def test_hostile_text_stays_text_in_html(text: str) -> None:
    blocks = [text, Table([text], [[text]]), Illustration(b"data", "png", text)]
    page = _as_html(text, [(text, blocks)])
    reader = Reader()
    reader.feed(page)
    expected = ["html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "th", "tr", "td"]
    assert reader.tags == [*expected, "figure", "img", "figcaption"]
    assert reader.texts.count(text) == 7
    assert reader.attributes[-2:] == [("alt", text), ("src", "data:image/png;base64,ZGF0YQ==")]
