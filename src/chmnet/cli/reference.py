"""The reference of the command line, as Markdown: ``python -m chmnet.cli.reference > docs/cli.md``."""

import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.models import ArgumentInfo, OptionInfo

from chmnet.cli.main import app

OPENING = """# The command line

Made from the code by `make docs`; `--help` after any command says the same.

Every command ends with 0 when all went well, and with 2 and one sentence when an input cannot be used. No file
that exists is replaced without `--overwrite`.
"""

TYPES = {Path: "PATH", str: "TEXT", int: "NUMBER", float: "NUMBER"}


class Parameter(NamedTuple):
    """An argument or option of a command."""

    names: tuple[str, ...]
    """As they are typed: ``("-o", "--output")``, or the one name of an argument."""
    is_option: bool
    value: str
    """What is typed after it; empty: nothing, it is a switch."""
    words: str
    default: str


def reference() -> str:
    """All commands as Markdown.

    Example:
        >>> "chmnet match [OPTIONS] SOURCE TARGET" in reference()
        True
    """
    parts = [OPENING, *(_describe(name, function) for name, function in commands(app))]
    return "\n".join(parts)


def commands(group: typer.Typer, before: str = "chmnet") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command's full name and its function; those of groups after the others."""
    for entry in group.registered_commands:
        assert entry.callback is not None
        yield f"{before} {entry.name or entry.callback.__name__}", entry.callback
    for part in group.registered_groups:
        assert part.typer_instance is not None
        yield from commands(part.typer_instance, f"{before} {part.name}")


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """What a command takes, in the order of its signature.

    Example:
        >>> from chmnet.cli.warp import warp
        >>> parameters(warp)[3].names, parameters(warp)[3].value, parameters(warp)[3].default
        (('--method',), 'flow|tps', 'flow')
    """
    hints = typing.get_type_hints(function, include_extras=True)
    return [
        _parameter(name, hints[name], entry.default)
        for name, entry in inspect.signature(function).parameters.items()
    ]


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    kind, info = typing.get_args(hint)[:2]
    plain = typing.get_args(kind)[0] if isinstance(kind, types.UnionType) else kind  # X | None
    repeated = typing.get_origin(plain) is list
    plain = typing.get_args(plain)[0] if repeated else plain
    assert isinstance(info, ArgumentInfo | OptionInfo)
    words = " ".join((info.help or "").split())
    if isinstance(info, ArgumentInfo):
        shown = (info.metavar or name.upper()) + ("…" if repeated else "")
        names: tuple[str, ...] = (shown if default is inspect.Parameter.empty else f"[{shown}]",)
        return Parameter(names, False, "", words, "")
    names = _option_names(info) or (f"--{name.replace('_', '-')}",)
    value = "" if plain is bool else info.metavar or _values(plain)
    if repeated and "several times" not in words:
        words += " May be given several times."
    return Parameter(names, True, value, words, "" if "Default:" in words else _default(default))


def _option_names(info: OptionInfo) -> tuple[str, ...]:
    """The first name of an annotated option stands where its default would be."""
    first = (info.default,) if isinstance(info.default, str) and info.default.startswith("-") else ()
    return (*first, *(info.param_decls or ()))


def _values(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    return TYPES[kind]


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if isinstance(value, Enum):
        value = value.value
    if value is True:
        return "yes; `--no-…` turns it off"
    return "" if value is None or value is False or value in ("", [], ()) else str(value)


def _describe(name: str, function: Callable[..., Any]) -> str:
    """One command: how it is called, what it does, examples, arguments and options."""
    taken = parameters(function)
    arguments = [one for one in taken if not one.is_option]
    options = [one for one in taken if one.is_option]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_typed, arguments)])
    text = inspect.cleandoc(function.__doc__ or "").replace("\n\nExample:\n", "\n\nExamples:\n")
    words, _, examples = text.partition("\n\nExamples:\n")
    lines = [f"## {name}", "", "```text", usage, "```", "", words, ""]
    if examples.strip():
        lines += ["```sh", *(line.strip("`") for line in examples.split("\n") if line.strip()), "```", ""]
    if arguments:
        lines += ["| argument | |", "| --- | --- |"]
        lines += [f"| `{_typed(one)}` | {_cell(one.words)} |" for one in arguments] + [""]
    if options:
        lines += ["| option | | default |", "| --- | --- | --- |"]
        lines += [f"| `{_cell(_typed(one))}` | {_cell(one.words)} | {one.default} |" for one in options] + [""]
    return "\n".join(lines)


def _typed(one: Parameter) -> str:
    return ", ".join(sorted(one.names, key=len)) + (f" {one.value}" if one.value else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
