"""Table 1: PCK of our models and baselines on the available benchmarks, and the published rows."""

from collections.abc import Mapping
from typing import Any

from chmnet import data
from chmnet.evaluation import evaluate
from chmnet.experiments.ablation import MISSING
from chmnet.experiments.published import METHODS
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table
from chmnet.experiments.store import Model, Store
from chmnet.metrics import curve
from chmnet.viz import plot_pck

CURVE_ALPHAS = [step / 100 for step in range(1, 21)]
RESNET50 = "resnet50"


def models(store: Store) -> dict[str, Model]:
    """Baselines and the trained models; baselines on ResNet-50 too if its weights are given.

    Labels are those of other experiments: they name the files of predictions, which all share.
    """
    found = {
        "nearest neighbours, EfficientNet-Lite0": Model("nearest-neighbour", "nearest-neighbour"),
        "Hough prior, EfficientNet-Lite0": Model("hough-prior", "hough-prior"),
        "chmnet-lite": Model("chmnet-lite", "chmnet-lite"),
        "chmnet-official, the paper's training list": Model("chmnet-official", "chmnet-official"),
    }
    if store.resnet50:
        weights, nearest, prior = store.resnet50, "nearest neighbours, ResNet-50", "Hough prior, ResNet-50"
        found |= {
            nearest: Model(nearest, "nearest-neighbour", RESNET50, weights),
            prior: Model(prior, "hough-prior", RESNET50, weights),
        }
    return found


def measure(store: Store) -> Figures:
    """PCK by every protocol that the literature uses for a benchmark."""
    rows: dict[str, Any] = {}
    curves: dict[str, Any] = {}
    for title, model in models(store).items():
        row: dict[str, Any] = {}
        for name, benchmark in store.benchmarks.items():
            pairs, file = store.pairs(name), store.predictions(model, name)
            row[benchmark.label] = evaluate(pairs, file, benchmark.protocol)["pck"]
            if name == "pf-pascal":
                alone = data.deduplicate(pairs, data.training_pairs(benchmark.root))
                row["PF-PASCAL without training pairs"] = evaluate(alone, file, benchmark.protocol)["pck"]
            if name == "pf-willow":
                legacy = benchmark.protocol.replace(threshold="bbox-legacy")
                row["PF-WILLOW, legacy threshold"] = evaluate(pairs, file, legacy)["pck"]
            points = curve(pairs, file.predictions.values(), benchmark.protocol, CURVE_ALPHAS)
            curves.setdefault(name, {})[title] = [[alpha, round(value, 2)] for alpha, value in points]
        rows[title] = {
            column: {alpha: round(value, 3) for alpha, value in pck.items()} for column, pck in row.items()
        }
    return {"rows": rows, "curves": curves}


def tables(figures: Figures) -> list[Table]:
    """Ours by every protocol; the paper's table 1."""
    first = next(iter(figures["rows"].values()))
    columns = [(column, alpha) for column, pck in first.items() for alpha in pck]
    ours = [
        [label, *(f"{row[column][alpha]:.1f}" for column, alpha in columns)]
        for label, row in figures["rows"].items()
    ]
    published = [
        [name, row.supervision, *(MISSING if value is None else f"{value:.1f}" for value in row[1:5])]
        for name, row in METHODS.items()
    ]
    willow = "PF-WILLOW, legacy threshold"
    headings = ["PF-PASCAL @0.05", "PF-PASCAL @0.1", f"{willow} @0.05", f"{willow} @0.1"]
    return [
        Table(["model", *(f"{column} @{alpha}" for column, alpha in columns)], ours),
        Table(["published, ResNet-101", "supervision", *headings], published),
    ]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """PCK over the tolerance, a picture for each benchmark; the first one has no ending."""
    plots = {
        name: plot_pck({label: [(x, y) for x, y in points] for label, points in lines.items()})
        for name, lines in figures["curves"].items()
    }
    return {"" if number == 0 else f"-{name}": plot for number, (name, plot) in enumerate(plots.items())}


EXPERIMENT = Experiment("main", "Main results", "table 1, PCK on the benchmarks", measure, tables, draw)
