"""Modules with parameters: backbones, Hough matching layers, the network, and keypoint transfer."""

from chmnet.nn.backbones import Backbone, EfficientNetLite0, ResNet, build_backbone
from chmnet.nn.chmnet import CHMNet, MatchingHead
from chmnet.nn.hough import HoughMatching
from chmnet.nn.sharing import TapGroups, tap_groups
from chmnet.nn.voting import NeighbourhoodConsensus, RegularisedHoughMatching

__all__ = [
    "Backbone",
    "CHMNet",
    "EfficientNetLite0",
    "HoughMatching",
    "MatchingHead",
    "NeighbourhoodConsensus",
    "RegularisedHoughMatching",
    "ResNet",
    "TapGroups",
    "build_backbone",
    "tap_groups",
]
