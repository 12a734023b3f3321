"""Pictures warped onto others by a thin-plate spline, and failures, with lines as long as the errors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from chmnet.errors import InputError
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table
from chmnet.experiments.store import Model, Store, open_pair
from chmnet.matcher import Matcher
from chmnet.metrics import alpha_key, per_pair
from chmnet.result import MatchResult
from chmnet.viz import contact_sheet, draw_errors

PAIRS_SHOWN = 4
FAILURES_SHOWN = 4
COMPARED = ("chmnet-lite", "hough-prior", "nearest-neighbour")
POINTS = np.array([[0.04, 0.45], [0.1, 0.26], [0.43, 0.27], [0.89, 0.24], [0.35, 0.93], [0.87, 0.68]])
"""Points of the first example picture, a donkey from muzzle to hock, as shares of its width and height."""


def measure(store: Store) -> Figures:
    """How PCK is spread over the pairs of each benchmark: all keypoints right, half, none."""
    store.check_examples()
    rows: dict[str, Any] = {}
    for name in COMPARED:
        for benchmark, wanted in store.benchmarks.items():
            file = store.predictions(Model(name, name), benchmark)
            scores = per_pair(store.pairs(benchmark), file.predictions.values(), wanted.protocol)
            alpha = max(wanted.protocol.alphas)
            values = np.array([score[alpha] for score in scores.values()])
            rows.setdefault(name, {})[wanted.label] = {
                "alpha": alpha_key(alpha),
                "pairs": len(values),
                "all": round(float((values == 100).mean()), 4),
                "half": round(float((values >= 50).mean()), 4),
                "none": round(float((values == 0).mean()), 4),
            }
    return {"rows": rows}


def tables(figures: Figures) -> list[Table]:
    """Shares of pairs in percent."""
    rows = [
        [name, label, row["alpha"], *(f"{100 * row[key]:.1f}" for key in ("all", "half", "none"))]
        for name, benchmarks in figures["rows"].items()
        for label, row in benchmarks.items()
    ]
    headings = ["model", "data", "α", "all keypoints right (%)", "half or more (%)", "none (%)"]
    return [Table(headings, rows)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """Warps of the example pictures; how mirrored and turned pictures fail; both for each benchmark."""
    matchers = {name: store.matcher(Model(name, name)) for name in COMPARED}
    examples = [(pair.title, pair.source, pair.target) for pair in store.example_pairs()]
    drawings: dict[str, Drawing] = {
        "": _draw_warps(matchers, examples),
        "-failures": _draw_known_failures(matchers[COMPARED[0]], examples[0][1]),
    }
    for benchmark, wanted in store.benchmarks.items():
        pairs = store.pairs(benchmark)
        file = store.predictions(Model(COMPARED[0], COMPARED[0]), benchmark)
        scores = per_pair(pairs, file.predictions.values(), wanted.protocol)
        order = sorted(pairs, key=lambda pair: -sum(scores[pair.name].values()))
        shown = [order[place] for place in np.linspace(0, len(order) // 2, PAIRS_SHOWN).astype(int)]
        opened = [(pair.category, *open_pair(pair)) for pair in shown]
        drawings[f"-{benchmark}"] = _draw_warps(matchers, opened)
        worst = order[-FAILURES_SHOWN:]
        found = [file.predictions[pair.name].points for pair in worst]
        errors = [
            draw_errors(*open_pair(pair), pair.source.keypoints, points, pair.target.keypoints)
            for pair, points in zip(worst, found, strict=True)
        ]
        sheet = contact_sheet(errors, [pair.category for pair in worst], columns=2, side=None)
        drawings[f"-{benchmark}-failures"] = sheet
    return drawings


def _draw_warps(matchers: Mapping[str, Matcher], pairs: list[tuple[str, Image.Image, Image.Image]]) -> Image.Image:
    """A row per pair: source, target, and the source warped by each model."""
    pictures, captions = [], []
    for title, source, target in pairs:
        pictures += [source, target]
        captions += [title, "target"]
        for name, matcher in matchers.items():
            pictures.append(_warp(matcher.match(source, target)))
            captions.append(name)
    return contact_sheet(pictures, captions, columns=2 + len(matchers), side=200)


def _warp(result: MatchResult) -> Image.Image:
    """Through the confident matches; a grey picture where these are too few."""
    try:
        return result.warp("tps")
    except InputError:
        height, width = result.target_size
        return Image.new("RGB", (width, height), "#bbbbbb")


def _draw_known_failures(matcher: Matcher, picture: Image.Image) -> Image.Image:
    """A picture matched with itself mirrored and turned: the true positions are known; votes fail."""
    changed = {
        "mirrored": (ImageOps.mirror(picture), np.column_stack([1 - POINTS[:, 0], POINTS[:, 1]])),
        "upside down": (picture.rotate(180), 1 - POINTS),
        "turned by 45°": (picture.rotate(45, fillcolor="white"), _turn(POINTS, picture.size)),
    }
    drawn = []
    for target, truth in changed.values():
        points, true = POINTS * picture.size, truth * target.size
        found = matcher.match(picture, target).locate(points)
        drawn.append(draw_errors(picture, target, points, found, true))
    return contact_sheet(drawn, list(changed), columns=1, side=None)


def _turn(shares: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Points of a picture after a turn by 45° to the left around its middle, as shares of its sides."""
    middle = np.array(size) / 2
    angle = np.deg2rad(45)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return ((shares * size - middle) @ turn.T + middle) / size


EXPERIMENT = Experiment(
    "qualitative",
    "Warped pictures, and failures",
    "figures of TPS-warped results and of failure cases in appendix C",
    measure,
    tables,
    draw,
)
