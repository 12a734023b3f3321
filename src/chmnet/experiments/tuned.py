"""What the votes are worth when the backbone learns with them: kernels, and no votes, on tuned features."""

from collections.abc import Mapping

from chmnet.experiments.ablation import MISSING, comparison_table, draw_runs, measure_variants, pck_cells
from chmnet.experiments.published import KERNELS, MODULES
from chmnet.experiments.recipe import TUNED
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table, to_table
from chmnet.experiments.store import Store

NAMES = {
    "psi-6d": "psi, 6D-4D",
    "full-6d": "full, 6D-4D",
    "iso-6d": "iso, 6D-4D",
    "without-votes": "without CHM",
}
TUNED_NAMES = {f"{TUNED}{variant}": f"{title}, tuned" for variant, title in NAMES.items()}
SEEDS = 1


def measure(store: Store) -> Figures:
    """PCK of each network on frozen features and on ones that learn."""
    names = {**NAMES, **TUNED_NAMES}
    comparisons = [
        *((variant, f"{TUNED}{variant}") for variant in NAMES),
        *((f"{TUNED}psi-6d", variant) for variant in TUNED_NAMES if variant != f"{TUNED}psi-6d"),
        ("psi-6d", "without-votes"),
    ]
    return measure_variants(store, list(names), store.setting.seeds(SEEDS), comparisons)


def tables(figures: Figures) -> list[Table]:
    """PCK beside the paper's, whose backbone learns; which differences are decided."""
    names = {**NAMES, **TUNED_NAMES}
    published = {variant: (row.pck_05, row.pck_1) for variant, row in KERNELS.items()}
    without = MODULES["without-votes"]
    published["without-votes"] = f"{without[0]:.1f}", f"{without[1]:.1f}"
    rows = []
    for variant, title in names.items():
        paper = published[variant.removeprefix(TUNED)] if variant in TUNED_NAMES else (MISSING, MISSING)
        row = {"network": title, **pck_cells(figures, variant)}
        rows.append({**row, "paper, PF-PASCAL @0.05": paper[0], "paper, PF-PASCAL @0.1": paper[1]})
    return [to_table(rows), *comparison_table(figures, names)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """All runs."""
    return draw_runs(figures, {**NAMES, **TUNED_NAMES})


EXPERIMENT = Experiment(
    "tuned",
    "Votes on features that learn",
    "tables 2 and 3, whose backbone is tuned",
    measure,
    tables,
    draw,
    seeds=SEEDS,
)
