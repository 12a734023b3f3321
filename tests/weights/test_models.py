"""Model files: what is saved comes back; what is broken, foreign or hostile is refused in one sentence.

What is expected is read from files by hand or built by hand, never by the code under test.
"""

import errno
import json
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file as numpy_file
from safetensors.torch import load_file, save_file
from torch import Tensor

import chmnet
from chmnet.config import BackboneConfig, CalibrationConfig, FineConfig, ModelConfig, TransferConfig
from chmnet.errors import ConfigError, InputError, WeightsError
from chmnet.files import read_tensors
from chmnet.nn import CHMNet, ResNet
from chmnet.weights import MODELS, load_backbone_weights, load_model, load_model_file, models, save_model
from tests.flat import flat_config, flat_replace

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


def header_of(path: Path) -> tuple[dict[str, str], dict[str, list[int]]]:
    """Metadata and shapes of a file, read byte by byte: eight bytes of length, then JSON."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    metadata = header.pop("__metadata__")
    return metadata, {name: entry["shape"] for name, entry in header.items()}


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
        flat_config("reference", backbone=SMALL.backbone.replace(branches="separate"), channels=2),
        flat_replace(SMALL, matching="consensus", consensus_channels=(2, 1)),
        flat_replace(SMALL, matching="none", dimensions="4d-4d", channel_reduction=0),
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


def test_metadata(tmp_path: Path) -> None:
    config = SMALL.replace(transfer=TransferConfig(gaussian_sigma=1 / 3))
    notes = {"data": ["PF-PASCAL"], "figures": {"pck@0.1": 91.6}, "licence": "none – yet"}
    save_model(CHMNet(config), tmp_path / "model.safetensors", notes)
    metadata = header_of(tmp_path / "model.safetensors")[0]
    assert metadata.keys() == {"format", "chmnet_version", "config", "notes"}
    assert (metadata["format"], metadata["chmnet_version"]) == ("chmnet-model-1", version("chmnet"))
    written = json.loads(metadata["config"])
    assert (written["backbone"]["name"], written["backbone"]["layers"]) == ("efficientnet-lite0", ["blocks.0"])
    assert written["transfer"]["gaussian_sigma"] == 1 / 3
    assert json.loads(metadata["notes"]) == notes


def test_the_papers_head_has_the_papers_weights(path: Path) -> None:
    """220 shared weights in six dimensions, 55 in four, and a bias each."""
    shapes = header_of(path)[1]
    votes = {name: shape for name, shape in shapes.items() if name.startswith(("head.first.", "head.last."))}
    assert votes == {
        "head.first.weight": [1, 1, 220],
        "head.first.bias": [1],
        "head.last.weight": [1, 1, 55],
        "head.last.bias": [1],
    }


def test_a_file_made_by_hand(tmp_path: Path) -> None:
    """As another program would write it; what the configuration does not name is as in the paper."""
    projections = {f"head.projections.{scale}.weight": torch.randn(4, 16, 3, 3) for scale in range(3)}
    votes = {"head.first.weight": torch.randn(1, 1, 220), "head.first.bias": torch.tensor([0.25])}
    votes |= {"head.last.weight": torch.randn(1, 1, 55), "head.last.bias": torch.tensor([-2.0])}
    metadata = {
        "format": "chmnet-model-1",
        "config": '{"backbone": {"name": "efficientnet-lite0", "layers": ["blocks.0"]}, "image_size": [64, 96]}',
        "backbone_weights": "package",
    }
    save_file({**projections, **votes}, tmp_path / "made.safetensors", metadata)
    loaded = load_model(tmp_path / "made.safetensors")
    assert loaded.config.image_size == (64, 96)
    state = {f"head.{name}": tensor for name, tensor in loaded.head.state_dict().items()}
    torch.testing.assert_close(state, {**projections, **votes}, rtol=0, atol=0)
    assert loaded.head.first.kernel().shape == (1, 1, 3, 3, 5, 5, 5, 5)
    centre = loaded.head.last.kernel()[0, 0, 2, 2, 2, 2]  # no other tap shares its weight
    assert centre in votes["head.last.weight"]


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
    assert_refused(path, "not a whole safetensors file")


@pytest.mark.parametrize("share", [0.0001, 0.5, 0.9999])
def test_truncated_file(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert_refused(path, "not a whole safetensors file")


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none.safetensors", "no file")
    assert_refused(tmp_path, "no file")
    assert_refused(tmp_path / ("n" * 300), "File name too long")


@pytest.mark.parametrize(
    ("metadata", "found"),
    [(None, "'not given'"), ({"format": "pt"}, "'pt'"), ({"format": "chmnet-model-0"}, "'chmnet-model-0'")],
    ids=["none", "pt", "old"],
)
def test_foreign_safetensors(path: Path, metadata: dict[str, str] | None, found: str) -> None:
    save_file({"weight": torch.zeros(1)}, path, metadata)
    assert_refused(path, f"{found}.*'chmnet-model-1'")


def test_missing_tensors(path: Path) -> None:
    tensors = load_file(path)
    del tensors[VOTES]
    rewrite(path, tensors)
    assert_refused(path, rf"lacks {VOTES}")
    rewrite(path, {VOTES: torch.zeros(1, 1, 220)})
    assert_refused(path, r"lacks .* and \d+ more")


def test_unknown_tensor(path: Path) -> None:
    rewrite(path, {**load_file(path), "head.extra.weight": torch.zeros(1)})
    assert_refused(path, "unknown head.extra.weight")


def test_tensor_of_another_shape(path: Path) -> None:
    rewrite(path, {**load_file(path), VOTES: torch.zeros(1, 1, 45)})
    assert_refused(path, rf"{VOTES} .*\[1, 1, 45\].*\[1, 1, 220\]")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_values_that_are_not_finite(path: Path, value: float) -> None:
    tensors = load_file(path)
    tensors[VOTES][0, 0, 7] = value
    rewrite(path, tensors)
    assert_refused(path, rf"{VOTES} .*not finite")


def test_value_too_large_for_single_precision(path: Path) -> None:
    tensors = load_file(path)
    rewrite(path, {**tensors, VOTES: torch.full_like(tensors[VOTES], 1e300, dtype=torch.float64)})
    assert_refused(path, rf"{VOTES} .*not finite")


def test_metadata_without_configuration(path: Path) -> None:
    rewrite(path, metadata={"format": "chmnet-model-1"})
    assert_refused(path, "configuration")


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("", "Expecting value"),
        ("[1]", r"table.*\[1\]"),
        ("null", "table.*None"),
        ('{"matching": {"chanels": 1}}', r"'chanels'.*'channels'"),
        ('{"backbone": {"name": "vgg16"}}', "resnet18"),
        ('{"backbone": {"name": "resnet18", "layers": ["layer9"]}}', "layer9"),
        ('{"channel_reduction": 5000}', "5000.*1024"),
        ('{"spatial_window": 1000001}', "11.*1000001"),
        ('{"scales": [Infinity]}', "scales.*finite"),
        ('{"upsample": 1' + "0" * 400 + "}", "64 bits"),
        ('{"upsample": 1' + "0" * 5000 + "}", "Exceeds the limit"),
        ("[" * 100_000, "maximum recursion depth"),
    ],
    ids=lambda value: value[:24],
)
def test_unusable_configuration(path: Path, text: str, reason: str) -> None:
    with_config(path, text)
    assert_refused(path, rf"configuration: .*{reason}")


def test_nothing_is_allocated_before_the_tensors_are_known_to_fit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[CHMNet] = []

    def build(config: ModelConfig, backend: str) -> CHMNet:
        built.append(CHMNet(config))
        return built[-1]

    monkeypatch.setattr(models, "CHMNet", build)
    # Every number is within its range; together they are 61 GB for one layer.
    absurd = flat_replace(SMALL, matching="consensus", spatial_window=11, consensus_channels=(1024, 1024, 1))
    with_config(path, json.dumps(absurd.to_dict()))
    assert_refused(path, "lacks head.first.biases.0")
    assert all(parameter.is_meta for parameter in built[0].parameters())


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), InputError),
        (SafetensorError("I/O error: No space left on device (os error 28)"), InputError),
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

    monkeypatch.setattr("safetensors.torch.save_file", write_half)
    with pytest.raises(kind, match=r"model.safetensors: .*No space left"):
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
        with pytest.raises(InputError, match=re.escape(str(folder))):
            save_model(model, folder / "model.safetensors")
    folder = path.parent / "folder.safetensors"
    folder.mkdir()
    with pytest.raises(InputError, match="is a folder"):
        save_model(model, folder)


def test_other_endings_are_refused(path: Path, model: CHMNet) -> None:
    with pytest.raises(WeightsError, match=r"\.safetensors.*model\.pt"):
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
        ("nonesuch", r"'nonesuch'.*nearest-neighbour"),
        ("nonesuch.safetensors", r"nonesuch\.safetensors"),
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


def gaussian_votes(offset_sigma: float, distance_sigma: float) -> Tensor:
    """Votes of neighbours (p, p′), of sum 1.

    One that moves alike, p = p′, counts by a Gaussian of its distance; the others less, by one of ‖p′ − p‖.
    """
    steps = torch.arange(-2, 3, dtype=torch.float64)
    p = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1)
    here, there = p[:, :, None, None], p[None, None]
    offset = (there - here).square().sum(-1)
    distance = (here.square().sum(-1) + there.square().sum(-1)) / 2  # squared, the mean of both ends
    votes = torch.exp(-offset / (2 * offset_sigma**2) - distance / (2 * distance_sigma**2))
    return votes / votes.sum()


def test_the_votes_of_the_hough_prior() -> None:
    """σ 0.4 and 0.7 of offsets, 3 of distances; a sigmoid of slope 15 around 0.25; 1000 temperatures at most."""
    model = load_model("hough-prior")
    with torch.no_grad():
        first, last = (layer.kernel()[0, 0].double() for layer in (model.head.first, model.head.last))
    torch.testing.assert_close(first, 15 * gaussian_votes(0.4, 3.0), rtol=1e-4, atol=1e-6)
    assert model.head.first.bias.item() == -15 * 0.25
    sharpness = 1000 * model.config.transfer.temperature
    torch.testing.assert_close(last, sharpness * gaussian_votes(0.7, 3.0), rtol=1e-4, atol=1e-6 * sharpness)


def test_the_hough_prior_can_be_changed() -> None:
    model = load_model("hough-prior", changes={"backbone": {"layers": ["blocks.10"]}, "matching": {"channels": 2}})
    assert model.config.backbone.layers == ("blocks.10",)
    one, other = model.head.first.kernel().detach()[:, 0].double()
    assert not torch.equal(one, other)
    for kernel in (one, other):  # the same votes but for 5 % of noise
        expected = gaussian_votes(0.4, 3.0)
        torch.testing.assert_close(kernel / kernel.sum(), expected, rtol=0.5, atol=0.1 * expected.max().item())


def test_the_hough_prior_goes_with_any_backbone(tmp_path: Path) -> None:
    path = tmp_path / "resnet18.pth"
    torch.save(ResNet("resnet18").state_dict(), path)
    layers = load_model("hough-prior", "resnet18", path, {"backbone": {"layers": ["layer2", "layer3"]}})
    assert layers.backbone.channels == 384
    plain = load_model("hough-prior", "resnet18", path)
    assert plain.config.calibration == CalibrationConfig()  # made for other features
    assert len(load_model("hough-prior").config.calibration.match) == 14
    assert plain.config.backbone.layers == ()  # not those of the model's own backbone
    torch.testing.assert_close(plain.head.state_dict(), load_model("hough-prior").head.state_dict())
    named = load_model("hough-prior", "efficientnet-lite0")
    assert named.config == load_model("hough-prior").config  # its own, feature recipe included
    assert named.config.backbone.layers == ("blocks.8", "blocks.10", "blocks.14")


def test_a_hough_prior_without_hough_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match="Hough prior"):
        load_model("hough-prior", changes={"matching": {"kind": "none"}})


def packaged(path: Path) -> CHMNet:
    """A model with the package's backbone, saved."""
    model = CHMNet(SMALL).eval()
    load_backbone_weights(model.backbone, "package")
    save_model(model, path, {"seed": 3})
    return model


