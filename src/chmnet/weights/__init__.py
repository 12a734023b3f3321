"""Weights: files of whole models, backbones, named models, and the authors' checkpoints."""

from chmnet.weights.authors import convert_reference_checkpoint, head_from_reference, votes_from_reference
from chmnet.weights.backbones import fetch, load_backbone_weights
from chmnet.weights.models import (
    DEFAULT_MODEL,
    MODELS,
    KnownModel,
    load_model,
    load_model_file,
    save_calibrated,
    save_model,
    save_probe,
)

__all__ = [
    "DEFAULT_MODEL",
    "MODELS",
    "KnownModel",
    "convert_reference_checkpoint",
    "fetch",
    "head_from_reference",
    "load_backbone_weights",
    "load_model",
    "load_model_file",
    "save_calibrated",
    "save_model",
    "save_probe",
    "votes_from_reference",
]
