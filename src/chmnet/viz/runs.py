"""Plots of repeated runs: every run is a dot, so that a difference can be held against its spread."""

import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from chmnet.viz.style import DASHES, SEQUENTIAL, colour

Runs = Sequence[float]
PANEL_INCHES = 3.2


def plot_bars(groups: Mapping[str, Mapping[str, Runs]], label: str, from_zero: bool = False) -> Figure:
    """A panel for each group, in it a row for each name: its runs are dots, their mean is a stroke, or a bar.

    Args:
        groups: runs by name, by group; all groups have the same names.
        label: of the axis of values.
        from_zero: begin at zero and draw bars, whose lengths compare; else begin where the runs lie.

    Example:
        >>> figure = plot_bars({"PF-PASCAL": {"psi": [50.0, 52.0], "iso": [47.0]}}, "PCK (%)")
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['psi', 'iso']
    """
    names = list(next(iter(groups.values())))
    height = 1.1 + 0.32 * len(names)
    figure = Figure(figsize=(1.4 + 2.6 * len(groups), height), layout="constrained")
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (title, runs) in zip(panels, groups.items(), strict=True):
        means = [statistics.fmean(runs[name]) for name in names]
        for number, name in enumerate(names):
            if from_zero:
                axes.barh(number, means[number], color=colour(number), alpha=0.35)
            else:
                axes.plot(means[number], number, "|", color=colour(number), markersize=18, markeredgewidth=3)
            axes.plot(runs[name], [number] * len(runs[name]), "o", color=colour(number), markersize=5, alpha=0.7)
        values = [value for name in names for value in runs[name]]
        low, high = min(values), max(values)
        room = max(0.5, 0.15 * (high - low))
        axes.set_xlim(0.0 if from_zero else max(0.0, low - room), high + room)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(label)
        _tidy(axes)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    return figure


def plot_runs(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, Runs]]]], x_label: str, y_label: str
) -> Figure:
    """A panel for each title, in it a line for each name through the means of its runs, which are dots.

    Args:
        panels: (x, runs) by name, by title; x is shown on a logarithmic axis.
        x_label: of the axes.
        y_label: of the axes.

    Example:
        >>> figure = plot_runs({"test": {"psi": [(1, [50.0, 51.0]), (4, [49.0])]}}, "channels", "PCK (%)")
        >>> figure.axes[0].get_xlabel()
        'channels'
    """
    figure = Figure(figsize=(PANEL_INCHES * len(panels), 3.2), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        for number, (name, points) in enumerate(lines.items()):
            style = {"color": colour(number), "linestyle": DASHES[number % len(DASHES)]}
            axes.plot(
                [x for x, _ in points],
                [statistics.fmean(runs) for _, runs in points],
                label=name,
                linewidth=2,
                **style,
            )
            for x, runs in points:
                axes.plot([x] * len(runs), runs, "o", color=colour(number), markersize=4)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({x for points in lines.values() for x, _ in points}))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(x_label)
        _tidy(axes)
    all_axes[0].set_ylabel(y_label)
    all_axes[0].legend(frameon=False)
    return figure


def _tidy(axes: Axes) -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def plot_grids(grids: Mapping[str, np.ndarray], names: Sequence[str], y_label: str, x_label: str) -> Figure:
    """Shares of pairs of choices: a square for each title, a cell for each pair, its share in percent in it.

    Args:
        grids: shares from 0 to 1, rows by columns, by title.
        names: of the rows, and of the columns.
        y_label: what the rows are.
        x_label: what the columns are.

    Example:
        >>> figure = plot_grids({"test": np.eye(2) / 2}, ["small", "large"], "source", "target")
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['50', '0', '0', '50']
    """
    figure = Figure(figsize=(2.9 * len(grids), 3.2), layout="constrained")
    ticks = range(len(names))
    for axes, (title, shares) in zip(figure.subplots(1, len(grids), squeeze=False)[0], grids.items(), strict=True):
        axes.imshow(shares, cmap=SEQUENTIAL, vmin=0, vmax=1)
        for row in ticks:
            for column in ticks:
                share = float(shares[row, column])
                shade = "white" if share < 0.6 else "black"
                axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", color=shade)
        axes.set_xticks(ticks, names)
        axes.set_yticks(ticks, names)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(x_label)
    figure.axes[0].set_ylabel(y_label)
    return figure
