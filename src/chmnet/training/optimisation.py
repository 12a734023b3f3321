"""Adam's groups of parameters, schedules of the learning rate, the moving average of weights."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from chmnet.errors import ConfigError
from chmnet.nn.chmnet import CHMNet
from chmnet.training.config import TrainingConfig


def learning_rate_factor(step: int, total_steps: int, config: TrainingConfig) -> float:
    """What the learning rates are multiplied with at a step, counted from 0.

    Example:
        >>> config = TrainingConfig(schedule="cosine", warmup_steps=2)
        >>> [round(learning_rate_factor(step, 6, config), 2) for step in range(6)]
        [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    done = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    return (1 + math.cos(math.pi * min(1.0, done))) / 2


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn, by name.

    Raises:
        ConfigError: there are none.
    """
    found = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not found:
        raise ConfigError(
            "nothing in this model learns: the backbone is frozen and the matching has no weights; "
            'use matching.kind = "hough", or frozen = false'
        )
    return found


def build_optimiser(model: CHMNet, config: TrainingConfig) -> torch.optim.Adam:
    """Adam with one learning rate for the matching layers and another for the backbone."""
    named = trainable(model)
    groups = [
        ([p for name, p in named.items() if name.startswith("head.")], config.learning_rate),
        ([p for name, p in named.items() if not name.startswith("head.")], config.backbone_learning_rate),
    ]
    return torch.optim.Adam(
        [{"params": parameters, "lr": rate, "base_rate": rate} for parameters, rate in groups if parameters]
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Every group's own learning rate, times the factor."""
    for group in optimiser.param_groups:
        group["lr"] = group["base_rate"] * factor


class WeightAverage:
    """Exponential moving average of the weights that learn.

    ``average ← d · average + (1 − d) · weights`` with ``d = min(decay, (1 + n) / (10 + n))`` at update n, so that
    the first weights are soon forgotten.

    Args:
        parameters: by name; the average starts as a copy of them.
        decay: 0 … 1.

    Example:
        >>> weight = nn.Parameter(torch.zeros(1))
        >>> average = WeightAverage({"w": weight}, decay=0.9)
        >>> _ = weight.data.fill_(1.0)
        >>> average.update()
        >>> with average.applied():
        ...     inside = weight.item()
        >>> round(inside, 3), weight.item()
        (0.818, 1.0)
    """

    def __init__(self, parameters: dict[str, nn.Parameter], decay: float) -> None:
        self.parameters, self.decay, self.updates = parameters, decay, 0
        self.values: dict[str, Tensor] = {name: value.detach().clone() for name, value in parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take the present weights in."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, parameter in self.parameters.items():
            self.values[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the model has the average for its weights."""
        kept = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        self._write(self.values)
        try:
            yield
        finally:
            self._write(kept)

    @torch.no_grad()
    def _write(self, values: dict[str, Tensor]) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(values[name])
