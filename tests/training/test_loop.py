"""Whole runs, small ones: what they write, how they stop, and that an interruption changes nothing."""

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from chmnet.errors import ChmnetError, ConfigError, InputError, WeightsError
from chmnet.files import read_tensors
from chmnet.outputs import held
from chmnet.training.checkpoint import Checkpoint
from chmnet.training.config import TrainingConfig
from chmnet.training.log import RunLog, read_log
from chmnet.training.loop import BEST, CHECKPOINT, CONFIG, LAST, Run, train
from chmnet.training.objective import Objective
from chmnet.weights import load_model, save_model
from tests.training.tiny import SYNTHETIC, tiny_config


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Drawing takes most of a tiny run's time: one test looks at the curve, the others go without."""
    if request.node.name != "test_a_run_leaves_everything_in_its_folder":
        monkeypatch.setattr(RunLog, "draw", lambda self: None)


class StopError(Exception):
    """What the tests interrupt a run with."""


def stop_at(step: int) -> Callable[[dict], None]:
    def report(record: dict) -> None:
        if record["kind"] == "step" and record["step"] == step:
            raise StopError

    return report


def weights(path: Path) -> dict[str, Tensor]:
    return read_tensors(path)[0]


def assert_same_weights(first: Path, second: Path) -> None:
    one, other = weights(first), weights(second)
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0, msg=name)


def losses(folder: Path) -> list[tuple[int, float]]:
    return [(one["step"], one["loss"]) for one in read_log(folder / "log.jsonl")]


def test_a_run_leaves_everything_in_its_folder(tmp_path: Path) -> None:
    records: list[dict] = []
    progress = train(tiny_config(), tmp_path / "run", report=records.append)
    folder = tmp_path / "run"
    names = {path.name for path in folder.iterdir()}
    assert names == {CONFIG, CHECKPOINT, BEST, LAST, "log.jsonl", "curve.png", "tensorboard"}
    assert progress.finished
    assert progress.step == 4
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert TrainingConfig.from_toml(folder / CONFIG) == tiny_config()
    log = read_log(folder / "log.jsonl")
    assert [one["step"] for one in log if one["kind"] == "validation"] == [0, 2, 4]
    assert [one["step"] for one in log if one["kind"] == "steps"] == [1, 2, 3, 4]
    assert all(one["seconds_a_step"] > 0 for one in log if one["kind"] == "steps")
    assert [one["kind"] for one in records].count("step") == 4
    assert any(path.name.startswith("events") for path in (folder / "tensorboard").iterdir())
    model = load_model(folder / LAST)
    assert model.config == tiny_config().model
    notes = json.loads(read_tensors(folder / LAST)[1]["notes"])["training"]
    assert notes["data"][0]["pictures"] == 20
    assert len(notes["data"][0]["pictures_sha256"]) == 64
    assert set(notes["validation_pck"]) == {"0.05", "0.1"}
    assert notes["seed"] == 0
    assert "PCK at" in notes["protocol"]


def test_training_learns(tmp_path: Path) -> None:
    config = tiny_config(
        "epochs=12",
        "learning_rate=0.01",
        "average_decay=0.8",
        "model.image_size=[64,64]",
        "backbone_weights=package",
    )
    train(config, tmp_path)
    curve = [one for one in read_log(tmp_path / "log.jsonl") if one["kind"] == "validation"]
    assert curve[-1]["loss"] < 0.8 * curve[0]["loss"]


@pytest.mark.parametrize(
    "changes",
    [
        ["average_decay=0.9", "schedule=cosine", "warmup_steps=1", "clip_norm=0.1"],
        ["accumulate=2", "cache_megabytes=0", "cache_precision=float32"],
        ["frozen=false", "backbone_learning_rate=0.001"],
        ["model.backbone.branches=separate"],
    ],
    ids=["averaged", "accumulated", "whole network", "branches"],
)
@pytest.mark.parametrize("step", [1, 3])
def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path: Path, changes: list[str], step: int) -> None:
    config = tiny_config("checkpoint_minutes=0", *changes)
    train(config, tmp_path / "whole")
    with pytest.raises(StopError):
        train(config, tmp_path / "parts", report=stop_at(step))
    assert not (tmp_path / "parts" / LAST).exists()
    train(config, tmp_path / "parts", resume=True)
    for name in (LAST, BEST):
        assert_same_weights(tmp_path / "whole" / name, tmp_path / "parts" / name)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")


def test_interrupted_between_a_validation_and_its_checkpoint(tmp_path: Path) -> None:
    def stop(record: dict) -> None:
        if record["kind"] == "validation" and record["step"] == 2:
            raise StopError

    config = tiny_config("checkpoint_minutes=0")
    train(config, tmp_path / "whole")
    with pytest.raises(StopError):
        train(config, tmp_path / "parts", report=stop)
    assert Checkpoint(tmp_path / "parts" / CHECKPOINT).progress.validated_step == 0
    train(config, tmp_path / "parts", resume=True)
    assert_same_weights(tmp_path / "whole" / BEST, tmp_path / "parts" / BEST)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")


