import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from chmnet.config import BackboneConfig, ModelConfig
from chmnet.errors import InputError, WeightsError
from chmnet.nn import CHMNet, HoughMatching, MatchingHead, for_inference, inference
from chmnet.nn.inference import InferenceHead, InferenceNetwork
from chmnet.nn.memory import chunk_bytes
from chmnet.ops.correlation import filter_in_place, mutual_nearest_neighbour_filter
from chmnet.ops.transfer import locate
from chmnet.weights import save_model
from tests.conftest import REPOSITORY
from tests.flat import flat_config


def network(backbone: str = "resnet18", **changes: object) -> CHMNet:
    """A network whose batch norms change something."""
    torch.manual_seed(0)
    model = CHMNet(flat_config("paper", backbone=BackboneConfig(backbone), **changes)).eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, std=0.1)
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.1)
    return model


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(2, 3, 64, 80, generator=generator), torch.rand(2, 3, 64, 80, generator=generator)


@pytest.mark.parametrize("backbone", ["resnet18", "resnet50", "efficientnet-lite0"])
def test_same_scores(backbone: str, pair: tuple[Tensor, Tensor]) -> None:
    model = network(backbone)
    ready = for_inference(model)
    with torch.inference_mode():
        torch.testing.assert_close(ready.features(pair[0]), model.features(pair[0]), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(ready(*pair), model(*pair), rtol=1e-4, atol=1e-6)


def test_separate_branches(pair: tuple[Tensor, Tensor]) -> None:
    model = network()
    separate = CHMNet(model.config.replace(backbone=BackboneConfig("resnet18", branches="separate"))).eval()
    with torch.inference_mode():
        torch.testing.assert_close(for_inference(separate)(*pair), separate(*pair), rtol=1e-4, atol=1e-6)


def test_the_model_itself_stays_as_it_is(pair: tuple[Tensor, Tensor]) -> None:
    model = network().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ready = for_inference(model)
    assert model.training
    assert not ready.training
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert any(isinstance(part, nn.BatchNorm2d) for part in model.modules())
    assert not any(isinstance(part, nn.BatchNorm2d | HoughMatching) for part in ready.modules())
    assert not any(parameter.requires_grad for parameter in ready.parameters())
    ready.double()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("change", ["double", "autocast"])
def test_other_precisions(change: str, pair: tuple[Tensor, Tensor]) -> None:
    """Fused convolutions are for float32; in other precisions the network works all the same."""
    model = network("resnet50")
    ready = for_inference(model)
    with torch.inference_mode(), torch.autocast("cpu", enabled=change == "autocast"):
        if change == "double":
            torch.testing.assert_close(ready.double()(pair[0].double(), pair[1].double()).float(), model(*pair))
        else:
            torch.testing.assert_close(ready(*pair), model(*pair), rtol=0.1, atol=1e-2)


def test_it_draws_no_random_numbers() -> None:
    model = network()
    inference._fused_convolution_works.cache_clear()
    before = torch.get_rng_state()
    for_inference(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_it_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="made ready for inference cannot be saved"):
        save_model(for_inference(network()), tmp_path / "model.safetensors")


def test_twice_is_once(pair: tuple[Tensor, Tensor]) -> None:
    ready = for_inference(network())
    with torch.inference_mode():
        assert torch.equal(for_inference(ready)(*pair), ready(*pair))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("chunk_bytes", [1, 60_000, 10**9])
def test_pieces_change_nothing(channels: int, chunk_bytes: int) -> None:
    config = flat_config(output="softplus", mutual_filter=True, channels=channels)
    exact = MatchingHead(config, in_channels=8).eval()
    head = InferenceHead(exact)
    source, target = torch.rand(2, 8, 7, 5), torch.rand(2, 8, 4, 6)
    with torch.inference_mode():
        pyramids = head.pyramid(source), head.pyramid(target)
        whole, _ = head.match(*pyramids)
        pieces, _ = head.match(*pyramids, chunk_bytes=chunk_bytes)
        torch.testing.assert_close(pieces, whole, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(exact(source, target).detach(), whole, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("side", [64, 240])
@pytest.mark.parametrize(
    "changes",
    [{}, {"scales": [1.0]}, {"rectify": "after-resize", "power": 2.0}, {"keep_top": 3}],
    ids=["paper", "one-scale", "powers", "three"],
)
def test_kept_matches_are_the_dense_form(side: int, changes: dict[str, object]) -> None:
    correlation = {"keep_top": 10, **changes}
    config = ModelConfig.preset("paper", correlation=correlation, output={"mutual_filter": True})
    torch.manual_seed(0)
    exact = MatchingHead(config, in_channels=16).eval()
    head = InferenceHead(exact)
    source, target = torch.rand(1, 16, side // 16, side // 16), torch.rand(1, 16, side // 16, side // 16 - 1)
    with torch.inference_mode():
        expected, pairs = exact.match(exact.pyramid(source), exact.pyramid(target), scales=True)
        for chunk_bytes in (1, 10**9):
            found, winners = head.match(
                head.pyramid(source), head.pyramid(target), scales=True, chunk_bytes=chunk_bytes
            )
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
            if pairs is not None:
                assert winners is not None
                assert (winners != pairs).float().mean() < 1e-3  # where two pairs of scales are equally good


def test_many_scores_are_stored_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig.preset("paper", correlation={"keep_top": 3}, output={"mutual_filter": True})
    torch.manual_seed(0)
    head = InferenceHead(MatchingHead(config, in_channels=8))
    with torch.inference_mode():
        pyramids = [head.pyramid(torch.rand(1, 8, 4, 5)) for _ in range(2)]
        single, _ = head.match(*pyramids)
        monkeypatch.setattr(inference, "HALF_FROM", 1)
        half, _ = head.match(*pyramids)
        assert (single.dtype, half.dtype) == (torch.float32, torch.float16)
        torch.testing.assert_close(half.float(), single, rtol=3e-3, atol=1e-6)
        assert locate(half).positions.dtype == torch.float32
        # With random weights many scores are nearly equal: rounding moves positions most there.
        torch.testing.assert_close(locate(half).positions, locate(single).positions, rtol=0, atol=1e-2)


def test_the_exact_network_has_no_modes() -> None:
    """With gradients or without, one call gives the same numbers: speed is another class's."""
    model = network(mutual_filter=True)
    source, target = torch.rand(2, 1, 3, 64, 80).unbind()
    with torch.no_grad():
        without = model(source, target)
    assert torch.equal(model(source, target).detach(), without)
    assert isinstance(for_inference(model), InferenceNetwork)
    assert not isinstance(model, InferenceNetwork)


@pytest.mark.parametrize("chunk_bytes", [1, 2_000, 10**9])
def test_filter_in_place(chunk_bytes: int) -> None:
    scores = torch.rand(2, 1, 4, 3, 5, 2)
    scores[0, 0, 1] = 0
    expected = mutual_nearest_neighbour_filter(scores)
    assert filter_in_place(scores, chunk_bytes) is scores
    assert torch.equal(scores, expected)


def match_within(model: InferenceNetwork, source: Tensor, target: Tensor, memory_mb: float) -> Tensor:
    """One pair of images, as :class:`chmnet.Matcher` matches within a limit."""
    pieces = chunk_bytes(model.head, source.shape[2:], target.shape[2:], memory_mb)
    with torch.inference_mode():
        pyramids = [model.head.pyramid(model.features(images)) for images in (source, target)]
        return model.head.match(*pyramids, chunk_bytes=pieces)[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"mutual_filter": True, "output": "softplus"},
        {"matching": "none"},
        {"last_layer": False},
        {"matching": "consensus"},
        {"matching": "regularised-hough"},
    ],
    ids=str,
)
def test_within_a_limit_the_numbers_are_the_same(changes: dict[str, object], pair: tuple[Tensor, Tensor]) -> None:
    model = for_inference(network(**changes))
    pair = pair[0][:1], pair[1][:1]
    with torch.inference_mode():
        torch.testing.assert_close(match_within(model, *pair, 40), model(*pair), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("memory_mb", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_limit_that_is_no_number_of_megabytes(memory_mb: float) -> None:
    with pytest.raises(InputError, match="memory_mb must be a positive, finite number"):
        chunk_bytes(for_inference(network()).head, (240, 240), (240, 240), memory_mb)


def test_a_limit_too_low() -> None:
    with pytest.raises(InputError, match=r"needs about \d+ MB .* more than the limit of 1;"):
        chunk_bytes(for_inference(network()).head, (240, 240), (240, 240), 1)


PEAK = """
import torch
from chmnet.benchmark.timing import peak_megabytes
from chmnet.nn import CHMNet, for_inference
from tests.flat import flat_config
from tests.nn.test_inference import match_within

model = for_inference(CHMNet(flat_config(
    backbone={"name": "resnet18"}, upsample=4, mutual_filter=True, output="softplus"
)))
source, target = torch.rand(2, 1, 3, 160, 160).unbind()
print(peak_megabytes(lambda: match_within(model, source, target, 55)))
"""


def test_a_limit_is_kept() -> None:
    """In a process of its own; the limit is not much above the least that is needed."""
    command = [sys.executable, "-c", PEAK]
    peak = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout.strip()
    if peak == "None":
        pytest.skip("peak memory needs Linux's counters")
    assert float(peak) <= 55


def test_the_private_interfaces_of_pytorch_are_still_there() -> None:
    """nn/inference.py uses three names that PyTorch does not promise; without the first it is only slower."""
    pointwise = getattr(torch.ops.mkldnn, "_convolution_pointwise", None)
    assert pointwise is not None, "torch.ops.mkldnn._convolution_pointwise is gone: change FusedConvolution.fused"
    assert hasattr(pointwise, "binary"), "its overload `binary` is gone: change FusedConvolution.fused"
    inference._fused_convolution_works.cache_clear()
    assert inference._fused_convolution_works(), "it takes other arguments: change FusedConvolution.fused"
    layer = nn.Conv2d(1, 1, 1)
    assert set(layer._parameters) == {"weight", "bias"}, "Module._parameters changed: change InferenceNetwork"


def test_private_names_of_pytorch_stand_in_one_file() -> None:
    users = {
        path.relative_to(REPOSITORY / "src" / "chmnet").as_posix()
        for path in (REPOSITORY / "src").rglob("*.py")
        if re.search(r"torch\._[a-z]|torch\.ops\.\w+\._|\._parameters\b|\._modules\b", path.read_text("utf-8"))
    }
    assert users == {"nn/inference.py"}
