"""Processes and devices of a training run, as accelerate finds them."""

import os
from importlib.util import find_spec
from typing import Any

import torch

from chmnet.errors import ConfigError, InputError
from chmnet.matcher import choose_device
from chmnet.training.config import TrainingConfig


def start_accelerator(config: TrainingConfig, device: str = "auto") -> Any:  # an Accelerator
    """Find out which process of how many this is, and on which device it computes.

    Args:
        config: the run.
        device: ``"auto"``: accelerate chooses. Of several processes, each has a device of its own: only ``"auto"``
            and ``"cpu"`` are for them.

    Raises:
        InputError: accelerate is not installed, or there is no such device.
        ConfigError: a batch cannot be shared out equally, or the precision is not for this device.
    """
    if find_spec("accelerate") is None:
        raise InputError('training needs accelerate; run `pip install "chmnet[train]"`')
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import patch_environment

    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    # A second run in one process may have another precision, and another device if it is the only process.
    AcceleratorState._reset_state(reset_partial_state=not several)
    chosen = {}
    if device not in ("auto", "cpu"):
        if several:
            raise InputError(f"each process has a device of its own; leave out --device {device}, or use cpu")
        chosen["ACCELERATE_TORCH_DEVICE"] = str(choose_device(device))
    gpu = torch.cuda.is_available() and device.startswith(("auto", "cuda"))
    cpu = device == "cpu" or (several and not gpu)
    with patch_environment(**chosen):
        accelerator = Accelerator(cpu=cpu, mixed_precision=choose_precision(config.precision, gpu))
    shares = accelerator.num_processes * config.accumulate
    if config.batch_size % shares:
        raise ConfigError(
            f"batch_size = {config.batch_size} cannot be shared out equally to {accelerator.num_processes} "
            f"processes × accumulate = {config.accumulate}; use a multiple of {shares}"
        )
    return accelerator


def choose_precision(wanted: str, gpu: bool) -> str:
    """Mixed precision for the device at hand; ``auto`` is none on a CPU.

    Raises:
        ConfigError: float16 was asked for without a GPU.
    """
    if wanted == "fp16" and not gpu:
        raise ConfigError('precision = "fp16" needs a GPU; use "no" or "bf16" here')
    if wanted != "auto":
        return wanted
    if not gpu:
        return "no"
    return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
