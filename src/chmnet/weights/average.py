"""The mean of several model files, number by number."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from chmnet.config import CalibrationConfig, ModelConfig
from chmnet.errors import WeightsError
from chmnet.files import read_metadata, read_tensors, write_tensors
from chmnet.weights.models import MODELS, PROBES, read_model_config, read_notes

KEPT = ("description", "training", "base", "data", "licence")
"""Notes of a model that hold for a mean with it, too."""


def average_models(models: Sequence[str | Path], output: str | Path, overwrite: bool = False) -> None:
    """Write the mean of models that were trained from one start: it is often better than each of them.

    Its notes are what those of the last one say of its training and licence, and which were averaged. What was
    measured of a model or fitted to it after training is left out: figures, calibration, and what sees where
    things are and which way they face.

    Args:
        models: names or files of at least two models of one network.
        output: the file to write.
        overwrite: whether an existing file may be replaced.

    Raises:
        WeightsError: a file cannot be used, or the networks differ.
    """
    if len(models) < 2:
        raise WeightsError(f"a mean needs at least two models, got {len(models)}")
    if Path(output).suffix != ".safetensors":
        raise WeightsError(f"a model file ends in .safetensors, got {str(output)!r}")
    paths = [_file(model) for model in models]
    config, origin = _network(models[0]), read_metadata(paths[0]).get("backbone_weights")
    parts = []
    for model, path in zip(models, paths, strict=True):
        tensors, metadata = read_tensors(path)
        parts.append({name: each for name, each in tensors.items() if name.split(".")[0] not in PROBES})
        shapes = {name: each.shape for name, each in parts[-1].items()}
        if metadata.get("backbone_weights") != origin:
            raise WeightsError(
                f"{model} and {models[0]} must both come with their backbone, or both without the same"
            )
        if _network(model) != config or shapes != {name: each.shape for name, each in parts[0].items()}:
            raise WeightsError(
                f"{model} is another network than {models[0]}: only models of one network have a mean"
            )
    mean = {
        name: torch.stack([part[name].float() for part in parts]).mean(0) if each.is_floating_point() else each
        for name, each in parts[0].items()
    }
    averaged = [f"{path.name} (SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]})" for path in paths]
    notes = {name: value for name, value in read_notes(paths[-1]).items() if name in KEPT} | {"averaged": averaged}
    metadata |= {"config": json.dumps(config.to_dict()), "notes": json.dumps(notes)}
    write_tensors(output, mean, metadata, overwrite)


def _file(model: str | Path) -> Path:
    known = MODELS.get(str(model))
    if known is not None and not known.file:
        raise WeightsError(
            f"{model} learned nothing, so it has no mean with others; name a trained model or its file"
        )
    return Path(model) if known is None else known.path


def _network(model: str | Path) -> ModelConfig:
    """The configuration without what is fitted after training."""
    return read_model_config(model).replace(calibration=CalibrationConfig(), foreground=False, facing=0)
