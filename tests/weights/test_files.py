"""Model files: what is saved comes back; what is broken, foreign or hostile is refused in one sentence."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from chmnet import __version__
from chmnet.config import BackboneConfig, ModelConfig, TransferConfig
from chmnet.errors import ConfigError, InputError, WeightsError
from chmnet.nn import CHMNet, MatchingHead, ResNet, apply_hough_prior
from chmnet.weights import MODELS, files, load_backbone_weights, load_model, load_model_file, save_model
from chmnet.weights.files import FORMAT
from chmnet.weights.registry import model_file

SMALL = ModelConfig(backbone=BackboneConfig("efficientnet-lite0", layers=("blocks.0",)))
VOTES = "head.first.weight"


@pytest.fixture
def model() -> CHMNet:
    return CHMNet(SMALL).eval()


@pytest.fixture
def path(tmp_path: Path, model: CHMNet) -> Path:
    """A good model file, alone in its folder."""
    save_model(model, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the tests' own check of annotations, which would refuse a wrong argument first."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        return file.metadata()


def rewrite(path: Path, tensors: dict[str, Tensor] | None = None, metadata: dict[str, str] | None = None) -> None:
    """Give a model file other tensors or other metadata."""
    kept = load_file(path) if tensors is None else tensors
    save_file(kept, path, metadata_of(path) if metadata is None else metadata)


def with_config(path: Path, text: str) -> None:
    rewrite(path, metadata={**metadata_of(path), "config": text})


def assert_refused(path: Path, sentence: str) -> None:
    with pytest.raises(WeightsError, match=sentence) as caught:
        load_model_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- what is saved comes back


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        ModelConfig.preset("reference", backbone=SMALL.backbone.replace(branches="separate"), channels=2),
        SMALL.replace(matching="consensus", consensus_channels=(2, 1)),
        SMALL.replace(matching="none", dimensions="4d-4d", channel_reduction=0),
    ],
    ids=["paper", "reference", "consensus", "none"],
)
def test_loaded_model_gives_the_same_numbers(tmp_path: Path, config: ModelConfig) -> None:
    saved = CHMNet(config).eval()
    save_model(saved, tmp_path / "model.safetensors")
    loaded = load_model_file(tmp_path / "model.safetensors")
    assert loaded.config == config
    assert not loaded.training
    assert loaded.state_dict().keys() == saved.state_dict().keys()
    source, target = torch.rand(1, 3, 40, 50), torch.rand(1, 3, 64, 32)
    with torch.no_grad():
        torch.testing.assert_close(loaded(source, target), saved(source, target), rtol=0, atol=0)


def test_loaded_model_can_train(path: Path) -> None:
    loaded = load_model_file(path).train()
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    loaded(torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in loaded.parameters())


def test_frozen_backbone_stays_frozen(tmp_path: Path) -> None:
    config = SMALL.replace(backbone=SMALL.backbone.replace(frozen=True))
    save_model(CHMNet(config), tmp_path / "model.safetensors")
    loaded = load_model_file(tmp_path / "model.safetensors")
    assert not any(parameter.requires_grad for parameter in loaded.backbone.parameters())
    assert all(parameter.requires_grad for parameter in loaded.head.parameters())


def test_metadata(tmp_path: Path) -> None:
    config = SMALL.replace(transfer=TransferConfig(gaussian_sigma=1 / 3))
    notes = {"data": ["PF-PASCAL"], "figures": {"pck@0.1": 91.6}, "licence": "none – yet"}
    save_model(CHMNet(config), tmp_path / "model.safetensors", notes)
    metadata = metadata_of(tmp_path / "model.safetensors")
    assert metadata.keys() == {"format", "chmnet_version", "config", "notes"}
    assert (metadata["format"], metadata["chmnet_version"]) == (FORMAT, __version__)
    assert json.loads(metadata["config"]) == config.to_dict()
    assert json.loads(metadata["notes"]) == notes


def test_model_without_notes(path: Path) -> None:
    assert json.loads(metadata_of(path)["notes"]) == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn])
def test_other_precisions_load_as_single(path: Path, dtype: torch.dtype) -> None:
    stored = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in load_file(path).items()
    }
    rewrite(path, stored)
    for name, tensor in load_model_file(path).state_dict().items():
        expected = stored[name].float() if tensor.is_floating_point() else stored[name]
        torch.testing.assert_close(tensor, expected, rtol=0, atol=0)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"These are not weights.\n" * 100, id="text"),
        pytest.param(b"\x80\x02}q\x00.", id="pickle"),
        pytest.param(b"\xff" * 8 + b"{}", id="header of 2^64 bytes"),
        pytest.param((2).to_bytes(8, "little") + b"[]", id="header that is no table"),
    ],
)
def test_files_that_are_no_safetensors(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert_refused(path, "is not a whole safetensors file: .+")


@pytest.mark.parametrize("share", [0.0001, 0.5, 0.9999])
def test_truncated_file(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert_refused(path, "is not a whole safetensors file: .+")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none.safetensors", "there is no weight file .*none.safetensors$")
    assert_refused(tmp_path, "there is no weight file")
    assert_refused(tmp_path / ("n" * 300), "File name too long")


@pytest.mark.parametrize(
    ("metadata", "found"),
    [(None, "'not given'"), ({"format": "pt"}, "'pt'"), ({"format": "chmnet-model-0"}, "'chmnet-model-0'")],
    ids=["none", "pt", "old"],
)
def test_foreign_safetensors(path: Path, metadata: dict[str, str] | None, found: str) -> None:
    save_file({"weight": torch.zeros(1)}, path, metadata)
    assert_refused(
        path, rf"is not a chmnet model: its format is {found}, expected 'chmnet-model-1'; `chmnet convert`"
    )


def test_missing_tensors(path: Path) -> None:
    tensors = load_file(path)
    del tensors[VOTES]
    rewrite(path, tensors)
    assert_refused(path, rf"lacks {VOTES}; it belongs to another model")
    rewrite(path, {VOTES: torch.zeros(1, 1, 220)})
    assert_refused(path, r"lacks [\w.]+, [\w.]+, [\w.]+ and \d+ more; it belongs to another model")


def test_unknown_tensor(path: Path) -> None:
    rewrite(path, {**load_file(path), "head.extra.weight": torch.zeros(1)})
    assert_refused(path, "has unknown head.extra.weight; it belongs to another model")


def test_tensor_of_another_shape(path: Path) -> None:
    rewrite(path, {**load_file(path), VOTES: torch.zeros(1, 1, 45)})
    assert_refused(path, rf"{VOTES} has shape \[1, 1, 45\], expected \[1, 1, 220\]; it belongs to another model")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_values_that_are_not_finite(path: Path, value: float) -> None:
    tensors = load_file(path)
    tensors[VOTES][0, 0, 7] = value
    rewrite(path, tensors)
    assert_refused(path, rf"{VOTES} holds values that are not finite; the file is damaged")


def test_value_too_large_for_single_precision(path: Path) -> None:
    tensors = load_file(path)
    rewrite(path, {**tensors, VOTES: torch.full_like(tensors[VOTES], 1e300, dtype=torch.float64)})
    assert_refused(path, rf"{VOTES} holds values that are not finite")


def test_metadata_without_configuration(path: Path) -> None:
    rewrite(path, metadata={"format": FORMAT})
    assert_refused(path, "holds no usable configuration: .*config")


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ("[1]", r"its configuration must be a table, got \[1\]"),
        ("null", "its configuration must be a table, got None"),
        ('{"chanels": 1}', r"unknown key 'chanels' in its configuration; did you mean 'channels'\?"),
        ('{"backbone": {"name": "vgg16"}}', "must be one of resnet18"),
        ('{"backbone": {"name": "resnet18", "layers": ["layer9"]}}', "unknown layer 'layer9'"),
        ('{"channel_reduction": 5000}', "channel_reduction = 5000 leaves nothing of 1024 channels"),
        ('{"spatial_window": 1000001}', "spatial_window must be at most 11, got 1000001"),
        ('{"scales": [Infinity]}', "scales must be a finite number, got inf"),
        ('{"upsample": 1' + "0" * 400 + "}", "must fit in 64 bits"),
        ('{"upsample": 1' + "0" * 5000 + "}", "Exceeds the limit"),
        ("[" * 100_000, "maximum recursion depth"),
    ],
    ids=lambda value: value[:24],
)
def test_unusable_configuration(path: Path, text: str, reason: str) -> None:
    with_config(path, text)
    assert_refused(path, rf"holds no usable configuration: .*{reason}")


def test_nothing_is_allocated_before_the_tensors_are_known_to_fit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[CHMNet] = []

    def build(config: ModelConfig) -> CHMNet:
        built.append(CHMNet(config))
        return built[-1]

    monkeypatch.setattr(files, "CHMNet", build)
    # Every number is within its range; together they are 61 GB for one layer.
    absurd = SMALL.replace(matching="consensus", spatial_window=11, consensus_channels=(1024, 1024, 1))
    with_config(path, json.dumps(absurd.to_dict()))
    assert_refused(path, "lacks head.first.biases.0, .*; it belongs to another model")
    assert all(parameter.is_meta for parameter in built[0].parameters())


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), InputError),
        (SafetensorError("I/O error: No space left on device (os error 28)"), WeightsError),
    ],
    ids=["system", "safetensors"],
)
def test_failed_write_leaves_the_old_file(
    path: Path, model: CHMNet, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    old = path.read_bytes()

    def write_half(tensors: dict[str, Tensor], destination: Path, metadata: dict[str, str]) -> None:
        Path(destination).write_bytes(old[: len(old) // 2])
        raise error

    monkeypatch.setattr(files, "save_file", write_half)
    with pytest.raises(kind, match=r"cannot write .*model.safetensors: .*No space left on device"):
        save_model(model, path)
    assert path.read_bytes() == old
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_overwriting(path: Path, model: CHMNet) -> None:
    old = path.read_bytes()
    with pytest.raises(InputError, match=r"model\.safetensors exists already"):
        save_model(model, path, overwrite=False)
    assert path.read_bytes() == old
    save_model(model, path, notes={"second": True})
    assert json.loads(metadata_of(path)["notes"]) == {"second": True}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_folder_that_cannot_be_written_to(path: Path, model: CHMNet) -> None:
    for folder in (path.parent / "none", path):
        with pytest.raises(InputError, match=rf"cannot write to the folder {folder}: "):
            save_model(model, folder / "model.safetensors")
    folder = path.parent / "folder.safetensors"
    folder.mkdir()
    with pytest.raises(InputError, match="is a folder; name a file to write"):
        save_model(model, folder)


def test_other_endings_are_refused(path: Path, model: CHMNet) -> None:
    with pytest.raises(WeightsError, match=r"must end in .safetensors, got 'model.pt'"):
        save_model(model, path.parent / "model.pt")


# ---------------------------------------------------------------- models by name


def test_load_model_from_a_file(path: Path, model: CHMNet) -> None:
    for name in (path, str(path)):
        torch.testing.assert_close(load_model(name).state_dict(), model.state_dict(), rtol=0, atol=0)
    bare = path.rename(path.with_suffix(""))
    assert load_model(bare).config == SMALL


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nonesuch", r"there is no model 'nonesuch'; use one of .*nearest-neighbour.*, or a file's path"),
        ("nonesuch.safetensors", r"there is no weight file nonesuch.safetensors"),
    ],
)
def test_load_model_that_does_not_exist(name: str, sentence: str) -> None:
    with pytest.raises(WeightsError, match=sentence):
        load_model(name)


@pytest.mark.parametrize("name", ["chmnet-lite", "hough-prior"])
def test_named_models_are_the_same_each_time(name: str) -> None:
    torch.rand(1)  # whatever happened before
    expected: dict[str, Any] = load_model(name).state_dict()
    before = torch.get_rng_state()
    torch.testing.assert_close(load_model(name).state_dict(), expected, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), before)  # and the caller's randomness goes on undisturbed


def test_the_hough_prior_is_in_the_weights_and_can_be_changed() -> None:
    model = load_model("hough-prior", changes={"backbone": {"layers": ["blocks.10"]}, "channels": 2})
    assert model.config.backbone.layers == ("blocks.10",)
    wanted = MatchingHead(model.config, model.backbone.channels)
    apply_hough_prior(wanted, MODELS["hough-prior"].prior)
    torch.testing.assert_close(model.head.state_dict(), wanted.state_dict(), rtol=0, atol=0)


def test_the_hough_prior_goes_with_any_backbone(tmp_path: Path) -> None:
    path = tmp_path / "resnet18.pth"
    torch.save(ResNet("resnet18").state_dict(), path)
    layers = load_model("hough-prior", "resnet18", path, {"backbone": {"layers": ["layer2", "layer3"]}})
    assert layers.backbone.channels == 384
    plain = load_model("hough-prior", "resnet18", path)
    assert plain.config.transfer.calibration == ()  # made for other features
    assert len(load_model("hough-prior").config.transfer.calibration) == 4
    assert plain.config.backbone.layers == ()  # not those of the model's own backbone
    torch.testing.assert_close(plain.head.state_dict(), load_model("hough-prior").head.state_dict())
    named = load_model("hough-prior", "efficientnet-lite0")
    assert named.config == MODELS["hough-prior"].config  # its own, feature recipe included


def test_a_hough_prior_without_hough_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match='a Hough prior needs matching = "hough", got "none"'):
        load_model("hough-prior", changes={"matching": "none"})


def packaged(path: Path) -> CHMNet:
    """A model with the package's backbone, saved."""
    model = CHMNet(SMALL).eval()
    load_backbone_weights(model.backbone, "package")
    save_model(model, path, {"seed": 3})
    return model


