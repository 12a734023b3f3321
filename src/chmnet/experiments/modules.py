"""Table 3: what is lost when a part of the network is replaced or removed."""

import statistics
from collections.abc import Mapping

from chmnet.experiments.ablation import draw_runs, measure_variants, pck_cells
from chmnet.experiments.published import MODULES
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table, to_table
from chmnet.experiments.store import Store

NAMES = {
    "psi-6d": "whole network",
    "rhm": "CHM → RHM",
    "without-last-vote": "without the last CHM layer",
    "without-votes": "without CHM",
    "without-gaussian": "without the kernel G",
    "without-soft-sampler": "without the soft sampler",
}
SEEDS = 2


def measure(store: Store) -> Figures:
    """PCK of the whole network and of each without a part, on the first benchmark, as in the paper."""
    return measure_variants(store, list(NAMES), store.setting.seeds(SEEDS))


def tables(figures: Figures) -> list[Table]:
    """PCK, and the loss against the whole network beside the paper's loss on PF-PASCAL."""
    first = to_table([{"network": title, **pck_cells(figures, variant)} for variant, title in NAMES.items()])
    whole = figures["rows"]["psi-6d"]["pck"]
    rows = []
    for variant, title in list(NAMES.items())[1:]:
        found = figures["rows"][variant]["pck"]
        changes = [
            f"{statistics.fmean(values) - statistics.fmean(whole[name][alpha]):+.1f}"
            for name in figures["benchmarks"]
            for alpha, values in found[name].items()
        ]
        paper = [f"{ours - best:+.1f}" for ours, best in zip(MODULES[variant], MODULES["psi-6d"], strict=True)]
        rows.append([title, *changes, *paper])
    paper_headings = ["paper, PF-PASCAL @0.05", "paper, PF-PASCAL @0.1"]
    return [first, Table(["change against the whole", *first.headings[1:], *paper_headings], rows)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """All runs."""
    return draw_runs(figures, NAMES)


EXPERIMENT = Experiment(
    "modules",
    "Parts of the network replaced or removed",
    "table 3, core modules",
    measure,
    tables,
    draw,
    seeds=SEEDS,
)
