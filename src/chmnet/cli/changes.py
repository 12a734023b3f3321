"""What ``--set KEY=VALUE`` says."""

import sys
from collections.abc import Iterator
from typing import Any

from chmnet.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def parse_changes(words: list[str]) -> dict[str, Any]:
    """Turn ``key=value`` words into nested values for :meth:`replace` or :meth:`from_dict`.

    A value is read as TOML, and as plain text where it is none.

    Example:
        >>> parse_changes(["image_size=[64, 64]", "matching.kind=none", "transfer.temperature=0.01"])
        {'image_size': [64, 64], 'matching': {'kind': 'none'}, 'transfer': {'temperature': 0.01}}
    """
    changes: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise ConfigError(f"a change must be written key=value, got {word!r}")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except ValueError:
            value = text.strip()
        table = changes
        for part in parts[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{part!r} in {word!r} is a value already, not a table")
        table[parts[-1]] = value
    return changes


def describe_changes(name: str, backbone: str, changes: dict[str, Any]) -> str:
    """The title of a model with a changed configuration.

    Example:
        >>> describe_changes("paper", "resnet18", {"output": {"mutual_filter": True}})
        'paper (resnet18, output.mutual_filter=True)'
    """
    details = [backbone] * bool(backbone) + list(_flatten(changes))
    return f"{name} ({', '.join(details)})" if details else name


def _flatten(changes: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, value in changes.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{before}{key}.")
        else:
            yield f"{before}{key}={value}"
