"""Which pair of scales wins the 6D vote: how often on each data set, and where in a picture."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from chmnet.data import Pair
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table
from chmnet.experiments.store import Model, Store, open_pair
from chmnet.matcher import Matcher
from chmnet.viz import contact_sheet, draw_scales, plot_grids

PAIRS_MEASURED = 150
PAIRS_SHOWN = 4
POINTS_SHOWN = 12


def models(store: Store) -> dict[str, Model]:
    """The network that votes over scales."""
    return {"CHM, EfficientNet-Lite0": store.trained("psi-6d")}


def measure(store: Store) -> Figures:
    """Shares of the scale pairs that won: at the keypoints' matches, and at all positions of the vote."""
    store.check_examples()
    rows: dict[str, Any] = {}
    scales: list[float] = []
    for title, model in models(store).items():
        matcher = store.matcher(model)
        for name, benchmark in store.benchmarks.items():
            pairs = _spread(store.pairs(name), PAIRS_MEASURED)
            store.say(f"winning scales of {title} on {benchmark.label}: {len(pairs)} pairs")
            scales, keypoints, positions = _count(matcher, pairs, store)
            rows.setdefault(title, {})[benchmark.label] = {
                "pairs": len(pairs),
                "keypoints": _shares(keypoints),
                "positions": _shares(positions),
            }
    return {"scales": scales, "rows": rows}


def _spread(pairs: list[Pair], number: int) -> list[Pair]:
    """At most that many pairs, evenly from the whole list."""
    return [pairs[place] for place in np.unique(np.linspace(0, len(pairs) - 1, number).round().astype(int))]


def _count(matcher: Matcher, pairs: list[Pair], store: Store) -> tuple[list[float], np.ndarray, np.ndarray]:
    """The scales, and how often each pair of them (source, target) won."""
    scales = list(matcher.model.head.scales)
    keypoints, positions = (np.zeros((len(scales), len(scales))) for _ in range(2))
    for pair in store.track(pairs):
        result = matcher.match(pair.source.path, pair.target.path, scales=True)
        assert result.scale_pairs is not None, "the model votes over scales"
        positions += np.bincount(result.scale_pairs.flatten(), minlength=len(scales) ** 2).reshape(positions.shape)
        for winner in result.winning_scales(result.transfer(pair.source.keypoints)):
            places = [int(np.abs(np.array(scales) - value).argmin()) for value in winner]
            keypoints[places[0], places[1]] += 1
    return scales, keypoints, positions


def _shares(counts: np.ndarray) -> list[list[float]]:
    return (counts / counts.sum()).round(4).tolist()


def tables(figures: Figures) -> list[Table]:
    """A row for each model and data set: the middle pair, equal scales, and different ones, in percent."""
    rows = []
    middle = len(figures["scales"]) // 2
    for title, benchmarks in figures["rows"].items():
        for label, row in benchmarks.items():
            cells = []
            for kind in ("keypoints", "positions"):
                shares = 100 * np.array(row[kind])
                cells += [shares[middle, middle], np.trace(shares) - shares[middle, middle]]
                cells.append(shares.sum() - np.trace(shares))
            rows.append([title, label, str(row["pairs"]), *(f"{value:.1f}" for value in cells)])
    kinds = ["(1, 1)", "equal, not 1", "different"]
    headings = [f"{where}: {kind} (%)" for where in ("keypoints", "all positions") for kind in kinds]
    return [Table(["model", "data", "pairs", *headings], rows)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """The frequencies as grids; circles on the example pictures, and on pairs of each benchmark."""
    matcher = store.matcher(next(iter(models(store).values())))
    examples = store.example_pairs()[:PAIRS_SHOWN]
    drawn = [_draw_most_confident(matcher, pair.source, pair.target) for pair in examples]
    drawings: dict[str, Drawing] = {
        "": _plot(figures),
        "-examples": contact_sheet(drawn, [pair.title for pair in examples], columns=2, side=None),
    }
    for name in store.benchmarks:
        pairs = _spread(store.pairs(name), PAIRS_SHOWN)
        drawn = [_draw_pair(matcher, pair) for pair in pairs]
        drawings[f"-{name}"] = contact_sheet(drawn, [pair.category for pair in pairs], columns=2, side=None)
    return drawings


def _plot(figures: Figures) -> Figure:
    grids = {
        f"{title}\n{label}": np.array(row["positions"])
        for title, benchmarks in figures["rows"].items()
        for label, row in benchmarks.items()
    }
    names = [f"{scale:.2g}" for scale in figures["scales"]]
    return plot_grids(grids, names, "scale of the source", "scale of the target")


def _draw_most_confident(matcher: Matcher, source: Image.Image, target: Image.Image) -> Image.Image:
    """Circles at some of the 300 most confident matches."""
    result = matcher.match(source, target, scales=True)
    best = result.matches(300, background=True)
    places = np.linspace(0, len(best.source) - 1, POINTS_SHOWN).astype(int)
    matches = type(best)(*(values[places] for values in best))
    return draw_scales(source, target, matches.source, matches.target, result.winning_scales(matches), side=260)


def _draw_pair(matcher: Matcher, pair: Pair) -> Image.Image:
    source, target = open_pair(pair)
    result = matcher.match(source, target, scales=True)
    matches = result.transfer(pair.source.keypoints)
    winners = result.winning_scales(matches)
    return draw_scales(source, target, matches.source, matches.target, winners, pair.target.keypoints, side=260)


EXPERIMENT = Experiment(
    "scales",
    "Winning scales",
    "figure “Frequencies over the maxpooled positions in scale-space”, and the circles of appendix A",
    measure,
    tables,
    draw,
)
