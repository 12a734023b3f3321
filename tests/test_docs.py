"""The documentation is true: its code runs, its commands parse, its links lead somewhere, its reference is new."""

import itertools
import json
import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest
import typer
from PIL import Image

import chmnet.viz
from chmnet.cli.main import app
from chmnet.errors import InputError
from chmnet.experiments import MODULES
from chmnet.experiments.runner import find_experiment, tables_of
from tools.cli_reference import reference
from tools.results_page import copy_pictures, fill_tables

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *ROOT.glob("docs/*.md")]
RUN = ["README.md", "docs/quickstart.md", "docs/python.md"]
"""Pages whose Python code runs from top to bottom."""


def blocks(page: Path, language: str) -> Iterator[tuple[int, str]]:
    """The code blocks of a page, and the line that each begins in."""
    for found in re.finditer(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        yield page.read_text(encoding="utf-8")[: found.start(1)].count("\n") + 1, found[1]


def command_lines() -> list[tuple[str, str]]:
    lines = []
    for page in PAGES:
        for start, block in blocks(page, "sh"):
            for number, line in enumerate(block.replace("\\\n", " ").splitlines()):
                if line.startswith("chmnet "):
                    lines.append((f"{page.name}:{start + number}", line))
    return lines


@pytest.mark.parametrize(("place", "line"), command_lines(), ids=[place for place, _ in command_lines()])
def test_commands_parse(place: str, line: str) -> None:
    words = shlex.split(re.sub(r"\[.*?\]", "", line.split(" | ")[0]), comments=True)[1:]
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    context = command.make_context(command.name, words)  # raises for an unknown option, a missing argument
    assert context.params.keys() == {parameter.name for parameter in command.params} - {"help"}, place


@pytest.mark.parametrize("name", RUN)
def test_python_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    found = list(blocks(ROOT / name, "python"))
    assert found, f"{name} shows no Python"
    for line, block in found:
        code = compile("\n" * (line - 1) + block, str(ROOT / name), "exec")  # errors name the line of the page
        exec(code, names)


def test_python_guide_has_every_public_name() -> None:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name in itertools.chain(chmnet.__all__, chmnet.viz.__all__):
        assert re.search(rf"\b{name}\b", text), name
    for name in vars(chmnet.MatchResult):
        if not name.startswith("_"):
            assert re.search(rf"\b{name}\b", text), name


def test_reference_is_up_to_date() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == reference(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, link


@pytest.fixture(scope="module")
def pictures() -> dict:
    return runpy.run_path(str(ROOT / "tools" / "pictures.py"), run_name="pictures")


@pytest.mark.parametrize("name", ["voting_on_lines", "taps", "soft_argmax_on_a_line"])
def test_figures_are_drawn(pictures: dict, name: str, tmp_path: Path) -> None:
    with matplotlib.rc_context({"backend": "agg"}):
        pictures[name]().savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.slow
def test_all_pictures_are_drawn(pictures: dict, tmp_path: Path) -> None:
    pictures["main"](tmp_path)
    for path in tmp_path.iterdir():
        assert (ROOT / "docs" / "images" / path.name).exists()
    assert len(list(tmp_path.iterdir())) == 15


@pytest.mark.parametrize("name", MODULES)
def test_results_have_a_record_and_its_tables(name: str) -> None:
    page, file = (ROOT / "docs" / "results.md").read_text(encoding="utf-8"), ROOT / "results" / f"{name}.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    assert "--quick" not in record["command"], "quick mode measures no results"
    assert file.stat().st_size < 100_000
    assert f"<!-- tables of {name}.json -->\n{tables_of(find_experiment(name), record)}\n" in page


def test_results_are_filled_in() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert fill_tables(page, ROOT / "results") == page, "run `make docs`"


def test_a_changed_record_changes_the_page(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "results",
        tmp_path / "results",
        ignore=lambda folder, names: [name for name in names if not name.endswith(".json")],
    )
    file, page = tmp_path / "results" / "kernels.json", (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    record = json.loads(file.read_text(encoding="utf-8"))
    record["figures"]["rows"]["psi-6d"]["parameters"] += 1
    file.write_text(json.dumps(record), encoding="utf-8")
    assert fill_tables(page, tmp_path / "results") != page


def test_pictures_are_copied_where_they_were_drawn(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    page = tmp_path / "page.md"
    page.write_text(
        "![](images/results-kernels.png) ![](images/results-multiple.jpg) ![](images/results-main.png)"
    )
    for name in ("kernels", "multiple", "clutter-pairs"):
        Image.new("RGB", (3000, 1000), "red").save(tmp_path / f"{name}.png")
    written = copy_pictures(page, tmp_path)
    assert [path.name for path in written] == ["results-kernels.png", "results-multiple.jpg"]
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == sorted(path.name for path in written)
    for path in written:
        with Image.open(path) as picture:
            assert picture.size == (1400, 467)


def test_tables_without_a_record_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no record"):
        fill_tables("<!-- tables of kernels.json -->\n<!-- end of tables -->", tmp_path)