def test_smaller_file_gives_nearly_the_same_numbers(tmp_path: Path) -> None:
    model = packaged(tmp_path / "whole.safetensors")
    models.shrink_model_file(tmp_path / "whole.safetensors", tmp_path / "small.safetensors", True, "package")
    assert (tmp_path / "small.safetensors").stat().st_size < (tmp_path / "whole.safetensors").stat().st_size / 2
    loaded = load_model_file(tmp_path / "small.safetensors")
    assert models.read_notes(tmp_path / "small.safetensors") == {"seed": 3}
    torch.testing.assert_close(loaded.backbone.state_dict(), model.backbone.state_dict())
    torch.testing.assert_close(loaded.head.state_dict(), model.head.state_dict(), rtol=1e-3, atol=1e-6)
    assert next(loaded.parameters()).dtype == torch.float32


def test_a_backbone_that_was_trained_is_not_left_out(path: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="not the package's"):
        models.shrink_model_file(path, tmp_path / "small.safetensors", False, "package")


def test_a_backbone_from_elsewhere_must_be_named(tmp_path: Path) -> None:
    packaged(tmp_path / "whole.safetensors")
    models.shrink_model_file(tmp_path / "whole.safetensors", tmp_path / "small.safetensors", False, "my weights")
    with pytest.raises(WeightsError, match="my weights"):
        load_model(tmp_path / "small.safetensors")
    assert load_model(tmp_path / "small.safetensors", backbone_weights="package").config == SMALL


