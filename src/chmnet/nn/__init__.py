"""Modules with parameters: backbones, Hough matching layers, and the network."""

import warnings
from typing import Any

from chmnet.nn.backbones import Backbone, EfficientNetLite0, ResNet, build_backbone
from chmnet.nn.chmnet import CHMNet, MatchingHead
from chmnet.nn.foreground import Foreground
from chmnet.nn.hough import HoughMatching
from chmnet.nn.inference import for_inference
from chmnet.nn.prior import HoughPrior, apply_hough_prior, fit_projections
from chmnet.nn.taps import TapGroups, tap_groups
from chmnet.nn.voting import NeighbourhoodConsensus, RegularisedHoughMatching

__all__ = [
    "Backbone",
    "CHMNet",
    "EfficientNetLite0",
    "Foreground",
    "HoughMatching",
    "HoughPrior",
    "MatchingHead",
    "NeighbourhoodConsensus",
    "RegularisedHoughMatching",
    "ResNet",
    "TapGroups",
    "apply_hough_prior",
    "build_backbone",
    "fit_projections",
    "for_inference",
    "tap_groups",
]

_MOVED = ("border_trust", "match_scores", "soft_argmax", "transfer_keypoints")


def __getattr__(name: str) -> Any:
    """Functions that moved to ``chmnet.ops.transfer``, until version 0.3."""
    if name not in _MOVED:
        raise AttributeError(f"module 'chmnet.nn' has no attribute {name!r}")
    from chmnet.ops import transfer

    warnings.warn(f"chmnet.nn.{name} is now chmnet.ops.{name}", DeprecationWarning, stacklevel=2)
    return getattr(transfer, name)
