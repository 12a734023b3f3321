"""Configurations by one name a field, wherever the field stands: what tests of many variants write."""

import warnings
from typing import Any

from chmnet.config import ModelConfig


def flat_config(preset: str = "paper", **fields: Any) -> ModelConfig:
    """A preset with fields changed, as version 0.1 named them (``dimensions``, ``first_sharing`` …)"""
    return flat_replace(ModelConfig.preset(preset), **fields)


def flat_replace(config: ModelConfig, **fields: Any) -> ModelConfig:
    """A configuration with fields changed, likewise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return config.replace(**fields)
