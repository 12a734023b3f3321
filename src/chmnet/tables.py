"""Dataclasses as tables: checked against their annotations, TOML in and out. An unknown key is an error."""

import dataclasses
import difflib
import json
import math
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar

import tomli_w

from chmnet.errors import ConfigError
from chmnet.files import read_toml

Config = TypeVar("Config", bound="TomlConfig")


class TomlConfig:
    """Conversion between a dataclass, plain dictionaries and TOML."""

    @classmethod
    def from_dict(cls: type[Config], data: dict[str, Any], where: str = "configuration") -> Config:
        """Build a configuration; keys left out have their defaults.

        Raises:
            ConfigError: an unknown key, a value of the wrong type or out of range.
        """
        if not isinstance(data, dict):
            raise ConfigError(f"{where} must be a table, got {data!r}")
        hints = typing.get_type_hints(cls)
        values = {}
        for key, value in data.items():
            if key not in hints:
                close = difflib.get_close_matches(key, hints, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(hints))}"
                raise ConfigError(f"unknown key {key!r} in {where}; {hint}")
            values[key] = _convert(value, hints[key], f"{key!r} in {where}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings and numbers."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[call-overload]

    @classmethod
    def from_toml(cls: type[Config], path: str | Path) -> Config:
        """Read a configuration from a TOML file."""
        return cls.from_dict(read_toml(path), where=str(path))

    def to_toml(self) -> str:
        """The configuration as TOML text."""
        return tomli_w.dumps(self.to_dict())

    def __post_init__(self) -> None:
        """Refuse values that do not fit their fields; lists become tuples, dictionaries nested tables."""
        for key, hint in typing.get_type_hints(type(self)).items():
            object.__setattr__(self, key, _convert(getattr(self, key), hint, repr(key)))

    def replace(self: Config, **changes: Any) -> Config:
        """A copy with some fields changed; a dictionary changes single fields of a nested table.

        Raises:
            ConfigError: a field does not exist, or its new value has the wrong type.
        """
        fields = vars(self)
        for key, value in changes.items():
            current = fields.get(key)
            kind = getattr(current, "kind", None)
            if isinstance(value, dict) and isinstance(current, TomlConfig) and value.get("kind", kind) == kind:
                changes[key] = current.replace(**value)
        return type(self).from_dict({**fields, **changes}, where=type(self).__name__)


def check_range(
    name: str, value: float, minimum: float | None = None, above: float | None = None, maximum: float | None = None
) -> None:
    """Refuse a number that is not finite, or outside of the limits that are given."""
    if not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number, got {value}")
    if maximum is not None and value > maximum:
        raise ConfigError(f"{name} must be at most {maximum}, got {value}")
    if minimum is not None and value < minimum:
        raise ConfigError(f"{name} must be at least {minimum}, got {value}")
    if above is not None and value <= above:
        raise ConfigError(f"{name} must be above {above}, got {value}")


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Check ``value`` against a type annotation; lists become tuples, tables become dataclasses."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:  # one of several kinds of tables
        if not isinstance(value, dict):
            hint = next((kind for kind in arguments if isinstance(value, kind)), arguments[0])
            return _convert(value, hint, where)
        kinds = {kind.kind: kind for kind in arguments}
        kind = value.get("kind", arguments[0].kind)
        if not isinstance(kind, str) or kind not in kinds:
            raise ConfigError(f"the kind of {where} must be one of {', '.join(kinds)}, got {kind!r}")
        return _convert(value, kinds[kind], where)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where} must be one of {', '.join(map(str, arguments))}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} must be a list, got {value!r}")
        return tuple(_convert(item, arguments[0], where) for item in value)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, dict):
            return hint.from_dict(value, where=where)  # type: ignore[union-attr]
        if not isinstance(value, hint):  # type: ignore[arg-type]
            raise ConfigError(f"{where} must be a table, got {value!r}")
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{where} must fit in 64 bits")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where} must be of type {hint.__name__}, got {value!r}")
    return value