def test_looking_at_pictures_moves_no_batch_statistics(tmp_path: Path) -> None:
    config = tiny_config("frozen=false")
    with Run(config, tmp_path, None, False, lambda record: None) as run:
        before = {name: value.clone() for name, value in run.model.state_dict().items()}
        assert run._some_features().shape == (16, run.model.backbone.channels, 3, 3)
        for name, value in run.model.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_layers_that_do_not_learn_keep_their_weights_and_statistics(tmp_path: Path) -> None:
    config = tiny_config("frozen=false", "backbone_from=blocks.3", "epochs=1")
    with Run(config, tmp_path, None, False, lambda record: None) as run:
        before = {name: value.clone() for name, value in run.model.backbone.state_dict().items()}
        run.train()
        after = run.model.backbone.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert "blocks.3.bn1.running_mean" in changed
    assert "blocks.3.project_conv.weight" in changed
    assert {name.split(".")[1] for name in changed if name.startswith("blocks.")} == {"3", "4"}
    assert all(name.startswith("blocks.") for name in changed)


def test_gradient_accumulation_changes_nothing_but_memory(tmp_path: Path) -> None:
    train(tiny_config(), tmp_path / "one")
    train(tiny_config("accumulate=4"), tmp_path / "four")
    expected = [loss for _, loss in losses(tmp_path / "one")]
    assert [loss for _, loss in losses(tmp_path / "four")] == pytest.approx(expected, rel=1e-4)


