"""The configurations that are shipped."""

from pathlib import Path

import pytest
import torch

from chmnet.nn.chmnet import MatchingHead
from chmnet.toml import TomlConfig
from chmnet.training.config import TrainingConfig
from tests.conftest import REPOSITORY

CONFIGS = sorted((REPOSITORY / "configs").glob("*.toml"))
VOTES = {
    "paper-psi": 275,
    "paper-iso": 60,
    "paper-full": 6250,
    "paper-4d-psi": 110,
    "paper-4d-iso": 30,
    "paper-4d-full": 1250,
    "reference": 275,
}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configurations_are_valid(path: Path) -> None:
    config = TrainingConfig.from_toml(path)
    assert TrainingConfig.from_dict(config.to_dict()) == config
    assert isinstance(config, TomlConfig)


@pytest.mark.parametrize(("name", "votes"), VOTES.items())
def test_published_configurations_have_the_published_numbers_of_weights(name: str, votes: int) -> None:
    config = TrainingConfig.from_toml(REPOSITORY / "configs" / f"{name}.toml")
    with torch.device("meta"):
        head = MatchingHead(config.model, in_channels=1024)
    assert sum(layer.weight.numel() for layer in (head.first, head.last)) == votes
    assert (config.learning_rate, config.backbone_learning_rate) == (1e-3, 1e-5)
    assert not config.frozen


def test_defaults_are_the_papers() -> None:
    config = TrainingConfig.from_toml(REPOSITORY / "configs" / "paper-psi.toml")
    assert config.model.backbone.name == "resnet101"
    assert config.model.loss == "distance"
    assert config.batch_size == 16
    assert [(source.dataset, source.split) for source in (*config.data, *config.validation)] == [
        ("pf-pascal", "train"),
        ("pf-pascal", "val"),
    ]


def test_reference_preset() -> None:
    config = TrainingConfig.from_toml(REPOSITORY / "configs" / "reference.toml")
    assert config.model.loss == "squared-distance"
    assert config.model.backbone.branches == "separate"
    assert config.batch_size == 20
    changed = TrainingConfig.from_dict({"preset": "reference", "model": {"channels": 2}})
    assert (changed.model.channels, changed.model.mutual_filter) == (2, True)