def test_smaller_file_gives_nearly_the_same_numbers(tmp_path: Path) -> None:
    model = packaged(tmp_path / "whole.safetensors")
    files.shrink_model_file(tmp_path / "whole.safetensors", tmp_path / "small.safetensors", True, "package")
    assert (tmp_path / "small.safetensors").stat().st_size < (tmp_path / "whole.safetensors").stat().st_size / 2
    loaded = load_model_file(tmp_path / "small.safetensors")
    assert files.read_notes(tmp_path / "small.safetensors") == {"seed": 3}
    torch.testing.assert_close(loaded.backbone.state_dict(), model.backbone.state_dict())
    torch.testing.assert_close(loaded.head.state_dict(), model.head.state_dict(), rtol=1e-3, atol=1e-6)
    assert next(loaded.parameters()).dtype == torch.float32


def test_a_backbone_that_was_trained_is_not_left_out(path: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="is not the package's: it was trained further"):
        files.shrink_model_file(path, tmp_path / "small.safetensors", False, "package")


def test_a_backbone_from_elsewhere_must_be_named(tmp_path: Path) -> None:
    packaged(tmp_path / "whole.safetensors")
    files.shrink_model_file(tmp_path / "whole.safetensors", tmp_path / "small.safetensors", False, "my weights")
    with pytest.raises(WeightsError, match=r"comes without its backbone \(my weights\); name the file"):
        load_model(tmp_path / "small.safetensors")
    assert load_model(tmp_path / "small.safetensors", backbone_weights="package").config == SMALL


