"""How good matches are: PCK with an explicit protocol, and precision and recall against clutter."""

from chmnet.metrics.clutter import Clutter, clutter_curve, inside
from chmnet.metrics.pck import (
    SPAIR_FLAGS,
    LevelScore,
    Prediction,
    Score,
    correct,
    curve,
    difficulty_table,
    per_pair,
    reference_length,
    score,
    thresholds_px,
)
from chmnet.metrics.protocol import DEFAULT_PROTOCOLS, Protocol, alpha_key, alpha_keys

__all__ = [
    "DEFAULT_PROTOCOLS",
    "SPAIR_FLAGS",
    "Clutter",
    "LevelScore",
    "Prediction",
    "Protocol",
    "Score",
    "alpha_key",
    "alpha_keys",
    "clutter_curve",
    "correct",
    "curve",
    "difficulty_table",
    "inside",
    "per_pair",
    "reference_length",
    "score",
    "thresholds_px",
]
