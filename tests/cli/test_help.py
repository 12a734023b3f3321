"""Help on a narrow terminal: every name in full, no Python types, examples that can be copied."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from chmnet.cli.main import app

COLUMNS = 80


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words that name each command, those of groups among them."""
    yield words
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*words, name))


NAMES = list(commands(typer.main.get_command(app)))


def command_named(words: tuple[str, ...]) -> Any:
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    return command


def help_of(words: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(COLUMNS)})
    assert result.exit_code == 0
    return result.output


def test_control_all_commands_are_there() -> None:
    assert {(), ("match",), ("data",), ("data", "label"), ("info",)} <= set(NAMES)


@pytest.mark.parametrize("words", NAMES, ids=" ".join)
def test_every_option_is_named_in_full(words: tuple[str, ...]) -> None:
    text = help_of(words)
    command = command_named(words)
    for parameter in command.params:
        for name in [*parameter.opts, *parameter.secondary_opts]:
            if name.startswith("-"):
                assert re.search(rf"^ +(\S+ /? ?|\S+, )?{name}[ ,\n]", text, re.M), name
        if parameter.param_type_name == "argument":
            assert re.search(rf"^  {re.escape(parameter.metavar)} ", text, re.M), parameter.name
    assert all(len(line) <= COLUMNS for line in text.splitlines())


@pytest.mark.parametrize("words", NAMES, ids=" ".join)
def test_no_python_types(words: tuple[str, ...]) -> None:
    text = help_of(words)
    assert not re.search(r"<\w|list\[|\b(str|bool|int|float|Path|None)\b", text)
    assert "{" not in text
    for parameter in command_named(words).params:
        is_flag = getattr(parameter, "is_flag", False)
        assert is_flag or parameter.metavar, f"{parameter.name} needs a metavar"


@pytest.mark.parametrize("words", [words for words in NAMES if words != ("data",)], ids=" ".join)
def test_examples_are_whole_lines(words: tuple[str, ...]) -> None:
    examples = re.search(r"^  Examples:\n((?:    .+\n)+)", help_of(words), re.M)
    assert examples is not None
    beginning = " ".join(("chmnet", *words))
    assert all(line.strip().startswith(beginning) for line in examples[1].splitlines())
