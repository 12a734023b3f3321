"""Results of matching in a safetensors file: the scores as they are, sizes and settings in its metadata."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from chmnet import __version__
from chmnet.config import TransferConfig
from chmnet.errors import ConfigError, InputError
from chmnet.files import write_tensors
from chmnet.geometry import Size

FORMAT = "chmnet-result-1"
_MAX_SIDE = 2**31
_KEYPOINTS = ("keypoints.source", "keypoints.target", "keypoints.confidence")
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError, ConfigError)
"""What a file that was not written here may raise, of a type of numbers that PyTorch hardly knows for example."""


class StoredResult(NamedTuple):
    """What a file holds of a :class:`chmnet.result.MatchResult`."""

    correlation: Tensor
    source_size: Size
    target_size: Size
    config: TransferConfig
    scale_pairs: Tensor | None
    scales: tuple[float, ...]
    keypoints: tuple[np.ndarray, np.ndarray, np.ndarray] | None
    """Points of the source, of the target, and their confidence."""


def save_result(result: StoredResult, path: str | Path, overwrite: bool = False) -> None:
    """Write a result; see :meth:`chmnet.result.MatchResult.save`."""
    if Path(path).suffix != ".safetensors":
        raise InputError(f"a result file must end in .safetensors, got {Path(path).name!r}")
    metadata = {
        "format": FORMAT,
        "chmnet_version": __version__,
        "source_size": json.dumps(result.source_size),
        "target_size": json.dumps(result.target_size),
        "config": json.dumps(result.config.to_dict()),
        "scales": json.dumps(result.scales),
    }
    tensors = {"correlation": result.correlation}
    if result.scale_pairs is not None:
        tensors["scale_pairs"] = result.scale_pairs.to(torch.int16)
    if result.keypoints is not None:
        for name, values in zip(_KEYPOINTS, result.keypoints, strict=True):
            tensors[name] = torch.from_numpy(values.copy())  # two of them may be one array, which cannot be saved
    write_tensors(path, tensors, metadata, overwrite)


def load_result(path: str | Path) -> StoredResult:
    """Read a result; see :meth:`chmnet.result.MatchResult.load`."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a result file")
    if not path.is_file():
        raise InputError(f"there is no result file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"{path} is not a result of matching; MatchResult.save writes such files")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a whole safetensors file: {error}") from None
    try:
        return _build(tensors, metadata)
    except _DAMAGED as error:
        raise InputError(f"{path} is damaged: {error}") from None


def _build(tensors: dict[str, Tensor], metadata: dict[str, str]) -> StoredResult:
    correlation = tensors["correlation"]
    scales = tuple(float(scale) for scale in json.loads(metadata["scales"]))
    if correlation.dim() != 6 or correlation.shape[:2] != (1, 1) or 0 in correlation.shape:
        raise ValueError(f"its scores have the shape {list(correlation.shape)}")
    if not correlation.is_floating_point() or not correlation.isfinite().all():
        raise ValueError("its scores are not all finite numbers")
    if not scales or not all(0 < scale < float("inf") for scale in scales):
        raise ValueError(f"its scales are {list(scales)}")
    config = json.loads(metadata["config"])
    if not isinstance(config, dict):
        raise ValueError("its settings are no table")
    return StoredResult(
        correlation,
        _size(json.loads(metadata["source_size"])),
        _size(json.loads(metadata["target_size"])),
        TransferConfig.from_dict(config),
        scale_pairs=_scale_pairs(tensors.get("scale_pairs"), len(scales) ** 2),
        scales=scales,
        keypoints=_keypoints(tensors),
    )


def _size(sides: Any) -> Size:
    height, width = sides
    if not all(type(side) is int and 0 < side < _MAX_SIDE for side in (height, width)):
        raise ValueError(f"a picture's size is {sides}")
    return height, width


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
