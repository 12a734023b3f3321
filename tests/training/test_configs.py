"""The configurations that are shipped."""

from pathlib import Path

import pytest
import torch

from chmnet.config import CalibrationConfig
from chmnet.errors import ConfigError, WeightsError
from chmnet.nn.chmnet import MatchingHead
from chmnet.tables import TomlConfig
from chmnet.training.config import TrainingConfig
from chmnet.training.initialise import build_model
from chmnet.weights.models import read_model_config
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
    assert (config.loss, config.initialisation) == ("distance", "scaled")
    assert config.batch_size == 16
    assert [(source.dataset, source.split) for source in (*config.data, *config.validation)] == [
        ("pf-pascal", "train"),
        ("pf-pascal", "val"),
    ]


def test_reference_preset() -> None:
    config = TrainingConfig.from_toml(REPOSITORY / "configs" / "reference.toml")
    assert (config.loss, config.initialisation) == ("squared-distance", "reference")
    assert config.model.backbone.branches == "separate"
    assert config.batch_size == 20
    changed = TrainingConfig.from_dict({"preset": "reference", "model": {"matching": {"channels": 2}}})
    assert (changed.model.matching.channels, changed.model.output.mutual_filter) == (2, True)


@pytest.mark.parametrize("kind", ["scaled", "reference"])
def test_initialisation(kind: str) -> None:
    """Both layers' weights grow with their groups; in the authors' code the 4D layer's do not."""
    config = TrainingConfig.from_dict({"initialisation": kind, "backbone_weights": "random"})
    head = build_model(config.replace(model={"backbone": {"name": "resnet18"}})).head
    assert (head.first.weight.mean() > 0.01).item()
    assert (head.last.weight.mean() > 0.002).item() == (kind == "scaled")


def test_a_run_may_start_from_a_named_model() -> None:
    config = TrainingConfig.from_dict({"base": "chmnet-lite", "model": {"image_size": [160, 160]}})
    shipped = read_model_config("chmnet-lite")
    fitted_later = {"calibration": CalibrationConfig(), "foreground": False, "facing": 0}
    assert config.model == shipped.replace(image_size=(160, 160), **fitted_later)
    assert config.init == "chmnet-lite"
    assert TrainingConfig.from_dict({"base": "chmnet-lite", "init": "random"}).init == "random"
    with pytest.raises(WeightsError, match="there is no"):
        TrainingConfig.from_dict({"base": "nonesuch"})
    with pytest.raises(ConfigError, match="base"):
        TrainingConfig().replace(base="chmnet-lite")


def test_settings_of_the_run_in_a_model_table_of_version_0_1() -> None:
    old = {"model": {"dimensions": "4d-4d", "loss": "squared-distance", "backbone": {"frozen": True}}}
    with pytest.warns(DeprecationWarning, match="dimensions"):
        config = TrainingConfig.from_dict(old)
    assert (config.frozen, config.loss, config.model.correlation.scales) == (True, "squared-distance", (1.0,))


@pytest.mark.parametrize(
    "line", ["count = 1000000000000", "views = 100000000", "points = 100000000", "weight = 1e12", "rotation = 1e9"]
)
def test_absurd_sizes_are_one_sentence(line: str) -> None:
    name, value = line.split(" = ")
    source = {"dataset": "synthetic", name: float(value) if "e" in value else int(value)}
    with pytest.raises(ConfigError, match=r"must be at most [\d.]+, got"):
        TrainingConfig.from_dict({"data": [source]})
