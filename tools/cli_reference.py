"""Write docs/cli.md with typer's own generator.

``make docs``, or ``python tools/cli_reference.py docs/cli.md``.
"""

import re
import sys
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

from chmnet.cli.main import app

OPENING = """
`make docs` writes this page; `--help` after any command says the same.

The exit code is 0 on success, and 2 with one sentence when an input cannot be used. No file that exists is
replaced without `--overwrite`.
"""


def reference() -> str:
    """The page: what typer writes, with the examples as blocks of code."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="chmnet")
    text = get_docs_for_click(obj=command, ctx=context, name="chmnet", title="The command line")
    title, _, rest = text.partition("\n")
    page = re.sub(r"\x08\nExamples:\n((?:  .*\n)+)", _block, rest)
    return f"{title}\n{OPENING}{page.rstrip()}\n"


def _block(examples: re.Match[str]) -> str:
    lines = "".join(line.removeprefix("  ") for line in examples[1].splitlines(keepends=True))
    return f"Examples:\n\n```sh\n{lines}```\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
