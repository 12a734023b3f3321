"""Checkpoints: one safetensors file, written completely or not at all; its metadata holds the rest as JSON."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from chmnet.errors import WeightsError
from chmnet.files import load_exactly, read_tensors, write_tensors
from chmnet.training.optimisation import WeightAverage

FORMAT = "chmnet-checkpoint-1"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What Adam keeps for each parameter."""


@dataclass
class Progress:
    """How far a run is. All randomness follows from the seed, the epoch and a pair's place: no more is kept."""

    step: int = 0
    epoch: int = 0
    """Epochs that are finished."""
    batch: int = 0
    """Batches of the present epoch that are done."""
    losses: float = 0.0
    """Sum of the losses since the last line of the log."""
    losses_number: int = 0
    best_pck: float = -1.0
    best_step: int = 0
    best: dict[str, float] | None = None
    """Figures of the best validation."""
    latest: dict[str, float] | None = None
    """Figures of the latest one."""
    stale: int = 0
    """Validations since the best one."""
    validated_step: int = -1
    finished: bool = False
    planned_epochs: int = 0
    """A finished run is resumed only if this changes."""
    average_updates: int = 0
    backbone_sha256: str = ""
    """Of a frozen backbone, which is not part of the file."""
    scaler: dict[str, float] | None = None
    """State of the loss scale of float16 training."""


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: WeightAverage | None,
    progress: Progress,
    left_out: tuple[str, ...] = (),
) -> None:
    """Write everything that resuming needs; the earlier file is replaced when the new one is complete.

    Args:
        path: the file.
        model: its weights, except tensors whose names begin with one of ``left_out``.
        optimiser: its moments.
        average: of the weights, if there is one.
        progress: how far the run is.
        left_out: beginnings of names.

    Raises:
        InputError: the folder cannot be written to, or the disk is full.
    """
    tensors = {
        f"model.{name}": value for name, value in model.state_dict().items() if not name.startswith(left_out)
    }
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"optimiser.{key}.{name}"] = value
    if average is not None:
        tensors.update({f"average.{name}": value for name, value in average.values.items()})
        progress.average_updates = average.updates
    metadata = {"format": FORMAT, "progress": json.dumps(asdict(progress))}
    write_tensors(path, tensors, metadata)


def hash_of_version_0_1(module: nn.Module) -> str:
    """How version 0.1 hashed a frozen backbone: with the numbers of batches, which decide nothing."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


class Checkpoint:
    """A checkpoint that was read; it gives a run back what :func:`save_checkpoint` found, bit for bit.

    Args:
        path: the file.

    Raises:
        WeightsError: the file is missing, damaged or of another kind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors, metadata = read_tensors(path)
        try:
            if metadata.get("format") != FORMAT:
                raise ValueError(f"its format is {metadata.get('format', 'not given')!r}")
            self.progress = Progress(**json.loads(metadata["progress"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise WeightsError(f"{path} is not a checkpoint of this version: {error}") from None

    def holds(self, beginnings: tuple[str, ...]) -> bool:
        """Whether it has tensors of the model whose names begin so."""
        return any(name.startswith(beginnings) for name in self._part("model."))

    def load_model(self, model: nn.Module, left_out: tuple[str, ...] = ()) -> None:
        """The weights; the model gets new parameters, so an optimiser must be built after this.

        Args:
            model: changed in place.
            left_out: beginnings of names of tensors that the model keeps where the checkpoint has none.
        """
        unchanged = {name: value for name, value in model.state_dict().items() if name.startswith(left_out)}
        load_exactly(model, {**unchanged, **self._part("model.")}, self.path)

    def load_optimiser(self, optimiser: torch.optim.Optimizer, model: nn.Module) -> None:
        """The moments of every parameter."""
        for name, parameter in model.named_parameters():
            found = {
                key: value for key in MOMENTS if (value := self.tensors.get(f"optimiser.{key}.{name}")) is not None
            }
            if found:
                optimiser.state[parameter] = {
                    key: value if key == "step" else value.to(parameter) for key, value in found.items()
                }

    def load_average(self, average: WeightAverage) -> None:
        """The moving average of the weights.

        Raises:
            WeightsError: the checkpoint was made without one.
        """
        values = self._part("average.")
        if values.keys() != average.values.keys():
            raise WeightsError(
                f"{self.path} was made without this average of weights; set average_decay as it was"
            )
        average.values = {name: value.to(average.values[name]) for name, value in values.items()}
        average.updates = self.progress.average_updates

    def _part(self, prefix: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)
        }
