import io

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz import (
    plot_bars,
    plot_cost,
    plot_grids,
    plot_pck,
    plot_precision_recall,
    plot_reliability,
    plot_runs,
)
from chmnet.viz.canvas import colour

# ---------------------------------------------------------------- curves


def test_curves_have_their_points_and_are_told_apart() -> None:
    curves = {"one": [(0.0, 1.0), (0.5, 0.8)], "two": [(0.0, 0.9), (1.0, 0.1)]}
    (axes,) = plot_precision_recall(curves).axes
    assert [list(zip(*line.get_data(), strict=True)) for line in axes.lines] == list(curves.values())
    assert len({line.get_color() for line in axes.lines}) == 2
    assert len({line.get_linestyle() for line in axes.lines}) == 2
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 1), (0, 1))


def test_percentages_start_at_zero() -> None:
    (axes,) = plot_pck({"model": [(0.05, 20.0), (0.1, 43.5)]}).axes
    assert axes.get_ylim() == (0, 100)
    assert axes.get_legend() is None


def test_a_curve_without_points() -> None:
    (axes,) = plot_pck({"nothing": []}).axes
    assert [len(line.get_xdata()) for line in axes.lines] == [0]


def test_reliability_is_held_against_the_diagonal() -> None:
    (axes,) = plot_reliability({"model": [(0.3, 0.2), (0.9, 1.0)]}).axes
    truth, found = axes.lines
    assert list(zip(*truth.get_data(), strict=True)) == [(0, 0), (1, 1)]
    assert list(zip(*found.get_data(), strict=True)) == [(0.3, 0.2), (0.9, 1.0)]
    assert found.get_marker() == "o"


GROUPS = {
    "first @0.1": {"psi": [50.0, 54.0], "iso": [47.0], "full": [49.0, 50.0, 51.0]},
    "second @0.1": {"psi": [20.0, 21.0], "iso": [30.0], "full": [10.0, 12.0, 14.0]},
}


