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


def benchmark_names(store: Store) -> list[str]:
    """The benchmarks with boxes."""
    return [
        name
        for name in store.benchmarks
        if all(side.box is not None for pair in store.pairs(name) for side in (pair.source, pair.target))
    ]


def measure(store: Store) -> Figures:
    """The precision-recall curve of every model on every benchmark with boxes, and the area under it."""
    names = benchmark_names(store)
    rows: dict[str, dict[str, Any]] = {}
    for title, model in models(store).items():
        for name in names:
            result = store.evaluated(model, name)
            found = result["clutter"]
            rows.setdefault(title, {})[name] = {
                "area": round(found["area"], 4),
                "recall": [round(value, 4) for value in found["recall"]],
                "precision": [round(value, 4) for value in found["precision"]],
                "pck": {alpha: round(value, 3) for alpha, value in result["pck"].items()},
            }
    labels = {name: store.benchmarks[name].label for name in names}
    return {"benchmarks": labels, "candidates": found["description"], "rows": rows}


def tables(figures: Figures) -> list[Table]:
    """Area under the curve; precision at a tenth and at half of the recall."""
    kinds = ["area", "precision at recall 0.1", "precision at recall 0.5"]
    headings = [f"{label}: {kind}" for label in figures["benchmarks"].values() for kind in kinds]
    rows = []
    for title, found in figures["rows"].items():
        cells = [title]
        for name in figures["benchmarks"]:
            row = found[name]
            at = [np.interp(recall, row["recall"], row["precision"]) for recall in (0.1, 0.5)]
            cells += [f"{row['area']:.3f}", *(f"{value:.3f}" for value in at)]
        rows.append(cells)
    return [Table(["matches", *headings], rows)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """The curves; and the most confident matches of a few pairs, a row per pair, a column per model."""
    matchers = {title: store.matcher(model) for title, model in models(store).items()}
    drawings: dict[str, Drawing] = {}
    for number, name in enumerate(figures["benchmarks"]):
        curves = {
            title: list(zip(row[name]["recall"], row[name]["precision"], strict=True))
            for title, row in figures["rows"].items()
        }
        drawings["" if number == 0 else f"-{name}"] = plot_precision_recall(curves)
        drawings[f"-{name}-pairs"] = _draw_pairs(matchers, store.pairs(name))
    return drawings


def _draw_pairs(matchers: Mapping[str, Matcher], pairs: list[Pair]) -> Image.Image:
    chosen = [pairs[place] for place in np.linspace(0, len(pairs) - 1, PAIRS_SHOWN + 2).astype(int)[1:-1]]
    drawings, captions = [], []
    for pair in chosen:
        for title, matcher in matchers.items():
            drawing, precision = _draw_pair(matcher, pair)
            drawings.append(drawing)
            captions.append(f"{title}, {pair.category}: {100 * precision:.0f} % inside")
    return contact_sheet(drawings, captions, columns=len(matchers), side=None)


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