def test_a_whole_model_takes_no_other_backbone(path: Path) -> None:
    with pytest.raises(WeightsError, match="its own backbone"):
        load_model(path, backbone_weights="package")


def test_numbers_beyond_half_precision(tmp_path: Path, model: CHMNet) -> None:
    with torch.no_grad():
        model.head.first.weight += 1e6
    with pytest.raises(WeightsError, match=r"head.first.weight .*half precision"):
        save_model(model, tmp_path / "model.safetensors", half=True)


@pytest.mark.parametrize(
    ("notes", "words"), [("{", "notes that are not JSON"), ("[1]", "notes that are no table")]
)
def test_strange_notes(path: Path, notes: str, words: str) -> None:
    with safe_open(path, "pt") as file:
        metadata = {**file.metadata(), "notes": notes}
    save_file(load_file(path), path, metadata)
    with pytest.raises(WeightsError, match=words):
        models.read_notes(path)


def test_a_trained_target_branch_is_not_left_out(tmp_path: Path) -> None:
    config = SMALL.replace(backbone=SMALL.backbone.replace(branches="separate"))
    model = CHMNet(config).eval()
    load_backbone_weights(model.backbone, "package")
    save_model(model, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="not the package's"):
        models.shrink_model_file(tmp_path / "model.safetensors", tmp_path / "small.safetensors", False, "package")


