"""How good matches are: PCK with an explicit protocol, robustness to clutter, reliability of confidences."""

from chmnet.metrics.clutter import Clutter, clutter_curve, inside
from chmnet.metrics.pck import (
    SPAIR_FLAGS,
    LevelScore,
    Prediction,
    Score,
    correct,
    curve,
    difficulty_table,
    hits,
    per_pair,
    reference_length,
    score,
)
from chmnet.metrics.protocol import DEFAULT_PROTOCOLS, Protocol, alpha_key, alpha_keys
from chmnet.metrics.reliability import Reliability, reliability

__all__ = [
    "DEFAULT_PROTOCOLS",
    "SPAIR_FLAGS",
    "Clutter",
    "LevelScore",
    "Prediction",
    "Protocol",
    "Reliability",
    "Score",
    "alpha_key",
    "alpha_keys",
    "clutter_curve",
    "correct",
    "curve",
    "difficulty_table",
    "hits",
    "inside",
    "per_pair",
    "reference_length",
    "reliability",
    "score",
]
