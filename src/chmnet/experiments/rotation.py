"""Rotation as a dimension of the vote, which the paper names as the next step: turned targets, three ways."""

import time
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from chmnet.benchmark.counts import count_multiply_adds
from chmnet.data import Pair
from chmnet.experiments.ablation import MISSING
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table, to_table
from chmnet.experiments.scales import spread_pairs
from chmnet.experiments.store import Model, Store
from chmnet.geometry import normalised_to_pixels
from chmnet.matcher import Matcher
from chmnet.metrics import hits
from chmnet.nn.chmnet import CHMNet
from chmnet.pictures import View
from chmnet.viz import plot_bars

PAIRS_MEASURED = 40
ANGLES = (0, 30, 45, 90, 180)
"""Degrees that targets are turned by, in a frame around all of the picture."""
ALPHAS = (0.05, 0.1)
SCALES = [0.5**0.5, 1.0, 2**0.5]
TURNS = [45.0 * number for number in range(8)]
QUICK_TURNS = [0.0, 180.0, 270.0]
PLAIN, SEARCH = "prior 6D", "prior 6D, pose search"
TURNING, HEARING = "prior 6D, turns voted on", "prior 6D, turns hear each other"
TRAINED, TRAINED_TURNING = "trained 6D", "trained 6D, turns voted on"


def networks(store: Store) -> dict[str, tuple[CHMNet, str]]:
    """The networks, and the poses that are tried of the target. No weight was trained for turns."""
    turns = QUICK_TURNS if store.setting.quick else TURNS
    size = {key: value for key, value in store.setting.recipe["model"].items() if key == "image_size"}

    def prior(rotations: list[float], window: int = 1) -> CHMNet:
        changes = {"correlation": {"scales": SCALES, "rotations": rotations}, **size}
        return Model("", "hough-prior", changes={**changes, "matching": {"rotation_window": window}}).load()

    trained = store.trained("psi-6d").load()
    return {
        PLAIN: (prior([0.0]), "upright"),
        SEARCH: (prior([0.0]), "any"),
        TURNING: (prior(turns), "upright"),
        HEARING: (prior(turns, window=3), "upright"),
        TRAINED: (trained, "upright"),
        TRAINED_TURNING: (with_turns(trained, turns), "upright"),
    }


def with_turns(model: CHMNet, rotations: list[float]) -> CHMNet:
    """The same weights in a network that sees the target turned."""
    turning = CHMNet(model.config.replace(correlation={"rotations": rotations})).eval()
    turning.load_state_dict(model.state_dict())
    return turning


def measure(store: Store) -> Figures:
    """PCK of pairs whose target is turned, and what a pair costs."""
    name = "pf-willow" if "pf-willow" in store.benchmarks else next(iter(store.benchmarks))
    benchmark = store.benchmarks[name]
    pairs = spread_pairs(store.pairs(name), PAIRS_MEASURED)
    rows: dict[str, Any] = {}
    scores: dict[str, dict[int, np.ndarray]] = {}
    for title, (network, poses) in networks(store).items():
        matcher = Matcher(network, store.device, poses=poses)
        seconds: list[float] = []
        scores[title] = {}
        for angle in ANGLES:
            store.say(f"{title}: {len(pairs)} pairs of {benchmark.label}, targets turned by {angle}°")
            found = []
            for pair in store.track(pairs):
                started = time.process_time()
                found.append(_correct(matcher, pair, angle))
                seconds.append(time.process_time() - started)
            scores[title][angle] = np.array(found)
        means = {angle: (100 * values.mean(0)).round(2).tolist() for angle, values in scores[title].items()}
        size = (network.config.image_size[0], network.config.image_size[1])
        rows[title] = {
            "pck": {
                f"{angle}": dict(zip(map(str, ALPHAS), values, strict=True)) for angle, values in means.items()
            },
            "multiply_adds": count_multiply_adds(network, size)["total"],
            "seconds": round(median(seconds), 3),
        }
    gains = {
        f"{angle}": _mean_and_error(scores[TURNING][angle][:, -1] - scores[SEARCH][angle][:, -1])
        for angle in ANGLES
    }
    return {"benchmarks": {name: benchmark.label}, "pairs": len(pairs), "rows": rows, "over_search": gains}


def _correct(matcher: Matcher, pair: Pair, angle: float) -> list[float]:
    """Share of keypoints within each α of the longer side of the target's keypoints' box, which was upright."""
    view = replace(View.of(pair.target.path), turn=angle)
    picture = view.image()
    truth = normalised_to_pixels(view.from_picture(pair.target.keypoints), (picture.height, picture.width))
    found = matcher.match(pair.source.path, picture).locate(pair.source.keypoints)
    distances = np.linalg.norm(found - truth, axis=1)
    side = float(np.ptp(pair.target.keypoints, axis=0).max())
    return [float(hits(distances, alpha * side).mean()) for alpha in ALPHAS]


def _mean_and_error(differences: np.ndarray) -> list[float]:
    """Mean in percent, and its standard error over the pairs."""
    error = differences.std(ddof=1) / len(differences) ** 0.5
    return [round(100 * float(differences.mean()), 2), round(100 * float(error), 2)]


def tables(figures: Figures) -> list[Table]:
    """PCK at both α by angle, cost; and what voting gains over searching, in points."""
    rows = []
    for title, row in figures["rows"].items():
        cells = {f"turned by {angle}°": _pck(values) for angle, values in row["pck"].items()}
        cells["multiply-adds (G)"] = MISSING if title == SEARCH else f"{row['multiply_adds'] / 1e9:.1f}"
        rows.append({"network": title, **cells, "CPU seconds a pair": f"{row['seconds']:.2f}"})
    gains = {
        f"turned by {angle}°": f"{mean:+.1f} ± {error:.1f}"
        for angle, (mean, error) in figures["over_search"].items()
    }
    return [to_table(rows), to_table([{"PCK@0.1": f"“{TURNING}” less “{SEARCH}”", **gains}])]


def _pck(values: Mapping[str, float]) -> str:
    return " / ".join(f"{value:.1f}" for value in values.values())


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """Bars for each angle."""
    groups = {
        f"turned by {angle}°": {title: [row["pck"][f"{angle}"]["0.1"]] for title, row in figures["rows"].items()}
        for angle in ANGLES
    }
    return {"": plot_bars(groups, "PCK@0.1 (%)", from_zero=True)}


EXPERIMENT = Experiment(
    "rotation",
    "Rotation as a dimension of the vote",
    "nowhere; section 3.2 names rotation as a further dimension",
    measure,
    tables,
    draw,
)
