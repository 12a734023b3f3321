"""Pure functions on tensors: n-dimensional convolution and correlation. No parameters, no state."""

from chmnet.ops.conv_nd import available_backends, conv_nd, unavailable_backends
from chmnet.ops.correlation import (
    cosine_correlation,
    keep_top_matches,
    mutual_nearest_neighbour_filter,
    resize_correlation,
)

__all__ = [
    "available_backends",
    "conv_nd",
    "cosine_correlation",
    "keep_top_matches",
    "mutual_nearest_neighbour_filter",
    "resize_correlation",
    "unavailable_backends",
]
