"""Tables of repeated runs and costs, held against numbers that were computed by hand."""

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from chmnet.experiments import channels, cost, modules, sharing, tuned
from chmnet.experiments.ablation import MISSING, comparison_table, draw_runs, mean_and_deviation, pck_cells
from chmnet.experiments.paired import compare_all
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
FIGURES: dict[str, Any] = {"benchmarks": {"a": "first", "b": "second"}, "rows": ROWS}
CLEAR = {"difference": -2.0, "low": -3.0, "high": -1.0, "p": 0.001}
UNCLEAR = {"difference": 2.5, "low": -0.5, "high": 6.0, "p": 0.2}


def compared(first: str, second: str) -> dict[str, Any]:
    pck = {"a": {"0.05": CLEAR, "0.1": UNCLEAR}, "b": {"0.1": CLEAR}}
    return {"first": first, "second": second, "pck": pck}


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


def test_differences_say_what_is_compared_and_decided() -> None:
    figures = {**FIGURES, "comparisons": [compared("psi-6d", "rhm")]}
    (table,) = comparison_table(figures, {"psi-6d": "whole", "rhm": "part"})
    assert table.headings == ["second against first", "first @0.05", "first @0.1", "second @0.1"]
    clear, unclear = "-2.0 (-3.0 … -1.0)", "+2.5 (-0.5 … +6.0), undecided"
    assert table.rows == [["part against whole", clear, unclear, clear]]
    assert comparison_table(FIGURES, {}) == []


def test_changes_are_against_the_whole_network() -> None:
    rows = {name: ROWS["rhm" if name == "rhm" else "psi-6d"] for name in modules.NAMES}
    comparisons = [compared("psi-6d", name) for name in modules.NAMES if name != "psi-6d"]
    first, second = modules.tables({**FIGURES, "rows": rows, "comparisons": comparisons})
    assert [row[0] for row in first.rows] == list(modules.NAMES.values())
    changes = {row[0]: row[1:] for row in second.rows}
    # The paper's: 77.1 − 80.1 and 89.6 − 91.6.
    assert changes[modules.NAMES["rhm"]][3:] == ["-3.0", "-2.0"]
    assert changes[modules.NAMES["without-votes"]][3:] == ["-18.5", "-13.1"]
    assert all(cells[0] == "-2.0 (-3.0 … -1.0)" for cells in changes.values())
    assert len(changes) == len(MODULES) - 1


def test_channels_are_compared_with_the_fewest() -> None:
    rows = {channels.variant(sharing, number): ROWS["rhm"] for sharing in channels.SHARINGS for number in (2, 8)}
    rows |= dict.fromkeys(channels.CONSENSUS_NAMES, ROWS["rhm"])
    comparisons = [compared("iso-4d-2-channels", "iso-4d-8-channels"), compared("consensus-1", "consensus-16")]
    found = channels.tables({**FIGURES, "channels": [2, 8], "rows": rows, "comparisons": comparisons})
    assert [row[0] for row in found[2].rows] == ["iso, 8 against iso, 2", "{16, 16, 1} against {1, 1, 1}"]


def test_tuned_networks_stand_beside_the_papers() -> None:
    rows = dict.fromkeys([*tuned.NAMES, *tuned.TUNED_NAMES], ROWS["rhm"])
    comparisons = [compared("psi-6d", "tuned-psi-6d")]
    first, second = tuned.tables({**FIGURES, "rows": rows, "comparisons": comparisons})
    assert [row[-2:] for row in first.rows[: len(tuned.NAMES)]] == [[MISSING, MISSING]] * len(tuned.NAMES)
    paper = {row[0]: row[-2:] for row in first.rows[len(tuned.NAMES) :]}
    assert paper["without CHM, tuned"] == ["61.6", "78.5"]
    assert paper["iso, 6D-4D, tuned"] == [KERNELS["iso-6d"].pck_05, KERNELS["iso-6d"].pck_1]
    assert second.rows[0][0] == "psi, 6D-4D, tuned against psi, 6D-4D"


def test_kernels_have_their_cost_and_the_papers() -> None:
    row: dict[str, Any] = {
        "pck": {"a": {"0.1": [50.0, 52.0]}},
        "parameters": 6250,
        "multiply_adds": 1_234_000_000,
        "milliseconds": 12.6,
        "baseline_milliseconds": 99.4,
    }
    scores = {name: {"a": {"0.1": np.full((2, 3), 51.0)}} for name in sharing.NAMES}
    comparisons = compare_all(scores, sharing.COMPARISONS)
    rows = dict.fromkeys(sharing.NAMES, row)
    found = sharing.tables({"benchmarks": {"a": "first"}, "rows": rows, "comparisons": comparisons})
    ours, differences, published = found
    assert ours.rows[0][1:] == ["51.0 ± 1.4", "6,250", "1.23", "13", "99"]
    assert [cells[0] for cells in ours.rows[: len(KERNELS)]] == [cells[0] for cells in published.rows]
    assert [cells[1] for cells in differences.rows] == ["+0.0 (+0.0 … +0.0), undecided"] * len(sharing.COMPARISONS)
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
    assert seed["clutter"]["CHM"]["synthetic"]["pck"] == ours
    (main,) = (row for title, row in seed["main"].items() if title.startswith("nearest"))
    assert seed["clutter"]["nearest neighbours"]["synthetic"]["pck"] == next(iter(main.values()))
