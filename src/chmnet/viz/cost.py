"""What a model costs: bars of its stages, lines of its growth, beside the authors' way."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chmnet.errors import InputError
from chmnet.viz.style import colour

# Colour, hatching, dashes and marks all tell the two apart: any one of them is enough.
CANDIDATES = (
    ("model", "chmnet", colour(0), "", "-", "o"),
    ("baseline", "authors' way", colour(1), "///", "--", "s"),
)


def plot_cost(report: Mapping[str, Any]) -> Figure:
    """Time of each stage, and time and peak memory over image size, as far as a report has them.

    Args:
        report: from :func:`chmnet.benchmark.run`, or its JSON; it must hold ``pair`` or ``growth``.

    Raises:
        InputError: the report holds neither.

    Example:
        >>> stage = {"model": {"median_ms": 2.0}, "baseline": {"median_ms": 5.0}}
        >>> figure = plot_cost({"pair": {"stages": {"first vote": stage}}})
        >>> figure.axes[0].get_xlabel()
        'ms a pair'
    """
    panels = [part for part in ("pair", "growth") if part in report]
    if not panels:
        raise InputError("there is nothing to draw: measure pair or growth")
    count = len(panels) + ("growth" in panels)
    figure = Figure(figsize=(1 + 3.6 * count, 3.6), layout="constrained")
    axes = list(figure.subplots(1, count, squeeze=False)[0])
    if "pair" in report:
        _draw_stages(axes.pop(0), report["pair"]["stages"])
    if "growth" in report:
        sizes = report["growth"]["image_size"]
        _draw_growth(axes[0], sizes, "median_ms", "ms a pair")
        _draw_growth(axes[1], sizes, "peak_memory_mb", "peak memory (MB)")
    figure.axes[0].legend(frameon=False)
    for drawn in figure.axes:
        drawn.grid(alpha=0.3)
        drawn.set_axisbelow(True)
        drawn.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_stages(axes: Axes, stages: Mapping[str, Any]) -> None:
    thickness = 0.4
    for number, (key, label, fill, hatch, _, _) in enumerate(CANDIDATES):
        positions = [row + (number - 0.5) * thickness for row in range(len(stages))]
        times = [stage[key]["median_ms"] for stage in stages.values()]
        axes.barh(positions, times, thickness, label=label, color=fill, hatch=hatch, edgecolor="white")
    axes.set_yticks(range(len(stages)), list(stages))
    axes.invert_yaxis()
    axes.set_xlabel("ms a pair")


def _draw_growth(axes: Axes, sizes: Mapping[str, Any], key: str, label: str) -> None:
    for name, title, line_colour, _, dashes, mark in CANDIDATES:
        points = [(int(side), entry[name][key]) for side, entry in sizes.items() if entry[name][key] is not None]
        axes.plot(
            [side for side, _ in points],
            [value for _, value in points],
            label=title,
            color=line_colour,
            linestyle=dashes,
            marker=mark,
        )
    axes.set_xlabel("image side (px)")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
