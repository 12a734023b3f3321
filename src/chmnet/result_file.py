"""Results of matching in a safetensors file: the scores as they are, views and settings in its metadata."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chmnet import __version__
from chmnet.config import CalibrationConfig, TransferConfig
from chmnet.errors import ConfigError, InputError, WeightsError
from chmnet.features import check_foreground, describe_view, restore_view
from chmnet.files import read_tensors, write_tensors

FORMAT = "chmnet-result-2"
FIRST_FORMAT = "chmnet-result-1"
"""Of version 0.1: whole pictures only, the calibration inside the settings of the transfer."""
_KEYPOINTS = ("keypoints.source", "keypoints.target", "keypoints.confidence")
_FOREGROUND = ("foreground.source", "foreground.target")
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError, ConfigError, InputError)
"""What a file that was not written here may raise, of a type of numbers that PyTorch hardly knows for example."""


def save_result(fields: dict[str, Any], path: str | Path, overwrite: bool = False) -> None:
    """Write the fields of a result; see :meth:`chmnet.result.MatchResult.save`."""
    if Path(path).suffix != ".safetensors":
        raise InputError(f"a result file must end in .safetensors, got {Path(path).name!r}")
    values = {
        "source": describe_view(fields["source"]),
        "target": describe_view(fields["target"]),
        "config": fields["config"].to_dict(),
        "calibration": fields["calibration"].to_dict(),
        "scales": fields["scales"],
        "facing": fields["facing"],
        "pose_probability": fields["pose_probability"],
        "other_pose_probability": fields["other_pose_probability"],
    }
    metadata = {"format": FORMAT, "chmnet_version": __version__}
    metadata |= {name: json.dumps(value) for name, value in values.items()}
    tensors = {"correlation": fields["scores"]}
    if fields["scale_pairs"] is not None:
        tensors["scale_pairs"] = fields["scale_pairs"].to(torch.int16)
    for name, foreground in zip(_FOREGROUND, fields["foreground"], strict=True):
        if foreground is not None:
            tensors[name] = foreground.clone()  # both may be one tensor
    if fields["likeness"] is not None:
        tensors["likeness"] = fields["likeness"]
    if fields["keypoints"] is not None:  # copies: two of them may be one array, which cannot be saved
        tensors |= {name: torch.tensor(rows) for name, rows in zip(_KEYPOINTS, fields["keypoints"], strict=True)}
    write_tensors(path, tensors, metadata, overwrite)


def load_result(path: str | Path) -> dict[str, Any]:
    """Read the fields of a result; see :meth:`chmnet.result.MatchResult.load`."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a result file")
    if not path.is_file():
        raise InputError(f"there is no result file {path}")
    try:
        tensors, metadata = read_tensors(path)
    except WeightsError as error:
        raise InputError(str(error)) from None
    if metadata.get("format") not in (FORMAT, FIRST_FORMAT):
        raise InputError(f"{path} is not a result of matching; MatchResult.save writes such files")
    try:
        return _build(tensors, metadata)
    except _DAMAGED as error:
        raise InputError(f"{path} is damaged: {error}") from None


def _build(tensors: dict[str, Tensor], metadata: dict[str, str]) -> dict[str, Any]:
    scores = tensors["correlation"]
    scales = tuple(float(scale) for scale in json.loads(metadata["scales"]))
    if scores.dim() != 6 or scores.shape[:2] != (1, 1) or 0 in scores.shape:
        raise ValueError(f"its scores have the shape {list(scores.shape)}")
    if not scores.is_floating_point() or not scores.isfinite().all():
        raise ValueError("its scores are not all finite numbers")
    if not scales or not all(0 < scale < float("inf") for scale in scales):
        raise ValueError(f"its scales are {list(scales)}")
    config = json.loads(metadata["config"])
    if not isinstance(config, dict):
        raise ValueError("its settings are no table")
    if metadata["format"] == FIRST_FORMAT:
        calibration = {"match": config.pop("calibration", ())}
        views = [{"size": json.loads(metadata[f"{side}_size"])} for side in ("source", "target")]
    else:
        calibration = json.loads(metadata["calibration"])
        if isinstance(calibration, list):  # of matches alone
            calibration = {"match": calibration}
        views = [json.loads(metadata[side]) for side in ("source", "target")]
    source, target = map(restore_view, views)
    return {
        "scores": scores,
        "source": source,
        "target": target,
        "config": TransferConfig.from_dict(config),
        "calibration": CalibrationConfig.from_dict(calibration),
        "scale_pairs": _scale_pairs(tensors.get("scale_pairs"), len(scales) ** 2),
        "scales": scales,
        "likeness": _likeness(tensors.get("likeness")),
        "facing": _facing(json.loads(metadata.get("facing", "[null, null]"))),
        "keypoints": _keypoints(tensors),
        "pose_probability": _probability(json.loads(metadata.get("pose_probability", "null"))),
        "other_pose_probability": _probability(json.loads(metadata.get("other_pose_probability", "null"))),
        "foreground": tuple(check_foreground(tensors.get(name)) for name in _FOREGROUND),
    }


def _probability(value: Any) -> float | None:
    if value is not None and not (type(value) in (int, float) and 0 <= value <= 1):
        raise ValueError(f"its pose has the probability {value!r}")
    return value


def _facing(sides: list[float | None]) -> tuple[float | None, float | None]:
    source, target = (None if side is None else max(-1.0, min(1.0, float(side))) for side in sides)
    return source, target


def _likeness(values: Tensor | None) -> Tensor | None:
    if values is not None and (values.dim() != 5 or len(values) != 1 or 0 in values.shape):
        raise ValueError(f"its likeness has the shape {list(values.shape)}")
    if values is not None and not (values.is_floating_point() and values.isfinite().all()):
        raise ValueError("its likeness is not all finite numbers")
    return values


def _scale_pairs(pairs: Tensor | None, count: int) -> Tensor | None:
    if pairs is None:
        return None
    whole_numbers = not (pairs.is_floating_point() or pairs.is_complex())
    if pairs.dim() != 5 or len(pairs) != 1 or 0 in pairs.shape or not whole_numbers:
        raise ValueError(f"its scale pairs have the shape {list(pairs.shape)} and the type {pairs.dtype}")
    pairs = pairs.long()
    if pairs.min() < 0 or pairs.max() >= count:
        raise ValueError("it names scales that it does not have")
    return pairs


def _keypoints(tensors: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    if not any(name in tensors for name in _KEYPOINTS):
        return None
    source, target, confidence = (tensors[name] for name in _KEYPOINTS)
    count = len(source)
    if [list(values.shape) for values in (source, target, confidence)] != [[count, 2], [count, 2], [count]]:
        raise ValueError("its keypoints do not go together")
    if not all(values.is_floating_point() and values.isfinite().all() for values in (source, target, confidence)):
        raise ValueError("its keypoints are not all finite numbers")
    return source.double().numpy(), target.double().numpy(), confidence.double().numpy()
