import pytest

from chmnet.errors import InputError
from chmnet.viz import plot_cost


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
    with pytest.raises(InputError, match="nothing to draw: measure pair or growth"):
        plot_cost({"head": {}})
