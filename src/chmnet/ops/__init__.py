"""Pure functions on tensors: n-dimensional convolution, correlation, and what scores become."""

from chmnet.ops.conv_nd import available_backends, conv_nd, conv_shared, unavailable_backends
from chmnet.ops.correlation import (
    cosine_correlation,
    keep_top_matches,
    mutual_nearest_neighbour_filter,
    resize_correlation,
)
from chmnet.ops.transfer import PositionMap, border_trust, match_scores, soft_argmax, transfer_keypoints

__all__ = [
    "PositionMap",
    "available_backends",
    "border_trust",
    "conv_nd",
    "conv_shared",
    "cosine_correlation",
    "keep_top_matches",
    "match_scores",
    "mutual_nearest_neighbour_filter",
    "resize_correlation",
    "soft_argmax",
    "transfer_keypoints",
    "unavailable_backends",
]
