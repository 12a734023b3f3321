"""Tables of repeated runs and costs, held against numbers that were computed by hand."""

from typing import Any

import pytest
from matplotlib.figure import Figure

from chmnet.experiments import cost, modules, sharing
from chmnet.experiments.ablation import MISSING, draw_runs, mean_and_deviation, pck_cells
from chmnet.experiments.published import KERNELS, METHODS, MODULES

from .conftest import QuickRuns


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([50.0], "50.0"),
        ([1.0, 3.0], "2.0 ± 1.4"),  # √2: the sample's deviation, not the population's
        ([2.0, 4.0, 6.0], "4.0 ± 2.0"),
        ([7.0, 7.0], "7.0 ± 0.0"),
        ([0.04], "0.0"),
    ],
)
def test_mean_and_deviation(values: list[float], text: str) -> None:
    assert mean_and_deviation(values) == text


ROWS = {
    "psi-6d": {"pck": {"a": {"0.05": [10.0, 12.0], "0.1": [40.0, 40.0]}, "b": {"0.1": [50.0]}}},
    "rhm": {"pck": {"a": {"0.05": [9.0], "0.1": [42.5]}, "b": {"0.1": [20.0]}}},
}
FIGURES = {"benchmarks": {"a": "first", "b": "second"}, "rows": ROWS}


def test_cells_stand_below_their_headings() -> None:
    cells = {"first @0.05": "11.0 ± 1.4", "first @0.1": "40.0 ± 0.0", "second @0.1": "50.0"}
    assert list(pck_cells(FIGURES, "psi-6d").items()) == list(cells.items())
    drawn = draw_runs(FIGURES, {"psi-6d": "whole", "rhm": "part"})[""]
    assert isinstance(drawn, Figure)
    dots = {
        axes.get_title(): [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
        for axes in drawn.axes
    }
    assert dots == {
        "first @0.05": [[10.0, 12.0], [9.0]],
        "first @0.1": [[40.0, 40.0], [42.5]],
        "second @0.1": [[50.0], [20.0]],
    }
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["whole", "part"]


def test_losses_are_against_the_whole_network() -> None:
    rows = {name: ROWS["rhm" if name == "rhm" else "psi-6d"] for name in modules.NAMES}
    first, second = modules.tables({**FIGURES, "rows": rows})
    assert [row[0] for row in first.rows] == list(modules.NAMES.values())
    changes = {row[0]: row[1:] for row in second.rows}
    # The paper's: 77.1 − 80.1 and 89.6 − 91.6.
    assert changes[modules.NAMES["rhm"]] == ["-2.0", "+2.5", "-30.0", "-3.0", "-2.0"]
    assert changes[modules.NAMES["without-votes"]] == ["+0.0", "+0.0", "+0.0", "-18.5", "-13.1"]
    assert len(changes) == len(MODULES) - 1


def test_kernels_have_their_cost_and_the_papers() -> None:
    row: dict[str, Any] = {
        "pck": {"a": {"0.1": [50.0, 52.0]}},
        "parameters": 6250,
        "multiply_adds": 1_234_000_000,
        "milliseconds": 12.6,
        "baseline_milliseconds": 99.4,
    }
    ours, published = sharing.tables({"benchmarks": {"a": "first"}, "rows": dict.fromkeys(sharing.NAMES, row)})
    assert ours.rows[0][1:] == ["51.0 ± 1.4", "6,250", "1.23", "13", "99"]
    assert [cells[0] for cells in ours.rows] == [cells[0] for cells in published.rows]
    assert [cells[3] for cells in published.rows] == ["275", "6,250", "60", "110", "1,250", "30", "275"]
    assert [cells[4] for cells in published.rows].count(MISSING) == 1
    assert published.rows[-1][1] == KERNELS["psi-6d-sparse"].pck_05


def test_costs_stand_beside_those_of_the_paper() -> None:
    row = {
        "threads": 2,
        "parameters": {"total": 28_960_000, "votes": 6250},
        "multiply_adds": {"total": 19_640_000_000},
        "model": {"median_ms": 400.4, "peak_memory_mb": None},
        "baseline": {"median_ms": 1000.6, "model_is_faster": 2.5, "peak_memory_mb": 812.3},
    }
    (table,) = cost.tables({"rows": dict.fromkeys(cost.CONFIGS, row)})
    assert len(table.rows) == 4
    for cells in table.rows:
        assert cells[1:9] == ["29.0", "6,250", "19.6", "400", "1001", "2.5", MISSING, "812"]
        published = METHODS[cost.PUBLISHED[cells[0]]] if cells[0] in cost.PUBLISHED else None
        assert cells[9:] == ([str(value) for value in published[-3:]] if published else [MISSING] * 3)
    assert set(cost.QUICK) <= set(cost.CONFIGS)


def test_what_is_measured_is_the_papers_network() -> None:
    paper, consensus = cost.CONFIGS[cost.PAPER], cost.CONFIGS[cost.CONSENSUS]
    assert paper.backbone.name == consensus.backbone.name == "resnet101"
    assert (paper.matching.kind, consensus.matching.kind) == ("hough", "consensus")
    assert len(paper.correlation.scales) == 3


# ---------------------------------------------------------------- where tables agree


@pytest.mark.slow
def test_one_model_has_one_figure_in_all_tables(quick: QuickRuns) -> None:
    """The whole network of table 3 is a kernel of table 2; nearest neighbours of figures are those of table 1."""
    seed = {name: quick(name).record()["figures"]["rows"] for name in ("kernels", "modules", "clutter", "main")}
    ours = {alpha: runs[0] for alpha, runs in seed["kernels"]["psi-6d"]["pck"]["synthetic"].items()}
    assert {alpha: runs[0] for alpha, runs in seed["modules"]["psi-6d"]["pck"]["synthetic"].items()} == ours
    assert seed["clutter"]["CHM"]["pck"] == ours
    (main,) = (row for title, row in seed["main"].items() if title.startswith("nearest"))
    assert seed["clutter"]["nearest neighbours"]["pck"] == next(iter(main.values()))
