"""The last columns of table 1: parameters, multiply-adds, time and memory of a pair."""

from collections.abc import Mapping
from typing import Any

from chmnet.config import BackboneConfig, ModelConfig
from chmnet.experiments.ablation import MISSING
from chmnet.experiments.published import METHODS
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table, to_table
from chmnet.experiments.store import Store
from chmnet.viz import plot_bars
from chmnet.weights import MODELS

PAPER = "paper, ResNet-101"
CONSENSUS = "NC-Net's votes, ResNet-101"
CONFIGS: dict[str, ModelConfig] = {
    PAPER: ModelConfig.preset("paper"),
    CONSENSUS: ModelConfig.preset(
        "paper", matching={"kind": "consensus"}, correlation={"scales": [1.0], "reduction": 0}
    ),
    "paper, EfficientNet-Lite0": ModelConfig.preset("paper", backbone=BackboneConfig("efficientnet-lite0")),
    "chmnet-lite": MODELS["chmnet-lite"].config,
}
QUICK = (PAPER, "chmnet-lite")
"""What quick mode measures: each network needs several new processes."""
PUBLISHED = {PAPER: "CHMNet", CONSENSUS: "NC-Net"}


def measure(store: Store) -> Figures:
    """A pair of each configuration, and the same computed the authors' way in the same run."""
    rows: dict[str, Any] = {}
    configs = CONFIGS
    if store.setting.quick:
        size = store.setting.recipe["model"]["image_size"]
        configs = {title: CONFIGS[title].replace(image_size=size) for title in QUICK}
    for title, config in configs.items():
        report = store.cost(title.replace(", ", "-").replace(" ", "-").replace("'", ""), config, "pair")
        whole = report["pair"]["whole"]
        rows[title] = {
            "parameters": report["parameters"],
            "multiply_adds": report["multiply_adds"],
            "model": whole["model"],
            "baseline": whole["baseline"],
            "image_size": report["model"]["image_size"],
            "threads": report["machine"]["threads"],
        }
    return {"rows": rows}


def tables(figures: Figures) -> list[Table]:
    """What was measured here, and the paper's figures on a Titan Xp."""
    rows = []
    for title, row in figures["rows"].items():
        published = METHODS[PUBLISHED[title]] if title in PUBLISHED else None
        model, baseline = row["model"], row["baseline"]
        rows.append(
            {
                "network": title,
                "parameters (M)": f"{row['parameters']['total'] / 1e6:.1f}",
                "in votes": f"{row['parameters']['votes']:,}",
                "multiply-adds (G)": f"{row['multiply_adds']['total'] / 1e9:.1f}",
                f"ms on {row['threads']} threads": f"{model['median_ms']:.0f}",
                "authors' way, ms": f"{baseline['median_ms']:.0f}",
                "ratio": f"{baseline['model_is_faster']:.1f}",
                "working memory (MB)": _megabytes(model["peak_memory_mb"]),
                "authors' way, MB": _megabytes(baseline["peak_memory_mb"]),
                "paper: FLOPs (G)": MISSING if published is None else f"{published.giga_multiply_adds}",
                "paper: ms (GPU)": MISSING if published is None else f"{published.milliseconds}",
                "paper: GB (GPU)": MISSING if published is None else f"{published.gigabytes}",
            }
        )
    return [to_table(rows)]


def _megabytes(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """Time of a pair here and the authors' way."""
    groups = {
        f"{words}: ms of a pair": {title: [row[key]["median_ms"]] for title, row in figures["rows"].items()}
        for words, key in (("here", "model"), ("the authors' way", "baseline"))
    }
    return {"": plot_bars(groups, "milliseconds", from_zero=True)}


EXPERIMENT = Experiment("cost", "What a pair costs", "table 1, FLOPs, time and memory", measure, tables, draw)
