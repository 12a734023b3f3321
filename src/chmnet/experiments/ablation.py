"""Variants of the network side by side: several runs of each, their mean and deviation."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from chmnet.experiments.runner import Drawing, Figures
from chmnet.experiments.store import Store
from chmnet.viz import plot_bars

MISSING = "–"


def measure_variants(
    store: Store, variants: Sequence[str], seeds: Sequence[int] | Mapping[str, Sequence[int]]
) -> Figures:
    """Train variants of the recipe and measure them on the first benchmark, as the paper does.

    Args:
        store: makes the models.
        variants: names, see :mod:`chmnet.experiments.recipe`.
        seeds: of all variants, or of each.

    Returns:
        ``benchmarks``: its label by name; ``rows``: for each variant its seeds, and PCK by benchmark and α, one
        value a seed.
    """
    name, benchmark = next(iter(store.benchmarks.items()))
    rows: dict[str, Any] = {}
    for variant in variants:
        own = seeds[variant] if isinstance(seeds, Mapping) else seeds
        found: dict[str, list[float]] = {}
        for seed in own:
            for alpha, value in store.evaluated(store.trained(variant, seed), name)["pck"].items():
                found.setdefault(alpha, []).append(round(value, 3))
        rows[variant] = {"seeds": list(own), "pck": {name: found}}
    return {"benchmarks": {name: benchmark.label}, "rows": rows}


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
