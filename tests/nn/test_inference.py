import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from chmnet.config import BackboneConfig
from chmnet.errors import InputError, WeightsError
from chmnet.nn import CHMNet, HoughMatching, MatchingHead, for_inference, inference
from chmnet.ops.correlation import filter_in_place, mutual_nearest_neighbour_filter
from chmnet.weights import save_model
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
    head = MatchingHead(config, in_channels=8).eval()
    source, target = torch.rand(2, 8, 7, 5), torch.rand(2, 8, 4, 6)
    with torch.inference_mode():
        pyramids = head.pyramid(source), head.pyramid(target)
        whole = head.match(*pyramids)
        torch.testing.assert_close(head.match(*pyramids, chunk_bytes=chunk_bytes), whole, rtol=1e-6, atol=1e-9)
    with torch.enable_grad():
        torch.testing.assert_close(head(source, target).detach(), whole, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("chunk_bytes", [1, 2_000, 10**9])
def test_filter_in_place(chunk_bytes: int) -> None:
    scores = torch.rand(2, 1, 4, 3, 5, 2)
    scores[0, 0, 1] = 0
    expected = mutual_nearest_neighbour_filter(scores)
    assert filter_in_place(scores, chunk_bytes) is scores
    assert torch.equal(scores, expected)


def test_within_a_limit_the_numbers_are_the_same(pair: tuple[Tensor, Tensor]) -> None:
    model = for_inference(network(mutual_filter=True, output="softplus"))
    with torch.inference_mode():
        torch.testing.assert_close(model.match_within(*pair, memory_mb=20), model(*pair), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    "changes", [{"matching": "none"}, {"last_layer": False}, {"matching": "consensus"}], ids=str
)
def test_within_a_limit_without_a_last_vote(changes: dict[str, object], pair: tuple[Tensor, Tensor]) -> None:
    model = for_inference(network(**changes))
    with torch.inference_mode():
        torch.testing.assert_close(model.match_within(*pair, memory_mb=40), model(*pair), rtol=1e-4, atol=1e-6)


def test_an_empty_batch_within_a_limit() -> None:
    images = torch.rand(0, 3, 64, 80)
    assert network().match_within(images, images, 50).shape == (0, 1, 8, 10, 8, 10)


@pytest.mark.parametrize("memory_mb", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_limit_that_is_no_number_of_megabytes(memory_mb: float, pair: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(InputError, match="memory_mb must be a positive, finite number of megabytes"):
        network().match_within(*pair, memory_mb)


def test_a_limit_for_something_else_than_images() -> None:
    with pytest.raises(InputError, match="images must have the axes b 3 h w"):
        network().match_within(torch.rand(3, 64, 64), torch.rand(3, 64, 64), 50)


def test_a_limit_too_low(pair: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(
        InputError, match=r"matching needs about \d+ MB beside the network, more than the limit of 1;"
    ):
        network().match_within(*pair, memory_mb=1)


PEAK = """
import torch
from chmnet.benchmark.timing import peak_megabytes
from chmnet.config import BackboneConfig, ModelConfig
from chmnet.nn import CHMNet, for_inference

config = flat_config(backbone=BackboneConfig("resnet18"), upsample=4, mutual_filter=True, output="softplus")
model = for_inference(CHMNet(config))
source, target = torch.rand(2, 1, 3, 160, 160).unbind()
print(peak_megabytes(lambda: model.match_within(source, target, 55)))
"""


def test_a_limit_is_kept() -> None:
    """In a process of its own; the limit is not much above the least that is needed."""
    peak = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout.strip()
    if peak == "None":
        pytest.skip("peak memory needs Linux's counters")
    assert float(peak) <= 55
