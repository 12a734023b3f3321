"""Where a run gets its first weights from."""

import hashlib
import json
from pathlib import Path

import pytest
import tomli_w
import torch

from chmnet.errors import WeightsError
from chmnet.files import read_tensors, write_tensors
from chmnet.nn import HoughPrior, MatchingHead, apply_hough_prior
from chmnet.training.config import TrainingConfig
from chmnet.training.initialise import build_model, initialise
from chmnet.training.log import RunLog
from chmnet.training.loop import CHECKPOINT, CONFIG, LAST, train
from chmnet.weights.models import load_model, load_model_file, save_model
from tests.training.test_loop import assert_same_weights, weights
from tests.training.tiny import SYNTHETIC, tiny_config


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunLog, "draw", lambda self: None)


def test_start_from_a_model_file(tmp_path: Path) -> None:
    train(tiny_config("epochs=1"), tmp_path / "first")
    start = tmp_path / "first" / LAST
    config = tiny_config("learning_rate=0", "epochs=1", f"init={start}", "backbone_weights=")
    train(config, tmp_path / "second")
    assert_same_weights(start, tmp_path / "second" / LAST)
    other = tiny_config(f"init={start}", "model.matching.first_sharing=full")
    with pytest.raises(WeightsError, match="belongs to another model"):
        train(other, tmp_path / "third")


@pytest.mark.parametrize("frozen", [True, False])
def test_a_base_gives_configuration_and_weights_and_resuming_does_not_need_it(
    tmp_path: Path, frozen: bool
) -> None:
    train(tiny_config("epochs=1"), tmp_path / "first")
    base = tmp_path / "base.safetensors"
    (tmp_path / "first" / LAST).rename(base)
    file = tmp_path / "run.toml"
    settings = {"frozen": frozen, "learning_rate": 0.0, "backbone_learning_rate": 0.0, "batch_statistics": False}
    settings |= {"epochs": 1, "batch_size": 4, "data": [SYNTHETIC], "validation": [SYNTHETIC]}
    file.write_text(tomli_w.dumps({"base": str(base), **settings}))
    config = TrainingConfig.from_toml(file)
    assert config.model == tiny_config().model
    train(config, tmp_path / "second")
    assert_same_weights(base, tmp_path / "second" / LAST)  # nothing learned: what it started from
    expected = weights(base)
    base.unlink()
    resumed = TrainingConfig.from_toml(tmp_path / "second" / CONFIG)
    assert resumed == config
    assert train(resumed.replace(epochs=2), tmp_path / "second", resume=True).epoch == 2
    for name, value in weights(tmp_path / "second" / LAST).items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


def test_a_checkpoint_of_version_0_1_takes_its_frozen_backbone_from_the_first_model(tmp_path: Path) -> None:
    train(tiny_config("epochs=1"), tmp_path / "first")
    config = tiny_config("epochs=1", f"init={tmp_path / 'first' / LAST}", "backbone_weights=")
    train(config, tmp_path / "second")
    tensors, metadata = read_tensors(tmp_path / "second" / CHECKPOINT)
    old = {name: value for name, value in tensors.items() if not name.startswith("model.backbone.")}
    assert len(old) < len(tensors)
    digest = hashlib.sha256()  # that of version 0.1: of all tensors, the numbers of batches among them
    for name, value in sorted(tensors.items()):
        if name.startswith("model.backbone."):
            digest.update(name.removeprefix("model.backbone.").encode() + value.numpy().tobytes())
    metadata["progress"] = json.dumps({**json.loads(metadata["progress"]), "backbone_sha256": digest.hexdigest()})
    write_tensors(tmp_path / "second" / CHECKPOINT, old, metadata)
    assert train(config.replace(epochs=2), tmp_path / "second", resume=True).finished


def test_start_from_a_model_without_its_backbone(tmp_path: Path) -> None:
    """The run's ``backbone_weights`` are those that the model needs."""
    train(tiny_config("epochs=1", "backbone_weights=package"), tmp_path / "first")
    start = tmp_path / "head.safetensors"
    save_model(load_model_file(tmp_path / "first" / LAST), start, backbone_weights="somebody's")
    config = tiny_config("learning_rate=0", "epochs=1", f"init={start}", "backbone_weights=package")
    train(config, tmp_path / "second")
    assert_same_weights(tmp_path / "first" / LAST, tmp_path / "second" / LAST)
    with pytest.raises(WeightsError, match="without its backbone"):
        train(config.replace(backbone_weights=""), tmp_path / "third")


def test_the_hough_prior_as_a_base_is_that_model() -> None:
    config = TrainingConfig.from_dict({"base": "hough-prior"})
    model, expected = build_model(config), load_model("hough-prior").state_dict()
    initialise(model, config, lambda: pytest.fail("no features are needed"))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0, msg=name)
    assert TrainingConfig.from_dict({"base": "hough-prior", "prior_sharpness": 20.0}).prior_sharpness == 20


@pytest.mark.parametrize("reduction", [0, 2])
def test_start_from_the_hough_prior(tmp_path: Path, reduction: int) -> None:
    """The first validation is that of the prior: votes as Gaussians, projections as principal components."""
    config = tiny_config(
        "learning_rate=0", "epochs=1", "init=hough-prior", f"model.correlation.reduction={reduction}"
    )
    train(config, tmp_path)
    head = load_model_file(tmp_path / LAST).head
    expected = MatchingHead(config.model, head.projections[0].in_channels if reduction else 8)
    apply_hough_prior(expected, HoughPrior(sharpness=config.prior_sharpness))
    torch.testing.assert_close(head.first.weight, expected.first.weight)
    torch.testing.assert_close(head.last.weight, expected.last.weight)
    for projection in head.projections:
        off_centre = projection.weight.clone()
        off_centre[:, :, 1, 1] = 0
        assert off_centre.abs().max() == 0
