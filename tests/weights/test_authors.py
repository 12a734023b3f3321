"""The authors' checkpoints: converted, every number stands where their code would use it."""

import json
import math
import pathlib
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from chmnet.config import ModelConfig
from chmnet.errors import InputError, WeightsError
from chmnet.nn import CHMNet, HoughMatching
from chmnet.weights import (
    convert_reference_checkpoint,
    head_from_reference,
    load_model_file,
    votes_from_reference,
)
from tests.flat import flat_config

State = dict[str, Tensor]
Layout = dict[str, tuple[list[int], str]]

# Their groups of scale pairs, numbered source · 3 + target.
SCALE_GROUPS = {"psi": [[4], [0, 8], [2, 6], [1, 3, 5, 7]], "iso": [[0, 4, 8], [2, 6], [1, 3, 5, 7]]}
SPATIAL_WEIGHTS = {"psi": 55, "iso": 15}


@pytest.fixture(autouse=True)
def _leave_nothing(tmp_path: Path) -> Iterator[None]:
    """The files of these tests are large: they go at once."""
    yield
    shutil.rmtree(tmp_path)


@pytest.fixture(scope="module")
def layouts(shared: Path) -> dict[str, Layout]:
    return json.loads((shared / "golden" / "reference_checkpoint_layout.json").read_text())


def random_state(layout: Layout) -> State:
    """A checkpoint with the authors' names and shapes: random numbers, each tensor another cut of one pool."""
    pool = 0.5 + torch.rand(2_500_000, generator=torch.Generator().manual_seed(0))
    state = {}
    for number, (name, (shape, _)) in enumerate(layout.items()):
        if name.endswith("num_batches_tracked"):
            state[name] = torch.tensor(number)
        elif name.startswith(("backbone.layer4.", "backbone.fc.")):
            state[name] = torch.tensor(0.5).expand(shape)  # unused, and larger than the pool
        else:
            state[name] = pool[number : number + math.prod(shape)].view(shape)
    return {name: tensor.clone() if name.startswith("learner.") else tensor for name, tensor in state.items()}


def learner(kind: str) -> State:
    """A small random head of their code, for its votes."""
    state = {f"learner.conv2ds.{scale}.weight": torch.rand(2, 8, 3, 3) for scale in range(3)}
    state |= {"learner.chm6d.bias": torch.rand(1), "learner.chm4d.bias": torch.rand(1)}
    if kind == "full":
        return state | {
            "learner.chm6d.param": torch.rand(1, 1, 3, 3, 5, 5, 5, 5),
            "learner.chm4d.weight": torch.rand(1, 1, 5, 5, 5, 5),
            "learner.chm4d.bias": torch.rand(()),
        }
    weights = SPATIAL_WEIGHTS[kind]
    state |= {f"learner.chm6d.param.{group}": torch.rand(weights) for group in range(len(SCALE_GROUPS[kind]))}
    return state | {"learner.chm4d.weight": torch.rand(weights)}


def convert(folder: Path, state: Any) -> CHMNet:
    torch.save(state, folder / "checkpoint.pt")
    return convert_reference_checkpoint(folder / "checkpoint.pt", folder / "model.safetensors")


def assert_refused(folder: Path, state: Any, sentence: str) -> None:
    with pytest.raises(WeightsError, match=sentence) as caught:
        convert(folder, state)
    assert "\n" not in str(caught.value)
    assert not (folder / "model.safetensors").exists()


# ---------------------------------------------------------------- a whole checkpoint


@pytest.fixture(scope="module")
def state(layouts: dict[str, Layout]) -> State:
    return random_state(layouts["psi"])


