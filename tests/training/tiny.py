"""Training runs so small that they take a second."""

from typing import Any

from chmnet.cli.changes import parse_changes
from chmnet.training.config import TrainingConfig

SYNTHETIC = {"dataset": "synthetic", "count": 8, "views": 2, "points": 5}


def tiny_config(*changes: str, **fields: Any) -> TrainingConfig:
    """Textures at 48 px (a grid of 3×3 features), two steps an epoch, two epochs; ``key=value`` changes."""
    base = {
        "model": {
            "image_size": [48, 48],
            "correlation": {"scales": [1.0]},
            "matching": {"spatial_window": 3},
            "transfer": {"temperature": 0.01},
            "backbone": {"name": "efficientnet-lite0", "layers": ["blocks.4"]},
        },
        "frozen": True,
        "backbone_weights": "random",
        "data": [SYNTHETIC],
        "validation": [{**SYNTHETIC, "count": 4}],
        "epochs": 2,
        "batch_size": 4,
        "log_every": 1,
    }
    return TrainingConfig.from_dict({**base, **fields}).replace(**parse_changes(list(changes)))
