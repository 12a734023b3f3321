"""Robustness to clutter: precision and recall of the most confident matches with respect to the objects' boxes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from chmnet.data import Pair
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table
from chmnet.experiments.store import Model, Store, open_pair
from chmnet.matcher import Matcher
from chmnet.metrics import inside
from chmnet.viz import contact_sheet, draw_inside_matches, plot_precision_recall

TOP = 300
PAIRS_SHOWN = 3


def models(store: Store) -> dict[str, Model]:
    """CHM, its alternatives, and models without training."""
    return {
        "CHM": store.trained("psi-6d"),
        "RHM": store.trained("rhm"),
        "without CHM": store.trained("without-votes"),
        "nearest neighbours": Model("nearest-neighbour", "nearest-neighbour"),
        "chmnet-lite": Model("chmnet-lite", "chmnet-lite"),
    }


def benchmark_name(store: Store) -> str:
    """The benchmark with boxes: the first."""
    return next(iter(store.benchmarks))


def measure(store: Store) -> Figures:
    """The precision-recall curve of every model, and the area under it."""
    name = benchmark_name(store)
    rows: dict[str, Any] = {}
    for title, model in models(store).items():
        result = store.evaluated(model, name)
        found = result["clutter"]
        rows[title] = {
            "area": round(found["area"], 4),
            "recall": [round(value, 4) for value in found["recall"]],
            "precision": [round(value, 4) for value in found["precision"]],
            "pck": {alpha: round(value, 3) for alpha, value in result["pck"].items()},
        }
    label = store.benchmarks[name].label
    return {"benchmarks": {name: label}, "candidates": found["description"], "rows": rows}


def tables(figures: Figures) -> list[Table]:
    """Area under the curve; precision at a tenth and at half of the recall."""
    rows = []
    for title, row in figures["rows"].items():
        at = [np.interp(recall, row["recall"], row["precision"]) for recall in (0.1, 0.5)]
        rows.append([title, f"{row['area']:.3f}", *(f"{value:.3f}" for value in at)])
    (label,) = figures["benchmarks"].values()
    return [Table([f"matches, {label}", "area", "precision at recall 0.1", "precision at recall 0.5"], rows)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """The curves; and the most confident matches of a few pairs, a row per pair, a column per model."""
    curves = {
        title: list(zip(row["recall"], row["precision"], strict=True)) for title, row in figures["rows"].items()
    }
    pairs = store.pairs(benchmark_name(store))
    chosen = [pairs[place] for place in np.linspace(0, len(pairs) - 1, PAIRS_SHOWN + 2).astype(int)[1:-1]]
    drawings, captions = [], []
    matchers = {title: store.matcher(model) for title, model in models(store).items()}
    for pair in chosen:
        for title, matcher in matchers.items():
            drawing, precision = _draw_pair(matcher, pair)
            drawings.append(drawing)
            captions.append(f"{title}, {pair.category}: {100 * precision:.0f} % inside")
    sheet = contact_sheet(drawings, captions, columns=len(matchers), side=None)
    return {"": plot_precision_recall(curves), "-pairs": sheet}


def _draw_pair(matcher: Matcher, pair: Pair) -> tuple[Image.Image, float]:
    source, target = open_pair(pair)
    matches = matcher.match(source, target).matches(TOP, background=True)
    assert pair.source.box is not None, "the benchmark has boxes"
    assert pair.target.box is not None, "the benchmark has boxes"
    right = inside(matches.source, pair.source.box) & inside(matches.target, pair.target.box)
    drawing = draw_inside_matches(source, target, matches.source, matches.target, right, side=200)
    return drawing, float(right.mean())


EXPERIMENT = Experiment(
    "clutter",
    "Robustness to background clutter",
    "figure “PR curves”, and the figures with the top 300 matches",
    measure,
    tables,
    draw,
)