def test_a_whole_model_takes_no_other_backbone(path: Path) -> None:
    with pytest.raises(WeightsError, match="has its own backbone; leave the backbone's weights out"):
        load_model(path, backbone_weights="package")


def test_numbers_beyond_half_precision(tmp_path: Path, model: CHMNet) -> None:
    with torch.no_grad():
        model.head.first.weight += 1e6
    with pytest.raises(WeightsError, match=r"head.first.weight holds numbers beyond half precision"):
        save_model(model, tmp_path / "model.safetensors", half=True)


@pytest.mark.parametrize(
    ("notes", "words"), [("{", "notes that are not JSON"), ("[1]", "notes that are no table")]
)
def test_strange_notes(path: Path, notes: str, words: str) -> None:
    with safe_open(path, "pt") as file:
        metadata = {**file.metadata(), "notes": notes}
    save_file(load_file(path), path, metadata)
    with pytest.raises(WeightsError, match=words):
        files.read_notes(path)


def test_a_trained_target_branch_is_not_left_out(tmp_path: Path) -> None:
    config = SMALL.replace(backbone=SMALL.backbone.replace(branches="separate"))
    model = CHMNet(config).eval()
    load_backbone_weights(model.backbone, "package")
    save_model(model, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="is not the package's"):
        files.shrink_model_file(tmp_path / "model.safetensors", tmp_path / "small.safetensors", False, "package")


