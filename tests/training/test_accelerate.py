"""Processes, devices and precisions, and the private interfaces of accelerate that training uses."""

import inspect
import os
from pathlib import Path

import accelerate.state
import pytest
import torch

from chmnet.errors import ConfigError, InputError
from chmnet.training.loop import train
from chmnet.training.processes import start_accelerator
from tests.training.tiny import tiny_config


def test_a_second_run_may_have_another_precision() -> None:
    if not callable(getattr(accelerate.state.AcceleratorState, "_reset_state", None)):
        pytest.fail(
            "accelerate has no AcceleratorState._reset_state any more: find another way in "
            "chmnet.training.processes.start_accelerator to choose the precision of a second run in one process"
        )
    found = [start_accelerator(tiny_config(f"precision={kind}")).mixed_precision for kind in ("no", "bf16", "no")]
    assert found == ["no", "bf16", "no"], (
        "AcceleratorState._reset_state of accelerate does not forget the precision any more: "
        "see chmnet.training.processes.start_accelerator"
    )


def test_a_device_is_chosen_by_a_variable_that_accelerate_reads() -> None:
    assert "ACCELERATE_TORCH_DEVICE" in inspect.getsource(accelerate.state), (
        "accelerate does not read ACCELERATE_TORCH_DEVICE any more: "
        "find another way in chmnet.training.processes.start_accelerator to run on a chosen device"
    )


def test_a_second_run_may_have_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chmnet.training.processes.choose_device", torch.device)
    monkeypatch.delenv("ACCELERATE_TORCH_DEVICE", raising=False)
    found = [start_accelerator(tiny_config(), device).device.type for device in ("cpu", "meta", "cpu", "auto")]
    assert found[:3] == ["cpu", "meta", "cpu"]
    assert found[3] != "meta"
    assert "ACCELERATE_TORCH_DEVICE" not in os.environ


def test_float16_needs_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match='precision = "fp16" needs a GPU'):
        train(tiny_config("precision=fp16"), tmp_path)


def test_training_without_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chmnet.training.processes.find_spec", lambda name: None)
    with pytest.raises(InputError, match="training needs accelerate"):
        train(tiny_config(), tmp_path)


def test_devices_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config()
    assert start_accelerator(config, "cpu").device.type == "cpu"
    with pytest.raises(InputError, match="no device 'toaster'"):
        start_accelerator(config, "toaster")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="each process has a device of its own"):
        start_accelerator(config, "cuda:1")
