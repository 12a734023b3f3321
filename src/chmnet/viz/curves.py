"""Plots: PCK over α, precision over recall, how often matches are right over their confidence."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from chmnet.viz.style import DASHES, colour

Points = Sequence[tuple[float, float]]
LEGEND_INSIDE = 4
"""A legend of no more lines than this has its place among them."""


def plot_pck(curves: Mapping[str, Points]) -> Figure:
    """PCK in percent over the tolerance α, a line for each name.

    Example:
        >>> figure = plot_pck({"nearest neighbour": [(0.05, 20.4), (0.1, 43.5)]})
        >>> figure.axes[0].get_xlabel()
        'tolerance α'
    """
    figure = _plot(curves, "tolerance α", "PCK (%)")
    figure.axes[0].set_ylim(0, 100)
    return figure


def plot_precision_recall(curves: Mapping[str, Points]) -> Figure:
    """Precision over recall, points (recall, precision), a line for each name."""
    figure = _plot(curves, "recall", "precision")
    figure.axes[0].set_xlim(0, 1)
    figure.axes[0].set_ylim(0, 1)
    return figure


def plot_reliability(curves: Mapping[str, Points]) -> Figure:
    """Share of right matches over their confidence, points (confidence, share), beside the line of a true word."""
    figure = _plot({"as it should be": [(0.0, 0.0), (1.0, 1.0)], **curves}, "confidence", "share that is right")
    for line in figure.axes[0].lines[1:]:
        line.set_marker("o")
    figure.axes[0].set_xlim(0, 1)
    figure.axes[0].set_ylim(0, 1)
    return figure


def _plot(curves: Mapping[str, Points], x_label: str, y_label: str) -> Figure:
    figure = Figure(figsize=(5, 3.4 if len(curves) <= LEGEND_INSIDE else 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(curves.items()):
        dashes = DASHES[number % len(DASHES)]
        x, y = [point[0] for point in points], [point[1] for point in points]
        axes.plot(x, y, label=name, color=colour(number), linestyle=dashes, linewidth=2)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > LEGEND_INSIDE:  # below, where it hides no line
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    elif len(curves) > 1:
        axes.legend(frameon=False)
    return figure