# ---------------------------------------------------------------- the trained models that are shipped

TRAINED = [name for name, known in MODELS.items() if known.file]


@pytest.mark.parametrize("name", TRAINED)
def test_shipped_files_are_small_and_say_where_they_come_from(name: str) -> None:
    file = model_file(MODELS[name])
    assert file.stat().st_size < 8e6
    training = files.read_notes(file)["training"]
    assert {source["dataset"] for source in training["data"]} == {"pf-pascal", "animal-pose", "list"}
    assert training["best_validation_pck"]["0.1"] > 70
    paths = [source["path"] for source in training["config"]["data"]]
    paths += [training["config"]["backbone_weights"], training["config"]["init"]]
    assert not any("/" in path for path in paths)  # no path of any machine


def test_the_default_model_is_the_one_that_is_described() -> None:
    model = load_model()
    expected = MODELS["chmnet-lite"].config
    backbone = expected.backbone.replace(frozen=model.config.backbone.frozen)
    assert len(model.config.transfer.calibration) == 4
    transfer = expected.transfer.replace(calibration=model.config.transfer.calibration)
    assert model.config == expected.replace(backbone=backbone, transfer=transfer)


def test_a_trained_model_takes_no_changes() -> None:
    for changes in ({"backbone": "resnet50"}, {"changes": {"upsample": 1}}):
        with pytest.raises(WeightsError, match="chmnet-lite was trained as it is; only hough-prior"):
            load_model("chmnet-lite", **changes)
