"""Drawings and plots of pictures and numbers. No files, no models.

Plots are loaded when first used: drawings need no Matplotlib.
"""

from typing import TYPE_CHECKING, Any

from chmnet.viz.kernels import draw_kernel, draw_kernels
from chmnet.viz.keypoints import draw_errors, draw_keypoints
from chmnet.viz.maps import blend, checkerboard, draw_confidence, draw_heat, draw_warp, morph_frames
from chmnet.viz.matches import draw_inside_matches, draw_matches, draw_scales, draw_top_matches
from chmnet.viz.panels import contact_sheet

if TYPE_CHECKING:
    from chmnet.viz.plots import (
        plot_bars,
        plot_cost,
        plot_grids,
        plot_pck,
        plot_precision_recall,
        plot_reliability,
        plot_runs,
    )

__all__ = [
    "blend",
    "checkerboard",
    "contact_sheet",
    "draw_confidence",
    "draw_errors",
    "draw_heat",
    "draw_inside_matches",
    "draw_kernel",
    "draw_kernels",
    "draw_keypoints",
    "draw_matches",
    "draw_scales",
    "draw_top_matches",
    "draw_warp",
    "morph_frames",
    "plot_bars",
    "plot_cost",
    "plot_grids",
    "plot_pck",
    "plot_precision_recall",
    "plot_reliability",
    "plot_runs",
]


def __getattr__(name: str) -> Any:
    """Import a plot from its home on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'chmnet.viz' has no attribute {name!r}")
    from chmnet.viz import plots

    return getattr(plots, name)