def test_seed_decides(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(tiny_config(f"seed={seed}", "epochs=1"), tmp_path / name)
    assert_same_weights(tmp_path / "a" / LAST, tmp_path / "b" / LAST)
    assert losses(tmp_path / "a") != losses(tmp_path / "c")


def test_early_stop_and_going_on_with_more_epochs(tmp_path: Path) -> None:
    config = tiny_config("learning_rate=0", "patience=1", "epochs=9")
    progress = train(config, tmp_path)
    assert (progress.epoch, progress.finished) == (1, True)  # nothing learns, so nothing gets better
    assert train(config, tmp_path, resume=True).step == progress.step
    assert train(config.replace(epochs=3, patience=0), tmp_path, resume=True).epoch == 3


def test_a_run_that_is_shortened_to_where_it_stands_is_finished(tmp_path: Path) -> None:
    """Stopped in its second epoch and resumed with one only: the weights of then are written, and validated."""
    config = tiny_config("epochs=3", "validate_every=3")
    with pytest.raises(StopError):
        train(config, tmp_path / "parts", report=stop_at(3))
    progress = train(config.replace(epochs=1), tmp_path / "parts", resume=True)
    assert progress.finished
    assert progress.validated_step == progress.step == 2
    train(config.replace(epochs=1), tmp_path / "whole")
    assert_same_weights(tmp_path / "whole" / LAST, tmp_path / "parts" / LAST)


def test_best_weights_are_kept_beside_the_last(tmp_path: Path) -> None:
    progress = train(tiny_config("learning_rate=1.0", "epochs=3"), tmp_path)
    notes = json.loads(read_tensors(tmp_path / BEST)[1]["notes"])["training"]
    assert notes["step"] == progress.best_step
    assert notes["best_validation_pck"] == progress.best


def test_validation_may_be_left_out(tmp_path: Path) -> None:
    config = tiny_config("epochs=1", validation=[])
    assert train(config, tmp_path).best is None
    assert (tmp_path / LAST).exists()


def test_the_loss_goes_backward_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    backward = Tensor.backward

    def counted(self: Tensor, *arguments: object, **options: object) -> None:
        calls.append(self.shape)
        backward(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Tensor, "backward", counted)
    train(tiny_config("epochs=1"), tmp_path)
    assert calls == [torch.Size([])] * 2


@pytest.mark.parametrize("kind", ["distance", "squared-distance"])
def test_both_losses(tmp_path: Path, kind: str) -> None:
    train(tiny_config(f"loss={kind}", "epochs=1"), tmp_path)
    assert all(math.isfinite(loss) for _, loss in losses(tmp_path))


# ---------------------------------------------------------------- runs that cannot start


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["init=wonder"], "init must be random, hough-prior, a model file or one of"),
        (["init=none.safetensors"], "there is no file none.safetensors"),
        (
            ["model.backbone.name=resnet50", "model.backbone.layers=[]", "backbone_weights="],
            "resnet50 needs weights",
        ),
        (["batch_size=9"], "an epoch has fewer pairs than batch_size = 9"),
        (["accumulate=3"], "batch_size = 4 cannot be shared out equally"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_runs_that_cannot_start(tmp_path: Path, changes: list[str], words: str) -> None:
    with pytest.raises(ChmnetError, match=words):
        train(tiny_config(*changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_frozen_backbone_must_stay_the_same(tmp_path: Path) -> None:
    with pytest.raises(StopError):
        train(tiny_config(), tmp_path, report=stop_at(2))
    with pytest.raises(InputError, match="frozen backbone's weights are not those"):
        train(tiny_config("backbone_weights=package"), tmp_path, resume=True)


# ---------------------------------------------------------------- what goes wrong on the way


def test_only_one_run_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(tiny_config("epochs=1"), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with held(folder, "training in"), pytest.raises(InputError, match="another process is training in"):
        train(tiny_config("epochs=2"), folder, resume=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    with pytest.raises(ConfigError):
        train(tiny_config("batch_size=100000"), folder)  # what fails on the way gives the folder up
    assert train(tiny_config("epochs=2"), folder, resume=True).finished


def test_a_folder_that_became_read_only_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, whom no permission stops: the system's answer is played instead."""

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    folder = tmp_path / "run"
    train(tiny_config("epochs=1"), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr("chmnet.outputs._open_alone", refuse)
        with pytest.raises(InputError, match=r"cannot write to the folder .*Read-only"):
            train(tiny_config("epochs=2"), folder, resume=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert train(tiny_config("epochs=2"), folder, resume=True).finished


@pytest.mark.parametrize(
    "error", [SafetensorError("I/O error: No space left on device"), OSError(28, "No space left on device")]
)
def test_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    config = tiny_config("checkpoint_minutes=0")
    train(config, tmp_path / "whole")
    saved = safetensors.torch.save_file
    calls = []

    def fail_later(tensors: dict, path: Path, metadata: dict) -> None:
        calls.extend([path] if "checkpoint" in path.name else [])
        if calls[2:] == [path]:
            Path(path).write_bytes(b"half")
            raise error
        saved(tensors, path, metadata)

    monkeypatch.setattr(safetensors.torch, "save_file", fail_later)
    with pytest.raises(ChmnetError, match=r"cannot write .*checkpoint.safetensors: .*No space left on device"):
        train(config, tmp_path / "parts")
    names = {path.name for path in (tmp_path / "parts").iterdir()}
    assert names == {CONFIG, CHECKPOINT, BEST, "log.jsonl", "tensorboard"}
    assert Checkpoint(tmp_path / "parts" / CHECKPOINT).progress.step == 1
    monkeypatch.setattr(safetensors.torch, "save_file", saved)
    train(config, tmp_path / "parts", resume=True)
    assert_same_weights(tmp_path / "whole" / LAST, tmp_path / "parts" / LAST)


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot make the folder .*file/run: Not a directory"):
        train(tiny_config(), tmp_path / "file" / "run")


def test_loss_that_is_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Objective.forward

    def broken(self: Objective, *batch: Tensor) -> tuple[Tensor, Tensor]:
        loss, predicted = forward(self, *batch)
        return loss * (math.nan if self.training else 1), predicted

    monkeypatch.setattr(Objective, "forward", broken)
    with pytest.raises(InputError, match="the loss of step 1 is not a finite number"):
        train(tiny_config(), tmp_path)
    assert Checkpoint(tmp_path / CHECKPOINT).progress.step == 0


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None], ids=["empty", "text", "another format"])
def test_broken_checkpoint_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    train(tiny_config("epochs=1"), tmp_path)
    path = tmp_path / CHECKPOINT
    if content is None:
        save_model(load_model(tmp_path / LAST), path)
    else:
        path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"not a whole safetensors file|not a checkpoint of this version"):
        train(tiny_config("epochs=2"), tmp_path, resume=True)


def test_checkpoint_without_the_average(tmp_path: Path) -> None:
    train(tiny_config("epochs=1"), tmp_path)
    with pytest.raises(WeightsError, match="was made without this average"):
        train(tiny_config("epochs=2", "average_decay=0.9"), tmp_path, resume=True)


def test_validation_without_keypoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(validation=[{**SYNTHETIC, "count": 2}])
    monkeypatch.setattr("chmnet.training.synthetic._CANDIDATES", 0)
    with pytest.raises(InputError, match="the validation has no pairs with keypoints"):
        train(config, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["augmentation.crop=0.5"], "crop, colour and reduce must be 0"),
        (["data=[]"], "data must name at least one source"),
        (["epochs=0"], "epochs must be at least 1"),
        (["model.matching.chanels=2"], "did you mean 'channels'"),
        (["augmentation.flip=2"], "flip must be at most 1"),
        (["data=[{dataset='synthetic', views=1}]"], "views of synthetic must be at least 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_configurations_that_are_refused(changes: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tiny_config(*changes)


def test_mixed_precision_on_the_cpu(tmp_path: Path) -> None:
    changes = ["precision=bf16", "frozen=false", "epochs=1"]
    train(tiny_config(*changes), tmp_path)
    assert all(math.isfinite(loss) for _, loss in losses(tmp_path))
