"""Plots by Matplotlib: curves, repeated runs, cost, a training run."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from chmnet.errors import InputError
from chmnet.viz.canvas import DASHES, SEQUENTIAL, colour

Curve = Sequence[tuple[float, float]]
Runs = Sequence[float]

LEGEND_INSIDE = 4
"""Most lines of a legend inside the axes."""

# Colour, hatching, dashes and marks all tell the two apart: any one of them is enough.
CANDIDATES = (
    ("model", "chmnet", colour(0), "", "-", "o"),
    ("baseline", "authors' way", colour(1), "///", "--", "s"),
)


# ---------------------------------------------------------------- curves


def plot_pck(curves: Mapping[str, Curve]) -> Figure:
    """PCK in percent over the tolerance α, a line for each name.

    Example:
        >>> figure = plot_pck({"nearest neighbour": [(0.05, 20.4), (0.1, 43.5)]})
        >>> figure.axes[0].get_xlabel()
        'tolerance α'
    """
    figure = _plot_curves(curves, "tolerance α", "PCK (%)")
    figure.axes[0].set_ylim(0, 100)
    return figure


def plot_precision_recall(curves: Mapping[str, Curve]) -> Figure:
    """Precision over recall, points (recall, precision), a line for each name."""
    figure = _plot_curves(curves, "recall", "precision")
    figure.axes[0].set(xlim=(0, 1), ylim=(0, 1))
    return figure


def plot_reliability(curves: Mapping[str, Curve]) -> Figure:
    """Reliability diagram: accuracy over confidence, points (confidence, accuracy), and the diagonal."""
    figure = _plot_curves({"perfect calibration": [(0.0, 0.0), (1.0, 1.0)], **curves}, "confidence", "accuracy")
    for line in figure.axes[0].lines[1:]:
        line.set_marker("o")
    figure.axes[0].set(xlim=(0, 1), ylim=(0, 1))
    return figure


def _plot_curves(curves: Mapping[str, Curve], x_label: str, y_label: str) -> Figure:
    figure = Figure(figsize=(5, 3.4 if len(curves) <= LEGEND_INSIDE else 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(curves.items()):
        axes.plot(*_columns(points), label=name, linewidth=2, **_style(number))
    axes.set(xlabel=x_label, ylabel=y_label)
    _tidy(axes)
    if len(curves) > LEGEND_INSIDE:  # below, where it hides no line
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    elif len(curves) > 1:
        axes.legend(frameon=False)
    return figure


# ---------------------------------------------------------------- repeated runs: each is a dot beside its mean


def plot_bars(groups: Mapping[str, Mapping[str, Runs]], label: str, from_zero: bool = False) -> Figure:
    """A panel for each group, in it a row for each name: its runs are dots, their mean is a stroke, or a bar.

    Args:
        groups: runs by name, by group; all groups have the same names.
        label: of the axis of values.
        from_zero: begin at zero and draw bars, whose lengths compare; otherwise begin near the smallest run.

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
    figure = Figure(figsize=(3.2 * len(panels), 3.2), layout="constrained")
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        for number, (name, points) in enumerate(lines.items()):
            means = [(x, statistics.fmean(runs)) for x, runs in points]
            axes.plot(*_columns(means), label=name, linewidth=2, **_style(number))
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


# ---------------------------------------------------------------- cost, training


def plot_cost(report: Mapping[str, Any]) -> Figure:
    """Time of each stage, and time and peak memory over image size, if the report has them.

    Args:
        report: from :func:`chmnet.benchmark.run`, or its JSON; it must hold ``pair`` or ``growth``.

    Raises:
        InputError: the report holds neither.

    Example:
        >>> stage = {"model": {"median_ms": 2.0}, "baseline": {"median_ms": 5.0}}
        >>> figure = plot_cost({"pair": {"stages": {"first vote": stage}}})
        >>> figure.axes[0].get_xlabel()
        'ms per pair'
    """
    panels = [part for part in ("pair", "growth") if part in report]
    if not panels:
        raise InputError("nothing to draw: the report needs pair or growth")
    count = len(panels) + ("growth" in panels)
    figure = Figure(figsize=(1 + 3.6 * count, 3.6), layout="constrained")
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    if "pair" in report:
        _draw_stages(axes.pop(0), report["pair"]["stages"])
    if "growth" in report:
        sizes = report["growth"]["image_size"]
        _draw_growth(axes[0], sizes, "median_ms", "ms per pair")
        _draw_growth(axes[1], sizes, "peak_memory_mb", "peak memory (MB)")
    figure.axes[0].legend(frameon=False)
    for drawn in figure.axes:
        drawn.set_axisbelow(True)
        _tidy(drawn)
    return figure


def _draw_stages(axes: Axes, stages: Mapping[str, Any]) -> None:
    thickness = 0.4
    for number, (key, label, fill, hatch, _, _) in enumerate(CANDIDATES):
        positions = [row + (number - 0.5) * thickness for row in range(len(stages))]
        times = [stage[key]["median_ms"] for stage in stages.values()]
        axes.barh(positions, times, thickness, label=label, color=fill, hatch=hatch, edgecolor="white")
    axes.set_yticks(range(len(stages)), list(stages))
    axes.invert_yaxis()
    axes.set_xlabel("ms per pair")


def _draw_growth(axes: Axes, sizes: Mapping[str, Any], key: str, label: str) -> None:
    for name, title, line_colour, _, dashes, mark in CANDIDATES:
        points = [(int(side), entry[name][key]) for side, entry in sizes.items() if entry[name][key] is not None]
        axes.plot(*_columns(points), label=title, color=line_colour, linestyle=dashes, marker=mark)
    axes.set(xlabel="image side (px)", ylabel=label)
    axes.set_ylim(bottom=0)


def plot_training(losses: Curve, validation_losses: Curve, pck: Mapping[str, Curve]) -> Figure:
    """Loss above, PCK below, both over the steps of the run.

    Args:
        losses: (step, training loss).
        validation_losses: (step, validation loss).
        pck: for each α (step, PCK in percent).

    Example:
        >>> figure = plot_training([(1, 0.5)], [(0, 0.6)], {"0.1": [(0, 12.5), (10, 40.0)]})
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['loss', 'PCK (%)']
    """
    figure = Figure(figsize=(6, 5))
    figure.subplots_adjust(0.12, 0.1, 0.97, 0.97, hspace=0.1)  # drawn often: much faster than a layout engine
    upper, lower = figure.subplots(2, 1, sharex=True)
    _line(upper, losses, "training", 0)
    _line(upper, validation_losses, "validation", 1, marker="o")
    upper.set_ylabel("loss")
    for number, (alpha, points) in enumerate(pck.items()):
        _line(lower, points, f"α = {alpha}", number + 2, marker="o")
    lower.set(xlabel="step", ylabel="PCK (%)", ylim=(0, 100))
    for axes in (upper, lower):
        _tidy(axes)
        if axes.lines:
            axes.legend(frameon=False)
    return figure


def _line(axes: Axes, points: Curve, label: str, number: int, marker: str = "") -> None:
    if points:
        axes.plot(*_columns(points), label=label, color=colour(number), marker=marker, markersize=3)


def _columns(points: Curve) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _style(number: int) -> dict[str, Any]:
    return {"color": colour(number), "linestyle": DASHES[number % len(DASHES)]}


def _tidy(axes: Axes) -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