# ---------------------------------------------------------------- the trained models that are shipped

MODELS_FOLDER = Path(chmnet.__file__).parent / "models"
# In the paper, psi kernels have 220 weights in six dimensions and 55 in four.
SHIPPED = {"chmnet-lite": (55, 55, 55)}
TRAINED_ON = {"chmnet-lite": {"pf-pascal", "coco", "animal-pose", "synthetic"}}
with_shipped = pytest.mark.parametrize("name", SHIPPED)


def test_what_is_shipped_is_all_there_is() -> None:
    assert {path.stem for path in MODELS_FOLDER.glob("*.safetensors")} == set(SHIPPED)
    assert set(SHIPPED) < set(MODELS)


@with_shipped
def test_shipped_files_are_small_and_say_where_they_come_from(name: str) -> None:
    file = MODELS_FOLDER / f"{name}.safetensors"
    assert file.stat().st_size < 8e6
    training = json.loads(header_of(file)[0]["notes"])["training"]
    assert {source["dataset"] for source in training["data"]} == TRAINED_ON[name]
    assert training["best_validation_pck"]["0.1"] > 70
    paths = [source["path"] for source in training["config"]["data"]]
    paths += [training["config"]["backbone_weights"], training["config"]["init"]]
    assert not any("/" in path for path in paths)  # no path of any machine


@with_shipped
def test_shipped_models_are_what_their_files_say(name: str) -> None:
    """The configuration and each of the numbers of the file are those of the loaded model."""
    file = MODELS_FOLDER / f"{name}.safetensors"
    metadata = header_of(file)[0]
    assert metadata["chmnet_version"] == "0.2.0"
    written = json.loads(metadata["config"])
    model = load_model(name)
    config = model.config
    assert config.backbone.name == written["backbone"]["name"]
    assert list(config.backbone.layers) == written["backbone"]["layers"]
    assert config.backbone.stride_on == written["backbone"]["stride_on"]
    assert list(config.image_size) == written["image_size"]
    assert config.transfer.temperature == written["transfer"]["temperature"]
    calibration = written["calibration"]
    assert list(config.calibration.match) == calibration["match"]
    assert tuple(vote.weight.numel() for vote in model.head.votes()) == SHIPPED[name]
    assert not model.training
    state, stored = model.state_dict(), numpy_file(file)
    assert {key for key in state if key.startswith("head.")} == {key for key in stored if key.startswith("head.")}
    for key, values in stored.items():
        np.testing.assert_array_equal(state[key].numpy(), values.astype(state[key].numpy().dtype))


