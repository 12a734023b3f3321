"""Runs in processes of their own: killed without warning, and shared by two."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from chmnet.training.checkpoint import Checkpoint
from chmnet.training.config import TrainingConfig
from chmnet.training.log import read_log
from chmnet.training.loop import CHECKPOINT, LAST, train
from tests.training.test_loop import assert_same_weights, losses
from tests.training.tiny import tiny_config

pytestmark = pytest.mark.slow
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}


def write_config(config: TrainingConfig, folder: Path) -> str:
    path = folder / "run.toml"
    path.write_text(config.to_toml())
    return str(path)


def wait_for_step(folder: Path, step: int, process: subprocess.Popen, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if (folder / "log.jsonl").exists() and max(
            (r["step"] for r in read_log(folder / "log.jsonl")), default=0
        ) >= step:
            return
        time.sleep(0.01)
    pytest.fail(f"the run did not come to step {step} (exit code {process.poll()})")


def test_killed_and_resumed_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    config = tiny_config("epochs=16", "checkpoint_minutes=0", "validate_every=8", "average_decay=0.9")
    train(config, tmp_path / "whole")
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "chmnet", "train", write_config(config, tmp_path), "-o", str(folder)]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        wait_for_step(folder, 7, process)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (folder / LAST).exists()
    assert 0 < Checkpoint(folder / CHECKPOINT).progress.step < 32
    train(config, folder, resume=True)
    assert_same_weights(tmp_path / "whole" / LAST, folder / LAST)
    assert losses(tmp_path / "whole") == losses(folder)


def run_with_limit(command: list[str], environment: dict[str, str], seconds: float) -> tuple[int, str, str]:
    """Exit code and streams; a launcher that takes too long is asked to end, so that it ends its workers."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            stdout, stderr = process.communicate(timeout=30)
    return process.returncode, stdout, stderr


def test_two_processes_have_the_curve_of_one(tmp_path: Path) -> None:
    config = tiny_config("epochs=3", "learning_rate=0.01", "accumulate=2")
    train(config, tmp_path / "one")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "chmnet", "train", write_config(config, tmp_path), "-o", str(tmp_path / "two")]
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    code, stdout, stderr = run_with_limit(command, environment, seconds=120)
    assert code == 0, stderr
    expected, found = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in expected], rel=1e-3)
    assert stdout.count("steps done") == 1  # one of the two speaks
