"""Models known by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from chmnet.config import BackboneConfig, ModelConfig, TransferConfig
from chmnet.errors import WeightsError
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.prior import HoughPrior, apply_hough_prior
from chmnet.weights.backbones import load_backbone_weights, read_backbone_file
from chmnet.weights.files import load_model_file

DEFAULT_MODEL = "chmnet-lite"


@dataclass(frozen=True)
class KnownModel:
    """A model that can be asked for by name."""

    description: str
    config: ModelConfig
    prior: HoughPrior | None = None
    """What its Hough layers know; ``None``: their weights are random, or there are none."""
    file: str = ""
    """Its trained weights, a file in the package's folder ``models``; empty: nothing was trained."""
    needs_backbone: bool = False
    """Its backbone's weights do not come with the package: they must be named."""


def load_model(
    model: str | Path = DEFAULT_MODEL,
    backbone: str = "",
    backbone_weights: str | Path = "",
    changes: Mapping[str, Any] | None = None,
) -> CHMNet:
    """A model by name, or from a ``.safetensors`` file, ready for inference.

    Args:
        model: a name from ``MODELS``, or a path.
        backbone: another backbone for a model that learned nothing, such as ``"resnet50"``.
        backbone_weights: that backbone's weights: a file, ``"package"`` or ``"published"``.
        changes: other fields of the configuration, for a model that learned nothing.

    Example:
        >>> load_model("nearest-neighbour").config.matching
        'none'
    """
    if str(model) in MODELS:
        known = MODELS[str(model)]
        if known.file:
            if backbone not in ("", known.config.backbone.name) or changes:
                raise WeightsError(f"{model} was trained as it is; only {', '.join(_untrained())} take changes")
            return load_model_file(model_file(known), backbone_weights)
        chosen = _choose_backbone(known.config, backbone, backbone_weights)
        config = known.config.replace(backbone=chosen)
        if chosen != known.config.backbone:  # other features, other scores
            config = config.replace(transfer={"calibration": ()})
        return _build(config.replace(**(changes or {})), backbone_weights, known.prior)
    if not (Path(model).suffix or Path(model).exists()):
        raise WeightsError(f"there is no model {str(model)!r}; use one of {', '.join(MODELS)}, or a file's path")
    if backbone or changes:
        raise WeightsError(
            f"{model} has its own backbone and configuration; only {', '.join(_untrained())} take others"
        )
    return load_model_file(model, backbone_weights)


def model_file(known: KnownModel) -> Path:
    """Where the trained weights of a known model lie."""
    return Path(__file__).parent.parent / "models" / known.file


def _untrained() -> list[str]:
    return [name for name, known in MODELS.items() if not known.file]


def _choose_backbone(config: ModelConfig, name: str, weights: str | Path) -> BackboneConfig:
    if name in ("", config.backbone.name):
        return config.backbone
    chosen = BackboneConfig.from_dict({"name": name}, where="the backbone")
    if str(weights) not in ("", "package", "published"):
        stride_on = read_backbone_file(Path(weights))[1]
        if stride_on is not None:  # the file says for which of the two places it was made
            return chosen.replace(stride_on=stride_on)
    return chosen


def _build(config: ModelConfig, weights: str | Path, prior: HoughPrior | None) -> CHMNet:
    if not weights and config.backbone.name != "efficientnet-lite0":
        raise WeightsError(
            f"{config.backbone.name} needs weights: name a file, or `published` to download torchvision's"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = CHMNet(config)
    if prior is not None:
        apply_hough_prior(model.head, prior)
    for backbone in (model.backbone, model.target_backbone):
        if backbone is not None:
            load_backbone_weights(backbone, weights or "package")
    return model.eval()


_PRIOR = ModelConfig(
    backbone=BackboneConfig("efficientnet-lite0", ("blocks.8", "blocks.10", "blocks.14")),
    dimensions="4d-4d",
    channel_reduction=0,
    correlation_power=1.5,
    mutual_filter=True,
    # On the 209 validation pairs of PF-PASCAL that are not in its training list; EfficientNet-Lite0.
    transfer=TransferConfig(calibration=(2.939, 0.809, 0.821, 1.766)),
)

MODELS: dict[str, KnownModel] = {
    "chmnet-lite": KnownModel(
        "EfficientNet-Lite0, trained on PF-PASCAL and Animal-Pose; all of it comes with chmnet",
        _PRIOR.replace(channel_reduction=2, transfer=TransferConfig(temperature=0.003)),
        file="chmnet-lite.safetensors",
    ),
    "chmnet-r50": KnownModel(
        "the paper's head trained for ResNet-50 features; needs the file of its backbone, He et al.'s weights",
        ModelConfig(
            backbone=BackboneConfig("resnet50", stride_on="conv1", frozen=True),
            transfer=TransferConfig(temperature=0.003),
            channel_reduction=8,
            correlation_power=1.5,
            mutual_filter=True,
        ),
        file="chmnet-r50.safetensors",
        needs_backbone=True,
    ),
    "hough-prior": KnownModel(
        "EfficientNet-Lite0 features, Gaussian Hough votes, nothing learned", _PRIOR, prior=HoughPrior()
    ),
    "nearest-neighbour": KnownModel(
        "EfficientNet-Lite0 features, best match of each position, nothing learned",
        ModelConfig(
            backbone=BackboneConfig("efficientnet-lite0"),
            transfer=TransferConfig(temperature=1 / 200),
            matching="none",
            dimensions="4d-4d",
            channel_reduction=0,
        ),
    ),
}
