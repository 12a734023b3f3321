"""Tables of strangers' texts: Markdown shows them as they are."""

import re

import pytest

from chmnet.evaluation.report import Table


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
