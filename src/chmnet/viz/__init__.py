"""Pictures of results: functions that take results and return pictures. No files, no models."""

from chmnet.viz.cost import plot_cost
from chmnet.viz.curves import plot_pck, plot_precision_recall
from chmnet.viz.errors import draw_errors
from chmnet.viz.matches import draw_matches
from chmnet.viz.panels import contact_sheet

__all__ = ["contact_sheet", "draw_errors", "draw_matches", "plot_cost", "plot_pck", "plot_precision_recall"]
