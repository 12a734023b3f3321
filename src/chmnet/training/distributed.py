"""Processes and devices, by accelerate: alone, under ``torchrun`` or under ``accelerate launch``."""

import os
from importlib.util import find_spec
from typing import Any

import torch

from chmnet.errors import ConfigError, InputError
from chmnet.training.config import TrainingConfig


def start_accelerator(config: TrainingConfig) -> Any:  # an Accelerator, which is imported only when a run starts
    """Find out which process of how many this is, and on which device it computes.

    Raises:
        InputError: accelerate is not installed.
        ConfigError: a batch cannot be shared out equally, or the precision is not for this device.
    """
    if find_spec("accelerate") is None:
        raise InputError('training needs accelerate; run `pip install "chmnet[train]"`')
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # A second run in one process may have another precision; which processes there are stays as it is.
    AcceleratorState._reset_state()
    gpu = torch.cuda.is_available()
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    accelerator = Accelerator(cpu=several and not gpu, mixed_precision=choose_precision(config.precision))
    shares = accelerator.num_processes * config.accumulate
    if config.batch_size % shares:
        raise ConfigError(
            f"batch_size = {config.batch_size} cannot be shared out equally to {accelerator.num_processes} "
            f"processes × accumulate = {config.accumulate}; use a multiple of {shares}"
        )
    return accelerator


def choose_precision(wanted: str) -> str:
    """Mixed precision for the device at hand; ``auto`` is none on a CPU.

    Raises:
        ConfigError: float16 was asked for without a GPU.
    """
    gpu = torch.cuda.is_available()
    if wanted == "fp16" and not gpu:
        raise ConfigError('precision = "fp16" needs a GPU; use "no" or "bf16" here')
    if wanted != "auto":
        return wanted
    if not gpu:
        return "no"
    return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
