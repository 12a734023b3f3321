"""The probe of the foreground, and the matches that are worth showing by it."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from chmnet.config import BackboneConfig
from chmnet.geometry import grid_points
from chmnet.matcher import Matcher
from chmnet.nn import CHMNet, Foreground, for_inference
from chmnet.nn.foreground import best_matches, on_thing
from tests.flat import flat_config

HERE = grid_points((4, 4), like=torch.zeros(1, dtype=torch.float64))
"""Every position stays where it is."""
ALL = torch.ones(16, dtype=torch.bool)


def probed() -> CHMNet:
    config = flat_config(backbone=BackboneConfig("resnet18"), image_size=(64, 64)).replace(foreground=True)
    model = CHMNet(config).eval()
    assert model.foreground is not None
    torch.nn.init.normal_(model.foreground.weight, generator=torch.Generator().manual_seed(0))
    return model


def left_half(value: float = 0.9, rest: float = 0.1) -> Tensor:
    """A picture whose thing is its left half."""
    return torch.cat([torch.full((1, 4, 2), value), torch.full((1, 4, 2), rest)], dim=2)


def test_the_probe_is_a_logistic_function_of_the_direction_of_each_cell() -> None:
    probe = Foreground(3)
    features = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(probe(features), torch.full((2, 4, 5), 0.5))  # before any fit
    probe.weight, probe.bias = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.3])
    found = probe(features)
    for b, h, w in itertools.product(range(2), range(4), range(5)):
        cell = features[b, :, h, w].tolist()
        length = math.sqrt(sum(value * value for value in cell))
        logit = sum(k * value / length for k, value in zip((1.0, -2.0, 0.5), cell, strict=True)) + 0.3
        assert float(found[b, h, w]) == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-5)
    torch.testing.assert_close(probe(7 * features), found)
    torch.testing.assert_close(probe(torch.cat([features, features], dim=1)), found)  # early layers come behind


def test_a_probe_is_no_parameter_and_inference_keeps_it() -> None:
    model = probed()
    assert not any("foreground" in name for name, _ in model.named_parameters())
    assert {"foreground.weight", "foreground.bias"} <= model.state_dict().keys()
    ready = for_inference(model)
    features = torch.rand(1, 256, 3, 3)
    assert ready.foreground is not None
    assert model.foreground is not None
    torch.testing.assert_close(ready.foreground(features), model.foreground(features))
    assert CHMNet(model.config.replace(foreground=False)).foreground is None


def test_features_and_results_carry_the_foreground() -> None:
    matcher = Matcher(probed(), device="cpu")
    pictures = torch.rand(2, 3, 50, 70, generator=torch.Generator().manual_seed(2))
    source, target = (matcher.extract(picture) for picture in pictures)
    assert source.foreground is not None
    assert source.foreground.shape == (1, *source.grid)
    assert source.foreground.std() > 0
    result = matcher.match(source, target)
    assert result.foreground[0] is source.foreground
    assert result.foreground[1] is target.foreground


def test_positions_read_the_foreground_between_its_cells() -> None:
    values, least = on_thing(left_half(), HERE)
    torch.testing.assert_close(values, left_half()[0].double())
    assert least == 0.5
    assert on_thing(left_half(0.2), HERE)[1] == pytest.approx(0.12)  # nothing looks like a thing
    everything, nothing = on_thing(None, HERE)
    torch.testing.assert_close(everything, torch.ones(4, 4, dtype=torch.float64))
    assert nothing == 0


def test_matches_that_start_or_end_on_the_background_are_left_out() -> None:
    confidence = torch.linspace(0.1, 0.9, 16, dtype=torch.float64).view(4, 4)
    best, strength = best_matches(confidence, HERE, (left_half(), None), ALL)
    assert best.tolist() == [13, 12, 9, 8, 5, 4, 1, 0]  # the left half, the most confident first
    torch.testing.assert_close(strength, 0.9 * confidence.flatten()[best], rtol=1e-6, atol=0)
    mirrored = HERE * torch.tensor([-1.0, 1.0])
    ends, _ = best_matches(confidence, mirrored, (None, left_half()), ALL)
    assert ends.tolist() == [15, 14, 11, 10, 7, 6, 3, 2]
    seen = ALL.clone()
    seen[13] = False
    assert best_matches(confidence, HERE, (left_half(), None), seen)[0].tolist() == [12, 9, 8, 5, 4, 1, 0]


def test_of_two_confident_matches_the_one_on_the_thing_is_better() -> None:
    foreground = torch.full((1, 4, 4), 0.6)
    foreground[0, 1, 1] = 0.95
    confidence = torch.full((4, 4), 0.5, dtype=torch.float64)
    confidence[2, 2] = 0.7
    assert best_matches(confidence, HERE, (foreground, foreground), ALL)[0][:2].tolist() == [5, 10]
    assert best_matches(confidence, HERE, (None, None), ALL)[0][0] == 10  # without a probe confidence decides


def test_one_match_stays_where_none_lies_on_a_thing() -> None:
    right = left_half().flip(2)  # starts on the left of one picture, ends on the right of the other
    best, _ = best_matches(torch.full((4, 4), 0.5, dtype=torch.float64), HERE, (left_half(), right), ALL)
    assert len(best) == 1
