"""Learning rates, groups, the average of weights; PCK of a validation."""

from pathlib import Path

import numpy as np
import pytest
import torch

from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.errors import ConfigError
from chmnet.geometry import normalised_to_pixels
from chmnet.metrics import Prediction, score
from chmnet.nn.chmnet import CHMNet
from chmnet.training.initialise import build_model
from chmnet.training.optimisation import (
    WeightAverage,
    build_optimiser,
    learning_rate_factor,
    set_learning_rate,
    trainable,
)
from chmnet.training.validation import ALPHAS, correct_share, protocol
from tests.training.tiny import tiny_config


def test_constant_schedule_with_warm_up() -> None:
    config = tiny_config("warmup_steps=4")
    assert [learning_rate_factor(step, 10, config) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]


def test_cosine_schedule_falls_to_nothing() -> None:
    config = tiny_config("schedule=cosine")
    factors = [learning_rate_factor(step, 100, config) for step in range(101)]
    assert factors[0] == 1
    assert factors == sorted(factors, reverse=True)
    assert factors[50] == pytest.approx(0.5)
    assert factors[100] == pytest.approx(0)


def test_backbone_learns_a_hundred_times_slower() -> None:
    config = tiny_config("frozen=false")
    model = CHMNet(config.model)
    optimiser = build_optimiser(model, config)
    assert [group["lr"] for group in optimiser.param_groups] == [1e-3, 1e-5]
    counts = [sum(p.numel() for p in group["params"]) for group in optimiser.param_groups]
    assert counts == [sum(p.numel() for p in part.parameters()) for part in (model.head, model.backbone)]
    set_learning_rate(optimiser, 0.5)
    assert [group["lr"] for group in optimiser.param_groups] == [5e-4, 5e-6]


def test_frozen_backbone_is_in_no_group() -> None:
    config = tiny_config()
    assert len(build_optimiser(build_model(config), config).param_groups) == 1


def test_model_without_anything_to_learn() -> None:
    config = tiny_config("model.matching.kind=none", "model.correlation.reduction=0")
    with pytest.raises(ConfigError, match="nothing in this model learns"):
        trainable(build_model(config))


def test_average_follows_and_is_undone_after_an_error() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    average = WeightAverage({"w": weight}, decay=0.5)
    for value in (1.0, 2.0, 3.0):
        weight.data.fill_(value)
        average.update()
    expected = 0.0
    for number, value in enumerate((1.0, 2.0, 3.0), start=1):
        decay = min(0.5, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * value
    torch.testing.assert_close(average.values["w"], torch.full((3,), expected))

    def stop() -> None:
        with average.applied():
            torch.testing.assert_close(weight.detach(), average.values["w"])
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    assert weight.tolist() == [3, 3, 3]


def test_pck_is_that_of_the_evaluation() -> None:
    generator = np.random.default_rng(0)
    size, pairs, predictions = (240, 180), [], []
    truth, found = generator.uniform(-1, 1, (2, 6, 8, 2)).astype(np.float32)
    found = truth + 0.25 * found
    mask = np.arange(8) < generator.integers(1, 9, (6, 1))
    for number in range(6):
        file_size = (100 + number, 300)
        points = [
            normalised_to_pixels(rows[number][mask[number]].astype(float), file_size) for rows in (truth, found)
        ]
        image = AnnotatedImage(Path("x.png"), points[0])
        pairs.append(Pair(str(number), "cat", image, image))
        predictions.append(Prediction(str(number), points[1], file_size, file_size))
    expected = score(pairs, predictions, protocol(size)).pck
    shares = correct_share(*(torch.from_numpy(value) for value in (found, truth, mask)), size)
    for alpha, share in zip(ALPHAS, shares.mean(-1), strict=True):
        assert 100 * share.item() == pytest.approx(expected[alpha], abs=1e-3)
    assert 0 < expected[0.05] < expected[0.1] < 100