def drawn(figure: Figure) -> np.ndarray:
    """The pixels of a figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=60)
    with Image.open(buffer) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def dots(axes: Axes) -> list[tuple[list[float], list[float]]]:
    """Places of all marks that are dots, a list for each artist."""
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines if line.get_marker() == "o"]


# ---------------------------------------------------------------- bars


def test_bars_are_means_and_runs_are_dots() -> None:
    figure = plot_bars(GROUPS, "PCK (%)", from_zero=True)
    assert [axes.get_title() for axes in figure.axes] == list(GROUPS)
    first, second = figure.axes
    assert [patch.get_width() for patch in first.patches] == [52.0, 47.0, 50.0]
    assert [patch.get_width() for patch in second.patches] == [20.5, 30.0, 12.0]
    assert [x for x, _ in dots(first)] == list(GROUPS["first @0.1"].values())
    for number, ((_, heights), patch) in enumerate(zip(dots(first), first.patches, strict=True)):
        assert set(heights) == {number}
        assert patch.get_y() < number < patch.get_y() + patch.get_height()
    assert all(axes.get_xlabel() == "PCK (%)" for axes in figure.axes)


def test_without_zero_means_are_strokes_not_bars() -> None:
    axes = plot_bars(GROUPS, "PCK (%)").axes[0]
    strokes = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "|"]
    assert strokes == [(52.0, 0), (47.0, 1), (50.0, 2)]
    assert not axes.patches
    assert 0 < axes.get_xlim()[0] < 47


def test_the_first_name_is_on_top() -> None:
    axes = plot_bars(GROUPS, "PCK (%)").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["psi", "iso", "full"]
    low, high = axes.get_ylim()
    assert low > high


def test_bars_and_dots_of_a_name_have_its_colour() -> None:
    for axes in plot_bars(GROUPS, "PCK (%)", from_zero=True).axes:
        lines = [line for line in axes.lines if line.get_marker() == "o"]
        assert [line.get_color() for line in lines] == [colour(number) for number in range(3)]
        assert [to_hex(patch.get_facecolor()).upper() for patch in axes.patches] == [colour(n) for n in range(3)]


@pytest.mark.parametrize(("from_zero", "low"), [(True, 0.0), (False, 46.0)])
def test_where_bars_begin(from_zero: bool, low: float) -> None:
    """All runs are shown, with room beside them."""
    left, right = plot_bars(GROUPS, "PCK (%)", from_zero).axes[0].get_xlim()
    assert left == pytest.approx(low, abs=0.5)
    assert left < 47
    assert right > 54


def test_bars_that_begin_elsewhere_do_not_begin_below_zero() -> None:
    left, right = plot_bars({"group": {"a": [0.1], "b": [30.0]}}, "PCK (%)").axes[0].get_xlim()
    assert left == 0
    assert right > 30
    left, right = plot_bars({"group": {"alone": [5.0]}}, "PCK (%)").axes[0].get_xlim()
    assert left < 5 < right


def test_more_names_need_more_height() -> None:
    many = {"group": {str(number): [float(number)] for number in range(12)}}
    few = {"group": {"1": [1.0]}}
    heights = [len(drawn(plot_bars(groups, "ms"))) for groups in (few, many)]
    assert heights[1] > 2 * heights[0]
    colours = {patch.get_facecolor() for patch in plot_bars(many, "ms", from_zero=True).axes[0].patches}
    assert len(colours) == 8  # all there are


# ---------------------------------------------------------------- lines

PANELS = {
    "first": {"psi": [(1, [50.0, 52.0]), (4, [49.0]), (16, [47.0, 48.0])], "iso": [(1, [40.0]), (16, [44.0])]},
    "second": {"psi": [(1, [9.0])], "iso": [(2, [8.0])]},
}


def test_lines_go_through_means() -> None:
    figure = plot_runs(PANELS, "channels", "PCK (%)")
    first, second = figure.axes
    assert (first.get_title(), second.get_title()) == ("first", "second")
    lines = [line for line in first.lines if line.get_marker() != "o"]
    assert [list(zip(*line.get_data(), strict=True)) for line in lines] == [
        [(1, 51.0), (4, 49.0), (16, 47.5)],
        [(1, 40.0), (16, 44.0)],
    ]
    assert dots(first) == [
        ([1, 1], [50.0, 52.0]),
        ([4], [49.0]),
        ([16, 16], [47.0, 48.0]),
        ([1], [40.0]),
        ([16], [44.0]),
    ]
    assert (first.get_xlabel(), first.get_ylabel(), second.get_ylabel()) == ("channels", "PCK (%)", "")


def test_lines_are_told_apart_twice() -> None:
    """By colour and by dashes; dots have their line's colour; one legend is enough."""
    figure = plot_runs(PANELS, "channels", "PCK (%)")
    first, second = figure.axes
    lines = [line for line in first.lines if line.get_marker() != "o"]
    assert len({line.get_color() for line in lines}) == len({line.get_linestyle() for line in lines}) == 2
    marks = [line.get_color() for line in first.lines if line.get_marker() == "o"]
    assert marks == [lines[0].get_color()] * 3 + [lines[1].get_color()] * 2
    legend = first.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["psi", "iso"]
    assert second.get_legend() is None


def test_numbers_of_channels_are_written_out() -> None:
    figure = plot_runs(PANELS, "channels", "PCK (%)")
    drawn(figure)
    first, second = figure.axes
    assert first.get_xscale() == "log"
    assert [label.get_text() for label in first.get_xticklabels()] == ["1", "4", "16"]
    assert [label.get_text() for label in second.get_xticklabels()] == ["1", "2"]


# ---------------------------------------------------------------- grids

SHARES = np.array([[0.004, 0.25, 0.0], [0.0, 0.7, 0.0], [0.02, 0.0, 0.026]])


