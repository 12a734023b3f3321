"""Models known by name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from chmnet.config import BackboneConfig, ModelConfig, TransferConfig
from chmnet.errors import WeightsError
from chmnet.nn.chmnet import CHMNet
from chmnet.weights.backbones import load_backbone_weights
from chmnet.weights.files import load_model_file

DEFAULT_MODEL = "untrained"


@dataclass(frozen=True)
class KnownModel:
    """A model that can be asked for by name."""

    description: str
    build: Callable[[], CHMNet]


def load_model(model: str | Path = DEFAULT_MODEL) -> CHMNet:
    """A model by name, or from a ``.safetensors`` file, ready for inference.

    Example:
        >>> load_model("nearest-neighbour").config.matching
        'none'
    """
    if str(model) in MODELS:
        return MODELS[str(model)].build()
    if Path(model).suffix or Path(model).exists():
        return load_model_file(model)
    raise WeightsError(f"there is no model {str(model)!r}; use one of {', '.join(MODELS)}, or a file's path")


_LITE = BackboneConfig("efficientnet-lite0")


def _untrained() -> CHMNet:
    # Random votes are all in favour: a blur over neighbouring matches. A low temperature makes that usable.
    return _with_package_backbone(
        ModelConfig(
            backbone=_LITE,
            transfer=TransferConfig(temperature=1e-4),
            channel_reduction=0,
            mutual_filter=True,
        )
    )


def _nearest_neighbour() -> CHMNet:
    return _with_package_backbone(
        ModelConfig(
            backbone=_LITE,
            transfer=TransferConfig(temperature=1 / 200),
            matching="none",
            dimensions="4d-4d",
            channel_reduction=0,
        )
    )


def _with_package_backbone(config: ModelConfig) -> CHMNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CHMNet(config)
    load_backbone_weights(model.backbone, "package")
    return model.eval()


MODELS: dict[str, KnownModel] = {
    "untrained": KnownModel("EfficientNet-Lite0 backbone; Hough layers not trained yet", _untrained),
    "nearest-neighbour": KnownModel(
        "EfficientNet-Lite0 features, best match of each position, nothing learned", _nearest_neighbour
    ),
}
