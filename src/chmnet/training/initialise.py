"""The model at the start of a run: its backbone's weights and the first weights of its matching layers."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from chmnet.errors import ConfigError, WeightsError
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.prior import HoughPrior, apply_hough_prior, fit_projections
from chmnet.training.config import TrainingConfig
from chmnet.weights import MODELS, load_model
from chmnet.weights.backbones import load_backbone_weights
from chmnet.weights.tensors import load_exactly

Features = Callable[[], Tensor]
"""Gives backbone features ``b c h w`` of some training pictures, for initialisations that look at data."""


def build_model(config: TrainingConfig) -> CHMNet:
    """A model with its backbone's weights and random matching layers, the same for the same seed.

    Raises:
        WeightsError: the backbone's weights cannot be had.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = CHMNet(config.model)
    weights = config.backbone_weights
    if not weights and config.init not in ("random", "hough-prior"):
        return model  # its backbone comes with the named model
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


def initialise(model: CHMNet, config: TrainingConfig, features: Features) -> None:
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
    other = load_model(config.init)
    _load_head(model, other, config.init, config.seed)
    if not config.backbone_weights:
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


def fingerprint(module: nn.Module | None) -> str:
    """SHA-256 of a module's weights, to notice another file under the same name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items() if module is not None else []):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
