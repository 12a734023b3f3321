"""The curve of a training run: loss and PCK over steps."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chmnet.viz.style import colour

Points = Sequence[tuple[float, float]]


def plot_training(losses: Points, validation_losses: Points, pck: dict[str, Points]) -> Figure:
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
    figure.subplots_adjust(0.12, 0.1, 0.97, 0.97, hspace=0.1)  # drawn often: far faster than a layout engine
    upper, lower = figure.subplots(2, 1, sharex=True)
    _line(upper, losses, "training", 0)
    _line(upper, validation_losses, "validation", 1, marker="o")
    upper.set_ylabel("loss")
    for number, (alpha, points) in enumerate(pck.items()):
        _line(lower, points, f"α = {alpha}", number + 2, marker="o")
    lower.set_ylabel("PCK (%)")
    lower.set_ylim(0, 100)
    lower.set_xlabel("step")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.lines:
            axes.legend(frameon=False)
    return figure


def _line(axes: Axes, points: Points, label: str, number: int, marker: str = "") -> None:
    if points:
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, label=label, color=colour(number), marker=marker, markersize=3)
