"""Which pair of scales wins the 6D vote: how often on each data set, and where in a picture."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image

from chmnet.data import Pair
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table, to_table
from chmnet.experiments.store import Model, Store, open_pair
from chmnet.matcher import Matcher
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.hough import HoughMatching
from chmnet.viz import contact_sheet, draw_scales, plot_grids

PAIRS_MEASURED = 60
PAIRS_SHOWN = 4
POINTS_SHOWN = 12
SCALES = [0.5**0.5, 1.0, 2**0.5]
TRAINED = "trained"
VARIANTS = {
    TRAINED: "psi-6d",
    "trained with present": "psi-6d-scale-present",
}
"""The recipe's network, and the same with what it hears beyond its scales read otherwise."""
WITHOUT_PCK = "pf-willow"
"""Of 900 pairs; PCK of the readings is compared on the other benchmarks."""


def networks(store: Store) -> dict[str, CHMNet]:
    """Untrained and trained networks that vote over scales, by how the borders of the scales are read."""
    size = {key: value for key, value in store.setting.recipe["model"].items() if key == "image_size"}
    trained = {title: store.trained(variant).load() for title, variant in VARIANTS.items()}
    prior = Model("", "hough-prior", changes={"correlation": {"scales": SCALES}, **size}).load()
    return {
        TRAINED: trained[TRAINED],
        "equal votes, untrained": _with_equal_votes(prior),
        "Hough prior, untrained": prior,
        "Hough prior, present": read_borders(prior, "present"),
        "Hough prior, replicate": read_borders(prior, "replicate"),
        f"{TRAINED}, then present": read_borders(trained[TRAINED], "present"),
        f"{TRAINED}, then replicate": read_borders(trained[TRAINED], "replicate"),
        **{title: network for title, network in trained.items() if title != TRAINED},
    }


def read_borders(model: CHMNet, borders: str) -> CHMNet:
    """The same weights in a network that reads the borders of the scales otherwise."""
    other = CHMNet(model.config.replace(matching={"scale_borders": borders})).eval()
    other.load_state_dict(model.state_dict())
    return other


def _with_equal_votes(model: CHMNet) -> CHMNet:
    """All taps of the first vote alike, their sum as before."""
    other = read_borders(model, "zero")
    first = other.head.first
    assert isinstance(first, HoughMatching)
    with torch.no_grad():
        first.weight.copy_(first.count * first.weight.sum() / first.count.sum())
    return other


def measure(store: Store) -> Figures:
    """Shares of the scale pairs that won: at the keypoints' matches, and at all positions of the vote; PCK."""
    store.check_examples()
    rows: dict[str, Any] = {}
    for title, network in networks(store).items():
        matcher = Matcher(network, store.device, poses="upright")
        for name, benchmark in store.benchmarks.items():
            pairs = spread_pairs(store.pairs(name), PAIRS_MEASURED)
            store.say(f"winning scales of {title} on {benchmark.label}: {len(pairs)} pairs")
            keypoints, positions = _count(matcher, pairs, store)
            rows.setdefault(title, {})[benchmark.label] = {
                "pairs": len(pairs),
                "keypoints": _shares(keypoints),
                "positions": _shares(positions),
            }
    pck = {
        title: {
            benchmark.label: {
                alpha: round(value, 3)
                for alpha, value in store.evaluated(store.trained(variant), name)["pck"].items()
            }
            for name, benchmark in store.benchmarks.items()
            if name != WITHOUT_PCK
        }
        for title, variant in VARIANTS.items()
    }
    return {"scales": SCALES, "rows": rows, "pck": pck}


def spread_pairs(pairs: list[Pair], number: int) -> list[Pair]:
    """At most that many pairs, evenly from the whole list."""
    return [pairs[place] for place in np.unique(np.linspace(0, len(pairs) - 1, number).round().astype(int))]


def _count(matcher: Matcher, pairs: list[Pair], store: Store) -> tuple[np.ndarray, np.ndarray]:
    """How often each pair of scales (source, target) won."""
    keypoints, positions = (np.zeros((len(SCALES), len(SCALES))) for _ in range(2))
    for pair in store.track(pairs):
        result = matcher.match(pair.source.path, pair.target.path, scales=True)
        assert result.scale_pairs is not None, "the model votes over scales"
        positions += np.bincount(result.scale_pairs.flatten(), minlength=len(SCALES) ** 2).reshape(positions.shape)
        for winner in result.winning_scales(result.transfer(pair.source.keypoints)):
            places = [int(np.abs(np.array(SCALES) - value).argmin()) for value in winner]
            keypoints[places[0], places[1]] += 1
    return keypoints, positions


def _shares(counts: np.ndarray) -> list[list[float]]:
    return (counts / counts.sum()).round(4).tolist()


def tables(figures: Figures) -> list[Table]:
    """A row for each network and data set: the middle pair, equal scales, and different ones, in percent; PCK."""
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
    pck = [
        {"network": title}
        | {
            f"{label} @{alpha}": f"{value:.1f}"
            for label, found in labels.items()
            for alpha, value in found.items()
        }
        for title, labels in figures["pck"].items()
    ]
    return [Table(["network", "data", "pairs", *headings], rows), to_table(pck)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """The frequencies as grids; circles on the example pictures, and on pairs of each benchmark."""
    matcher = store.matcher(store.trained(VARIANTS[TRAINED]))
    examples = store.example_pairs()[:PAIRS_SHOWN]
    drawn = [_draw_most_confident(matcher, pair.source, pair.target) for pair in examples]
    drawings: dict[str, Drawing] = {
        "": _plot(figures),
        "-examples": contact_sheet(drawn, [pair.title for pair in examples], columns=2, side=None),
    }
    for name in store.benchmarks:
        pairs = spread_pairs(store.pairs(name), PAIRS_SHOWN)
        drawn = [_draw_pair(matcher, pair) for pair in pairs]
        drawings[f"-{name}"] = contact_sheet(drawn, [pair.category for pair in pairs], columns=2, side=None)
    return drawings


def _plot(figures: Figures) -> Figure:
    grids = {
        f"{title}\n{label}": np.array(row["keypoints"])
        for title, benchmarks in figures["rows"].items()
        if title in VARIANTS
        for label, row in benchmarks.items()
        if label in next(iter(figures["pck"].values()))
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
