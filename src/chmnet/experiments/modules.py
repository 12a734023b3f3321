"""Table 3: what is lost when a part of the network is replaced or removed."""

from collections.abc import Mapping

from chmnet.experiments.ablation import comparison_table, draw_runs, measure_variants, pck_cells
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
SEEDS = 3


def measure(store: Store) -> Figures:
    """PCK of the whole network and of each without a part."""
    comparisons = [("psi-6d", variant) for variant in NAMES if variant != "psi-6d"]
    return measure_variants(store, list(NAMES), store.setting.seeds(SEEDS), comparisons)


def tables(figures: Figures) -> list[Table]:
    """PCK, and the change against the whole network beside the paper's on PF-PASCAL."""
    first = to_table([{"network": title, **pck_cells(figures, variant)} for variant, title in NAMES.items()])
    changed = [NAMES[found["second"]] for found in figures["comparisons"]]
    paper = {
        NAMES[variant]: [f"{ours - best:+.1f}" for ours, best in zip(row, MODULES["psi-6d"], strict=True)]
        for variant, row in MODULES.items()
    }
    (second,) = comparison_table(figures, NAMES)
    rows = [[name, *cells[1:], *paper[name]] for name, cells in zip(changed, second.rows, strict=True)]
    headings = ["change against the whole", *second.headings[1:]]
    return [first, Table([*headings, "paper, PF-PASCAL @0.05", "paper, PF-PASCAL @0.1"], rows)]


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
