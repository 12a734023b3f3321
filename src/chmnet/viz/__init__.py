"""Pictures of results: functions that take results and return pictures. No files, no models."""

from chmnet.viz.cost import plot_cost
from chmnet.viz.curves import plot_pck, plot_precision_recall, plot_reliability
from chmnet.viz.errors import draw_errors
from chmnet.viz.heat import draw_confidence, draw_heat
from chmnet.viz.kernels import draw_kernel, draw_kernels
from chmnet.viz.keypoints import draw_keypoints
from chmnet.viz.matches import draw_inside_matches, draw_matches, draw_scales, draw_top_matches
from chmnet.viz.morph import morph_frames
from chmnet.viz.panels import contact_sheet
from chmnet.viz.runs import plot_bars, plot_grids, plot_runs
from chmnet.viz.warps import blend, checkerboard, draw_warp

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
