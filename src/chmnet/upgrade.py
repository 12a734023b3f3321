"""Configurations of version 0.1, whose model had one flat table, as those of today; until version 0.3."""

import sys
import warnings
from pathlib import Path
from typing import Any

from chmnet.errors import ConfigError

_CORRELATION = {
    "scales": "scales",
    "channel_reduction": "reduction",
    "rectify": "rectify",
    "correlation_power": "power",
    "keep_top": "keep_top",
}
_OUTPUT = {"upsample": "upsample", "mutual_filter": "mutual_filter"}
_MATCHING = {
    "hough": ("first_sharing", "last_sharing", "last_layer", "spatial_window", "scale_window", "channels"),
    "regularised-hough": ("last_layer",),
    "consensus": ("spatial_window",),
    "none": (),
}
_HOUGH = _MATCHING["hough"]
_DROPPED = ("backend", "initialisation", "loss")
"""What moved to the run: an argument of the network, and settings of the training."""


def upgrade_model(data: dict[str, Any]) -> dict[str, Any]:
    """A model's table with the keys of today.

    Example:
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     upgrade_model({"dimensions": "4d-4d", "first_sharing": "iso", "mutual_filter": True})
        {'correlation': {'scales': [1.0]}, 'matching': {'first_sharing': 'iso'}, 'output': {'mutual_filter': True}}
    """
    data = dict(data)
    old = sorted(set(data) & {*_CORRELATION, *_OUTPUT, *_HOUGH, *_DROPPED, "dimensions", "consensus_channels"})
    old += [key for key in ("matching", "output") if isinstance(data.get(key), str)]
    nested = {"transfer": "calibration", "backbone": "frozen"}
    old += [
        f"{name}.{key}" for name, key in nested.items() if isinstance(data.get(name), dict) and key in data[name]
    ]
    if not old:
        return data  # what is left is a mistake
    new: dict[str, Any] = {}
    correlation = {_CORRELATION[key]: data.pop(key) for key in list(data) if key in _CORRELATION}
    output = {_OUTPUT[key]: data.pop(key) for key in list(data) if key in _OUTPUT}
    if isinstance(data.get("output"), str):
        output["activation"] = data.pop("output")
    kind = data.pop("matching") if isinstance(data.get("matching"), str) else None
    fields = {key: data.pop(key) for key in list(data) if key in _HOUGH}
    consensus = data.pop("consensus_channels", None)
    dimensions = data.pop("dimensions", "6d-4d")
    if dimensions not in ("6d-4d", "4d-4d"):
        raise ConfigError(f"'dimensions' must be one of 6d-4d, 4d-4d, got {dimensions!r}")
    if dimensions == "4d-4d" or kind == "consensus":
        correlation["scales"] = [1.0]
    if kind is not None:  # fields of other kinds said nothing
        fields = {
            "kind": kind,
            **{key: value for key, value in fields.items() if key in _MATCHING.get(kind, _HOUGH)},
        }
        if kind == "consensus" and consensus is not None:
            fields["channels"] = consensus
    for key in _DROPPED:
        data.pop(key, None)
    if isinstance(data.get("transfer"), dict) and "calibration" in data["transfer"]:
        transfer = dict(data["transfer"])
        new["calibration"] = {"match": transfer.pop("calibration")}
        data["transfer"] = transfer
    if isinstance(data.get("backbone"), dict) and "frozen" in data["backbone"]:
        data["backbone"] = {key: value for key, value in data["backbone"].items() if key != "frozen"}
    for name, table in (("correlation", correlation), ("matching", fields), ("output", output)):
        if table:
            given = data.get(name, {})
            if not isinstance(given, dict) or given.keys() & table.keys():
                raise ConfigError(f"{name!r} is given as a table and by keys of version 0.1; use the table alone")
            new[name] = {**given, **table}
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent == Path(__file__).parent:
        level, frame = level + 1, frame.f_back  # to whoever called chmnet
    warnings.warn(
        f"a model's configuration has keys of version 0.1, which 0.3 will refuse: {', '.join(old)}; "
        "docs/architecture.md has today's names",
        DeprecationWarning,
        stacklevel=level,
    )
    return {**data, **new}