@pytest.fixture(scope="module")
def converted(state: State, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("converted")
    convert(folder, state)
    yield folder / "model.safetensors"
    shutil.rmtree(folder)  # 250 MB


@pytest.fixture(scope="module")
def loaded(converted: Path) -> State:
    model = load_model_file(converted)
    assert model.config == ModelConfig.preset("reference")
    return model.state_dict()


def test_branches_are_the_halves(state: State, loaded: State) -> None:
    expected = {}
    for name, tensor in state.items():
        short = name.removeprefix("backbone.")
        if short == name or short.startswith(("layer4.", "fc.")):
            continue
        half = len(tensor) // 2 if tensor.dim() else 0
        expected[f"backbone.{short}"] = tensor[:half] if tensor.dim() else tensor
        expected[f"target_backbone.{short}"] = tensor[half:] if tensor.dim() else tensor
    found = {name: tensor for name, tensor in loaded.items() if "backbone." in name}
    assert found.keys() == expected.keys()
    assert not torch.equal(found["backbone.conv1.weight"], found["target_backbone.conv1.weight"])
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


def test_head_of_the_whole_checkpoint(state: State, loaded: State) -> None:
    found = {name.removeprefix("head."): tensor for name, tensor in loaded.items() if name.startswith("head.")}
    assert found.keys() == {
        "first.weight",
        "first.bias",
        "last.weight",
        "last.bias",
        *(f"projections.{scale}.weight" for scale in range(3)),
    }
    torch.testing.assert_close(found["last.weight"].flatten(), state["learner.chm4d.weight"], rtol=0, atol=0)
    for scale in range(3):
        assert torch.equal(found[f"projections.{scale}.weight"], state[f"learner.conv2ds.{scale}.weight"])


def test_file_says_where_it_comes_from(converted: Path) -> None:
    with safe_open(converted, framework="pt") as file:
        assert json.loads(file.metadata()["notes"]) == {"converted_from": "checkpoint.pt"}


def test_existing_file_is_kept(state: State, tmp_path: Path) -> None:
    destination = tmp_path / "model.safetensors"
    destination.write_text("precious")
    with pytest.raises(InputError, match=r"model.safetensors exists already"):
        convert(tmp_path, state)
    assert destination.read_text() == "precious"


def test_other_kind_of_kernel_and_the_prefix_of_parallel_training(
    layouts: dict[str, Layout], tmp_path: Path
) -> None:
    state = random_state(layouts["iso"])
    model = convert(tmp_path, {f"module.{name}": tensor for name, tensor in state.items()})
    (tmp_path / "model.safetensors").unlink()
    assert model.config == flat_config("reference", first_sharing="iso", last_sharing="iso")
    expected = state["learner.chm4d.weight"]
    torch.testing.assert_close(model.head.last.weight.detach().flatten(), expected, rtol=0, atol=0)


# ---------------------------------------------------------------- the votes


def distance_groups(kind: str) -> Tensor:
    """Number each of the 5×5×5×5 taps by what it shares, in the order in which that appears."""
    line = range(-2, 3)
    numbers: dict[tuple[int, ...], int] = {}
    groups = []
    for y, x, v, u in product(line, repeat=4):
        distances = (y * y + x * x, v * v + u * u)
        key = ((v - y) ** 2 + (u - x) ** 2, *((max(distances), min(distances)) if kind == "psi" else ()))
        groups.append(numbers.setdefault(key, len(numbers)))
    return torch.tensor(groups).view(5, 5, 5, 5)


def dense_kernel(kind: str, state: State) -> Tensor:
    """The 6D kernel as their code builds it: each weight divided by the number of taps that share it."""
    groups = distance_groups(kind)
    counts = groups.flatten().bincount()
    kernel = torch.full((3, 3, 5, 5, 5, 5), torch.nan)
    for number, pairs in enumerate(SCALE_GROUPS[kind]):
        shared_weight = state[f"learner.chm6d.param.{number}"] / (counts * len(pairs))
        for pair in pairs:
            kernel[pair // 3, pair % 3] = shared_weight[groups]
    return kernel


def layers(kind: str, state: State) -> tuple[HoughMatching, HoughMatching]:
    head = head_from_reference(state)
    first, last = HoughMatching(5, 3, kind), HoughMatching(5, None, kind)
    for name, layer in (("first", first), ("last", last)):
        layer.load_state_dict({"weight": head[f"{name}.weight"], "bias": head[f"{name}.bias"]})
    return first, last


@pytest.mark.parametrize("kind", ["psi", "iso"])
def test_weights_are_in_their_groups(kind: str) -> None:
    state = learner(kind)
    first, last = layers(kind, state)
    torch.testing.assert_close(first.kernel().detach()[0, 0], dense_kernel(kind, state))
    groups = distance_groups(kind)
    expected = (state["learner.chm4d.weight"] / groups.flatten().bincount())[groups]
    torch.testing.assert_close(last.kernel().detach()[0, 0], expected)
    for layer, name in ((first, "chm6d"), (last, "chm4d")):
        torch.testing.assert_close(layer.bias.detach(), state[f"learner.{name}.bias"], rtol=0, atol=0)


def test_control_a_scale_group_in_the_wrong_place_is_noticed() -> None:
    state = learner("psi")
    exchanged = state | {
        "learner.chm6d.param.0": state["learner.chm6d.param.1"],
        "learner.chm6d.param.1": state["learner.chm6d.param.0"],
    }
    first, _ = layers("psi", exchanged)
    assert not torch.allclose(first.kernel()[0, 0], dense_kernel("psi", state))


def test_full_kernels_are_taken_as_they_are() -> None:
    state = learner("full")
    first, last = layers("full", state)
    torch.testing.assert_close(first.kernel().detach(), state["learner.chm6d.param"], rtol=0, atol=0)
    torch.testing.assert_close(last.kernel().detach(), state["learner.chm4d.weight"], rtol=0, atol=0)
    torch.testing.assert_close(last.bias.detach(), state["learner.chm4d.bias"].view(1), rtol=0, atol=0)


# ---------------------------------------------------------------- what is refused


def without(state: State, start: str) -> State:
    return {name: tensor for name, tensor in state.items() if not name.startswith(start)}


def test_checkpoint_of_another_network(tmp_path: Path) -> None:
    sentence = r"checkpoint.pt is not a checkpoint of the authors' CHMNet: it has no learner.\* tensors"
    assert_refused(tmp_path, {"conv1.weight": torch.zeros(1)}, sentence)
    assert_refused(tmp_path, {}, sentence)


@pytest.mark.parametrize(
    "name",
    ["learner.chm6d.bias", "learner.chm4d.weight", "learner.chm4d.bias", "learner.conv2ds.2.weight"],
)
def test_head_that_is_not_whole(tmp_path: Path, name: str) -> None:
    sentence = f"checkpoint.pt is not a whole checkpoint: it lacks '{name}'"
    assert_refused(tmp_path, without(learner("psi"), name), sentence)


def test_head_without_its_6d_votes(tmp_path: Path) -> None:
    sentence = r"checkpoint.pt is not a whole checkpoint: it lacks 'learner.chm6d.param"
    assert_refused(tmp_path, without(learner("psi"), "learner.chm6d.param"), sentence)


def test_backbone_that_is_not_whole(tmp_path: Path, state: State) -> None:
    sentence = r"lacks backbone.bn1.weight, target_backbone.bn1.weight; it belongs to another model"
    assert_refused(tmp_path, without(state, "backbone.bn1.weight"), sentence)
    sentence = r"lacks (backbone[\w.]+, ){2}backbone[\w.]+ and \d+ more; it belongs to another model"
    assert_refused(tmp_path, learner("psi"), sentence)


def test_wrong_number_of_weights(tmp_path: Path) -> None:
    state = learner("psi") | {"learner.chm4d.weight": torch.rand(54)}
    assert_refused(tmp_path, state, "checkpoint.pt has 54 weights in its 4D layer, expected 55, 15 or 625")


@pytest.mark.parametrize("name", ["learner.chm6d.bias", "learner.chm4d.bias"])
def test_bias_of_several_numbers(tmp_path: Path, name: str) -> None:
    assert_refused(tmp_path, learner("psi") | {name: torch.rand(2)}, "it belongs to another model")


@pytest.mark.parametrize("number", [2, 5])
def test_wrong_number_of_scale_groups(number: int) -> None:
    with pytest.raises(WeightsError, match=f"a 6D layer has 4 or 3 vectors of weights, got {number}"):
        votes_from_reference([torch.rand(55)] * number)


def test_kinds_that_do_not_fit_each_other(tmp_path: Path, state: State) -> None:
    sentence = r"head.first.weight has shape \[1, 1, 220\], expected \[1, 1, 45\]; it belongs to another model"
    assert_refused(tmp_path, state | {"learner.chm4d.weight": torch.rand(15)}, sentence)


def test_tensor_that_does_not_hold_two_branches(tmp_path: Path) -> None:
    state = learner("psi") | {"backbone.bn1.weight": torch.rand(127)}
    assert_refused(tmp_path, state, "backbone.bn1.weight does not hold two branches: its first size is 127")


def test_truncated_checkpoint(tmp_path: Path) -> None:
    source = tmp_path / "checkpoint.pt"
    torch.save(learner("psi"), source)
    source.write_bytes(source.read_bytes()[:-1000])
    with pytest.raises(
        WeightsError, match=r"checkpoint.pt is not a file of weights that can be read safely; it is not used"
    ):
        convert_reference_checkpoint(source, tmp_path / "model.safetensors")


def test_missing_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"there is no file .*none.pt$"):
        convert_reference_checkpoint(tmp_path / "none.pt", tmp_path / "model.safetensors")


class Trap:
    """Pickled, it is an order to create a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return pathlib.Path.touch, (self.marker,)


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    state = learner("psi") | {"learner.chm4d.bias": Trap(marker)}
    assert_refused(tmp_path, state, "checkpoint.pt is not a file of weights that can be read safely")
    assert not marker.exists()
    torch.load(tmp_path / "checkpoint.pt", weights_only=False)  # control: read without care, the trap does spring
    assert marker.exists()