def test_a_trained_model_takes_no_changes() -> None:
    for changes in ({"backbone": "resnet50"}, {"changes": {"upsample": 1}}):
        with pytest.raises(WeightsError, match="chmnet-lite was trained"):
            load_model("chmnet-lite", **changes)


def metadata_of_0_1(name: str) -> dict[str, str]:
    metadata: dict[str, str] = json.loads((Path(__file__).parent / "metadata_0_1.json").read_text("utf-8"))[name]
    return metadata


def test_files_of_version_0_1_still_load(tmp_path: Path) -> None:
    """Tensors of then behind the metadata that version 0.1 wrote: the same network, without a warning."""
    tensors = read_tensors(MODELS["chmnet-lite"].path)[0]
    later = ("head.fine.", "foreground.", "facing.")
    coarse = {key: tensor for key, tensor in tensors.items() if not key.startswith(later)}
    metadata = metadata_of_0_1("chmnet-lite")
    path = tmp_path / "old.safetensors"
    save_file(coarse, path, metadata)
    loaded = load_model(path)
    fitted = json.loads(metadata["config"])["transfer"]["calibration"]
    calibration = CalibrationConfig(match=tuple(fitted))
    known = MODELS["chmnet-lite"].config
    assert loaded.config == known.replace(fine=FineConfig(), calibration=calibration, foreground=False, facing=0)
    shipped = load_model("chmnet-lite").state_dict()
    torch.testing.assert_close(loaded.state_dict(), {key: shipped[key] for key in coarse}, rtol=0, atol=0)


def test_a_file_of_version_0_1_without_its_backbone_still_loads(tmp_path: Path) -> None:
    """It says which weights it needs, and takes them."""
    metadata = metadata_of_0_1("chmnet-r50")
    path, backbone = tmp_path / "old.safetensors", tmp_path / "resnet.safetensors"
    save_file({"head": torch.zeros(1)}, path, metadata)
    model = CHMNet(models.read_model_config(path))
    save_file({f"head.{name}": tensor for name, tensor in model.head.state_dict().items()}, path, metadata)
    save_file(model.backbone.state_dict(), backbone)
    assert model.head.scales == (0.5**0.5, 1.0, 2**0.5)
    with pytest.raises(WeightsError, match=r"ResNet-50 of He et al"):
        load_model(path)
    loaded = load_model(path, backbone_weights=backbone).state_dict()
    torch.testing.assert_close(loaded, model.state_dict(), rtol=0, atol=0)


def test_a_fine_branch_behind_flat_keys_loads(tmp_path: Path) -> None:
    """Models with a fine branch were first written with the keys of version 0.1."""
    known = MODELS["chmnet-lite"]
    metadata = metadata_of_0_1("chmnet-lite")
    flat = {**json.loads(metadata["config"]), "fine": known.config.to_dict()["fine"], "foreground": True}
    flat["facing"] = known.config.facing
    path = tmp_path / "old.safetensors"
    save_file(read_tensors(known.path)[0], path, {**metadata, "config": json.dumps(flat)})
    loaded = load_model(path)
    calibration = CalibrationConfig(match=tuple(flat["transfer"]["calibration"]))
    assert loaded.config == known.config.replace(calibration=calibration)
    torch.testing.assert_close(loaded.state_dict(), load_model("chmnet-lite").state_dict(), rtol=0, atol=0)


def test_known_models_say_what_their_files_say() -> None:
    for name in SHIPPED:
        metadata = header_of(MODELS[name].path)[0]
        assert MODELS[name].description == json.loads(metadata["notes"])["description"]
        assert metadata.get("backbone_weights", "package") == "package"
    with pytest.raises(WeightsError, match="no file"):
        models.read_model_config("nonesuch.safetensors")
