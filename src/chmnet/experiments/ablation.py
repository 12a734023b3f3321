"""Variants of the network side by side: several runs of each, their mean and deviation."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chmnet.experiments.paired import Scores, compare_all, verdict
from chmnet.experiments.runner import Drawing, Figures, Table, to_table
from chmnet.experiments.store import Model, Store
from chmnet.metrics import alpha_key
from chmnet.viz import plot_bars

MISSING = "–"
Comparison = tuple[str, str]
"""Two variants: the one to compare with, and the other."""


def measure_variants(
    store: Store,
    variants: Sequence[str],
    seeds: Sequence[int] | Mapping[str, Sequence[int]],
    comparisons: Sequence[Comparison] = (),
) -> Figures:
    """Train variants of the recipe and measure them on the benchmarks of ablations.

    Args:
        store: makes the models.
        variants: names, see :mod:`chmnet.experiments.recipe`.
        seeds: of all variants, or of each.
        comparisons: which pairs of variants are compared, see :func:`chmnet.experiments.paired.compare`.

    Returns:
        ``benchmarks``: their labels by name; ``rows``: for each variant its seeds, and PCK by benchmark and α, one
        value a seed; ``comparisons``.
    """
    benchmarks = {name: benchmark.label for name, benchmark in store.benchmarks.items() if benchmark.ablations}
    scores: dict[str, dict[str, dict[str, Scores]]] = {}
    rows: dict[str, Any] = {}
    for variant in variants:
        own = seeds[variant] if isinstance(seeds, Mapping) else seeds
        models = [store.trained(variant, seed) for seed in own]
        scores[variant] = {name: _scores(store, models, name) for name in benchmarks}
        pck = {
            name: {alpha: [round(float(run.mean()), 3) for run in runs] for alpha, runs in found.items()}
            for name, found in scores[variant].items()
        }
        rows[variant] = {"seeds": list(own), "pck": pck}
    return {"benchmarks": benchmarks, "rows": rows, "comparisons": compare_all(scores, comparisons)}


def _scores(store: Store, models: Sequence[Model], benchmark: str) -> dict[str, Scores]:
    """PCK by α: a row for each model, a column for each pair with keypoints."""
    runs = [list(store.pair_scores(model, benchmark).values()) for model in models]
    return {
        alpha_key(alpha): np.array([[pair[alpha] for pair in run] for run in runs])
        for alpha in store.benchmarks[benchmark].protocol.alphas
    }


def comparison_table(figures: Figures, names: Mapping[str, str]) -> list[Table]:
    """The differences between variants, second minus first: 95 % intervals, and which are undecided.

    No table where nothing was compared, as in records of version 0.1.
    """
    rows = [
        {
            "second against first": f"{names[found['second']]} against {names[found['first']]}",
            **{
                f"{label} @{alpha}": verdict(difference)
                for name, label in figures["benchmarks"].items()
                for alpha, difference in found["pck"][name].items()
            },
        }
        for found in figures.get("comparisons", ())
    ]
    return [to_table(rows)] if rows else []


def pck_cells(figures: Figures, variant: str) -> dict[str, str]:
    """PCK of a variant by heading: mean and deviation over its runs, for every benchmark and α."""
    return {
        f"{label} @{alpha}": mean_and_deviation(values)
        for name, label in figures["benchmarks"].items()
        for alpha, values in figures["rows"][variant]["pck"][name].items()
    }


def mean_and_deviation(values: Sequence[float]) -> str:
    """Mean, and the sample's standard deviation where there are several.

    Example:
        >>> mean_and_deviation([50.0, 52.0]), mean_and_deviation([50.0])
        ('51.0 ± 1.4', '50.0')
    """
    mean = f"{statistics.fmean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def draw_runs(figures: Figures, names: Mapping[str, str]) -> dict[str, Drawing]:
    """The runs of each variant as dots, with their mean; a panel for each benchmark and α."""
    panels = {
        f"{label} @{alpha}": {
            title: figures["rows"][variant]["pck"][name][alpha] for variant, title in names.items()
        }
        for name, label in figures["benchmarks"].items()
        for alpha in figures["rows"][next(iter(names))]["pck"][name]
    }
    return {"": plot_bars(panels, "PCK (%)")}