def test_cells_have_their_share_and_its_colour() -> None:
    figure = plot_grids({"one": SHARES, "two": SHARES.T.copy()}, ["0.7", "1", "1.4"], "source", "target")
    first, second = figure.axes
    assert [text.get_text() for text in first.texts] == ["0", "25", "0", "0", "70", "0", "2", "0", "3"]
    assert [text.get_text() for text in second.texts] == ["0", "0", "2", "25", "70", "0", "0", "0", "3"]
    for text, (row, column) in zip(first.texts, np.ndindex(3, 3), strict=True):
        assert text.get_position() == (column, row)
    (image,) = first.images
    np.testing.assert_array_equal(image.get_array(), SHARES)
    assert image.get_clim() == (0, 1)  # one share has one colour in all grids
    assert [label.get_text() for label in first.get_xticklabels()] == ["0.7", "1", "1.4"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["0.7", "1", "1.4"]
    assert (first.get_title(), first.get_xlabel(), first.get_ylabel()) == ("one", "target", "source")


def test_numbers_can_be_read_on_their_cells() -> None:
    """White on dark cells, black on light ones: at least three times as light, or as dark."""
    shares = np.linspace(0, 1, 16).reshape(4, 4)
    (axes,) = plot_grids({"grid": shares}, list("abcd"), "source", "target").axes
    (image,) = axes.images
    cells = np.asarray(image.to_rgba(shares))[..., :3].reshape(-1, 3)
    linear = np.where(cells <= 0.04045, cells / 12.92, ((cells + 0.055) / 1.055) ** 2.4)
    luminances = linear @ [0.2126, 0.7152, 0.0722]
    for text, luminance in zip(axes.texts, luminances, strict=True):
        letters = {"white": 1.0, "black": 0.0}[str(text.get_color())]
        light, dark = max(letters, luminance), min(letters, luminance)
        assert (light + 0.05) / (dark + 0.05) > 3


def test_grids_are_drawn() -> None:
    pixels = drawn(plot_grids({"grid": np.eye(2)}, ["a", "b"], "source", "target"))
    yellow, violet = ((np.abs(pixels - shade).sum(-1) < 40).sum() for shade in ((253, 231, 37), (68, 1, 84)))
    assert yellow == pytest.approx(violet, rel=0.2)  # one share is on the diagonal, the other beside it
    assert yellow > 500


# ---------------------------------------------------------------- cost


def row(milliseconds: float, megabytes: float | None = 10.0) -> dict[str, float | None]:
    return {"median_ms": milliseconds, "peak_memory_mb": megabytes}


STAGES = {name: {"model": row(1.0), "baseline": row(4.0)} for name in ("backbone", "first vote", "last vote")}
SIZES = {
    "120": {"model": row(5.0), "baseline": row(9.0)},
    "240": {"model": row(20.0), "baseline": row(50.0, None)},
}


def test_bars_have_the_times_of_both() -> None:
    (axes,) = plot_cost({"pair": {"stages": STAGES}}).axes
    assert [patch.get_width() for patch in axes.patches] == [1.0] * 3 + [4.0] * 3
    assert [label.get_text() for label in axes.get_yticklabels()] == list(STAGES)


def test_lines_have_time_and_memory_over_size() -> None:
    time, memory = plot_cost({"growth": {"image_size": SIZES}}).axes
    assert [list(line.get_ydata()) for line in time.lines] == [[5.0, 20.0], [9.0, 50.0]]
    assert [list(line.get_xdata()) for line in memory.lines] == [[120, 240], [120]]  # what was not measured


def test_everything_in_one_picture() -> None:
    assert len(plot_cost({"pair": {"stages": STAGES}, "growth": {"image_size": SIZES}}).axes) == 3


def test_nothing_to_draw() -> None:
    with pytest.raises(InputError, match="pair or growth"):
        plot_cost({"head": {}})
