"""The record of a run."""

import logging
from pathlib import Path

import pytest

from chmnet.errors import InputError
from chmnet.training.log import CURVE, LOG, RunLog, read_log

STEPS = {"kind": "steps", "loss": 0.5, "learning_rate": 0.1, "seconds_a_step": 0.2}
VALIDATION = {"kind": "validation", "loss": 0.4, "pck": {"0.1": 30.0}}


def write_some(folder: Path) -> None:
    log = RunLog(folder)
    log.add({**VALIDATION, "step": 0})
    for step in (1, 2, 3):
        log.add({**STEPS, "step": step})
    log.close()


def test_lines_after_the_checkpoint_are_taken_out(tmp_path: Path) -> None:
    write_some(tmp_path)
    with (tmp_path / LOG).open("a") as file:
        file.write('{"kind": "steps", "st')  # cut off by a kill
    log = RunLog(tmp_path, last=(2, 0))
    log.add({**STEPS, "step": 3, "loss": 0.25})
    log.close()
    assert [one["step"] for one in read_log(tmp_path / LOG)] == [0, 1, 2, 3]
    assert read_log(tmp_path / LOG)[-1]["loss"] == 0.25


def test_a_new_run_starts_an_empty_log(tmp_path: Path) -> None:
    write_some(tmp_path)
    RunLog(tmp_path).close()
    assert read_log(tmp_path / LOG) == []


def test_curve_is_drawn_of_anything(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    for record in (None, {**VALIDATION, "step": 0}, {**STEPS, "step": 1}):
        if record is not None:
            log.add(record)
        log.draw()
        assert (tmp_path / CURVE).read_bytes().startswith(b"\x89PNG")
    log.close()


def test_full_disk_is_one_sentence(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    (tmp_path / LOG).unlink()
    (tmp_path / LOG).symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"cannot write .*log.jsonl: No space left on device"):
        log.add({**STEPS, "step": 1})
    log.close()


def test_log_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    with pytest.raises(InputError, match=r"cannot read .*log.jsonl: Is a directory"):
        read_log(tmp_path / LOG)


def test_run_goes_on_without_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        def add_scalar(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("chmnet.training.log._open_board", lambda folder, step: Full())
    log = RunLog(tmp_path)
    with caplog.at_level(logging.WARNING):
        log.add({**STEPS, "step": 1})
        log.add({**STEPS, "step": 2})
    log.close()
    assert caplog.text.count("TensorBoard cannot write") == 1
    assert len(read_log(tmp_path / LOG)) == 2


def test_tensorboard_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chmnet.training.log.find_spec", lambda name: None)
    write_some(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOG]
