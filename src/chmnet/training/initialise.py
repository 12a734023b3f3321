"""The model at the start of a run: its backbone's weights and the first weights of its matching layers."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from chmnet.errors import ConfigError, WeightsError
from chmnet.files import load_exactly
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.hough import HoughMatching
from chmnet.nn.prior import HoughPrior, apply_hough_prior, fit_projections
from chmnet.training.config import TrainingConfig
from chmnet.weights import MODELS, load_model
from chmnet.weights.backbones import load_backbone_weights
from chmnet.weights.models import needs_backbone

FeatureMaker = Callable[[], Tensor]
"""Gives backbone features ``b c h w`` of some training pictures, for initialisations that look at data."""


def build_model(config: TrainingConfig) -> CHMNet:
    """A model with its backbone's weights and random matching layers, the same for the same seed.

    Raises:
        WeightsError: the backbone's weights are missing or do not fit.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = CHMNet(config.model)
        if config.initialisation == "reference":
            for layer in (model.head.first, model.head.last):
                if isinstance(layer, HoughMatching) and layer.scale is None:
                    layer.weight.data /= layer.count
    if config.frozen:
        for backbone in (model.backbone, model.target_backbone):
            if backbone is not None:
                backbone.freeze()
    if backbone_from_init(config):
        return model
    weights = config.backbone_weights
    if not weights:
        if config.model.backbone.name != "efficientnet-lite0":
            raise WeightsError(
                f'{config.model.backbone.name} needs weights: set backbone_weights to a file, or "published"'
            )
        weights = "package"
    for backbone in (model.backbone, model.target_backbone):
        if backbone is not None and weights != "random":
            load_backbone_weights(backbone, weights)
    return model


def backbone_from_init(config: TrainingConfig) -> bool:
    """Whether the model that ``config.init`` names gives the weights of the backbone, too."""
    return not config.backbone_weights and config.init not in ("random", "hough-prior")


def initialise(model: CHMNet, config: TrainingConfig, features: FeatureMaker) -> None:
    """Give the model its first weights, as ``config.init`` says.

    Args:
        model: from :func:`build_model`; changed in place.
        config: of the run.
        features: called only where an initialisation needs data.

    Raises:
        ConfigError: the initialisation is not known.
        WeightsError: the named model does not fit.
    """
    if config.init == "random":
        return  # as it was built
    if config.init == "hough-prior":
        apply_hough_prior(model.head, HoughPrior(sharpness=config.prior_sharpness), config.seed)
        _start_fine_branch(model, config.seed)
        if model.head.projections:
            fit_projections(model.head, [features()[:, : model.head.in_channels]])
        return
    if config.init not in MODELS and not Path(config.init).suffix:
        known = ", ".join(MODELS)
        raise ConfigError(f"init must be random, hough-prior, a model file or one of {known}, got {config.init!r}")
    weights = config.backbone_weights if needs_backbone(config.init) else ""
    other = load_model(config.init, backbone_weights=weights)
    _load_head(model, other, config.init, config.seed)
    if backbone_from_init(config):
        for mine, theirs in ((model.backbone, other.backbone), (model.target_backbone, other.target_backbone)):
            if mine is not None:
                load_exactly(mine, (theirs or other.backbone).state_dict(), config.init)


def _load_head(model: CHMNet, other: CHMNet, origin: str, seed: int) -> None:
    """Another model's matching layers; a fine branch that it does not have starts from its last vote.

    A mixing block that the other's fine branch does not have starts as no change.
    """
    values = other.head.state_dict()
    mine, theirs = model.head.fine, other.head.fine
    if mine is not None and theirs is None:
        values |= {f"fine.{name}": value for name, value in mine.state_dict().items()}
    elif mine is not None and theirs is not None and mine.mix is not None and theirs.mix is None:
        values |= {f"fine.mix.{name}": value for name, value in mine.mix.state_dict().items()}
    load_exactly(model.head, values, origin)
    if theirs is None:
        _start_fine_branch(model, seed)


def _start_fine_branch(model: CHMNet, seed: int) -> None:
    """The fine branch, if there is one, as it starts beside trained or prior votes: the same for the same seed."""
    if model.head.fine is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.head.fine.reset_parameters(model.head.last)
