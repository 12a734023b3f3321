"""Score a file of predictions: everything that needs no model."""

from typing import Any

import numpy as np

from chmnet.data.pairs import Pair
from chmnet.errors import InputError
from chmnet.evaluation.predictions import GRID_SIDE, PredictionFile
from chmnet.metrics import SPAIR_FLAGS, Clutter, Protocol, alpha_keys, clutter_curve, difficulty_table, score

CURVE_POINTS = 50
"""Entries of the precision-recall curve that are kept in JSON."""


def evaluate(pairs: list[Pair], file: PredictionFile, protocol: Protocol) -> dict[str, Any]:
    """Everything about a complete file of predictions, ready for JSON; PCK in percent.

    Predictions of pairs that are not in ``pairs`` are ignored.
    """
    if file.header is None or not file.complete:
        count = len(file.predictions)
        raise InputError(f"{file.path} holds only {count} predictions; finish the evaluation first")
    total = score(pairs, file.predictions.values(), protocol)
    result: dict[str, Any] = {
        "dataset": file.header.dataset,
        "split": file.header.split,
        "pairs": total.pairs,
        "keypoints": total.keypoints,
        "protocol": {**protocol.to_dict(), "description": protocol.describe()},
        "pck": alpha_keys(total.pck),
        "per_class": {name: alpha_keys(values) for name, values in sorted(total.per_class.items())},
        "seconds": round(file.seconds, 2),
        "model": file.header.model,
    }
    if file.header.search:
        result["search"] = file.header.search
    if total.excluded:
        result["pairs_without_keypoints"] = total.excluded
    if any(flag in pair.flags for pair in pairs for flag in SPAIR_FLAGS):
        table = difficulty_table(pairs, file.predictions.values(), protocol)
        result["difficulty"] = {
            flag: {str(level): {**entry, "pck": alpha_keys(entry["pck"])} for level, entry in levels.items()}
            for flag, levels in table.items()
        }
    if file.header.clutter:
        result["clutter"] = _clutter_as_json(clutter(pairs, file))
    return result


def clutter(pairs: list[Pair], file: PredictionFile) -> Clutter:
    """The paper's clutter measure over the matches of all pairs together."""
    known = file.grids()
    grids = [known[pair.name] for pair in pairs]
    return clutter_curve(
        np.concatenate([grid.source_inside for grid in grids]),
        np.concatenate([grid.target_inside for grid in grids]),
        np.concatenate([grid.scores for grid in grids]).astype(np.float64),
    )


def _clutter_as_json(curve: Clutter) -> dict[str, Any]:
    """The area, and the curve thinned out to equal steps of recall."""
    wanted = np.linspace(0, curve.recall[-1] if len(curve.recall) else 0, CURVE_POINTS)
    places = np.unique(np.searchsorted(curve.recall, wanted).clip(max=len(curve.recall) - 1))
    return {
        "area": curve.area,
        "description": (
            f"best matches of a {GRID_SIDE}×{GRID_SIDE} grid, ranked by score; correct are those with both ends "
            "inside the object's mask, or its box where there is no mask"
        ),
        "recall": curve.recall[places].tolist(),
        "precision": curve.precision[places].tolist(),
    }
