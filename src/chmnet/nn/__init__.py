"""Modules with parameters: backbones, Hough matching layers, the network, and keypoint transfer."""

from chmnet.nn.backbones import Backbone, EfficientNetLite0, ResNet, build_backbone
from chmnet.nn.chmnet import CHMNet, MatchingHead
from chmnet.nn.confidence import border_trust, confidence_map, match_confidence, match_evidence
from chmnet.nn.hough import HoughMatching
from chmnet.nn.inference import for_inference
from chmnet.nn.prior import HoughPrior, apply_hough_prior, fit_projections
from chmnet.nn.sharing import TapGroups, tap_groups
from chmnet.nn.transfer import dense_flow, match_scores, soft_argmax, transfer_keypoints
from chmnet.nn.voting import NeighbourhoodConsensus, RegularisedHoughMatching

__all__ = [
    "Backbone",
    "CHMNet",
    "EfficientNetLite0",
    "HoughMatching",
    "HoughPrior",
    "MatchingHead",
    "NeighbourhoodConsensus",
    "RegularisedHoughMatching",
    "ResNet",
    "TapGroups",
    "apply_hough_prior",
    "border_trust",
    "build_backbone",
    "confidence_map",
    "dense_flow",
    "fit_projections",
    "for_inference",
    "match_confidence",
    "match_evidence",
    "match_scores",
    "soft_argmax",
    "tap_groups",
    "transfer_keypoints",
]
