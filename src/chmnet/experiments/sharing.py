"""Table 2: which weights the Hough layers share, and in how many dimensions they vote."""

from collections.abc import Mapping

from chmnet.experiments.ablation import MISSING, comparison_table, draw_runs, measure_variants, pck_cells
from chmnet.experiments.published import KERNELS
from chmnet.experiments.recipe import training_config
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table, to_table
from chmnet.experiments.store import Store

NAMES = {
    "psi-6d": "psi, 6D-4D",
    "full-6d": "full, 6D-4D",
    "iso-6d": "iso, 6D-4D",
    "psi-4d": "psi, 4D-4D",
    "full-4d": "full, 4D-4D",
    "iso-4d": "iso, 4D-4D",
    "psi-6d-sparse": "psi, 6D-4D, K = 10",
    "pivot-6d": "psi, center-pivot, 6D-4D",
    "pivot-6d-joint": "psi, center-pivot with scale, 6D-4D",
    "pivot-4d": "psi, center-pivot, 4D-4D",
}
COMPARISONS = (
    *(("psi-6d", other) for other in ("iso-6d", "full-6d", "psi-6d-sparse", "pivot-6d", "pivot-6d-joint")),
    *(("psi-4d", other) for other in ("iso-4d", "full-4d", "pivot-4d")),
    *((f"{sharing}-4d", f"{sharing}-6d") for sharing in ("psi", "iso", "full", "pivot")),
)
SEEDS = 3


def measure(store: Store) -> Figures:
    """PCK of three runs of each kernel; weights, multiply-adds and time of all that follows the backbone."""
    figures = measure_variants(store, list(NAMES), store.setting.seeds(SEEDS), COMPARISONS)
    for variant, row in figures["rows"].items():
        cost = store.cost(variant, training_config(variant, 0, store.setting.recipe).model, "head")
        figures["threads"] = cost["machine"]["threads"]
        row["parameters"] = cost["parameters"]["votes"]
        row["multiply_adds"] = cost["multiply_adds"]["total"] - cost["multiply_adds"]["backbone"]
        row["milliseconds"] = cost["head"]["forward"]["model"]["median_ms"]
        row["baseline_milliseconds"] = cost["head"]["forward"]["baseline"]["median_ms"]
    return figures


def tables(figures: Figures) -> list[Table]:
    """What was measured, which differences are decided, and what the paper reports."""
    measured = []
    for variant, title in NAMES.items():
        if variant not in figures["rows"]:
            continue  # a record from before there was this variant
        row = figures["rows"][variant]
        measured.append(
            {
                "kernel": title,
                **pck_cells(figures, variant),
                "weights": f"{row['parameters']:,}",
                "head, G multiply-adds": f"{row['multiply_adds'] / 1e9:.2f}",
                "head, ms": f"{row['milliseconds']:.0f}",
                "authors' way, ms": f"{row['baseline_milliseconds']:.0f}",
            }
        )
    published = [
        {
            "kernel (paper, ResNet-101)": NAMES[variant],
            "PF-PASCAL @0.05": row.pck_05,
            "PF-PASCAL @0.1": row.pck_1,
            "weights": f"{row.parameters:,}",
            "FLOPs (G)": MISSING if row.giga_multiply_adds is None else str(row.giga_multiply_adds),
            "ms": str(row.milliseconds),
        }
        for variant, row in KERNELS.items()
    ]
    return [to_table(measured), *comparison_table(figures, NAMES), to_table(published)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """All runs."""
    return draw_runs(figures, NAMES)


EXPERIMENT = Experiment(
    "kernels", "Kernels of the Hough layers", "table 2, PCK over kernel types", measure, tables, draw, seeds=SEEDS
)
