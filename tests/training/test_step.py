"""How far one training step walks: the files of chmnet in which a function runs."""

from pathlib import Path
from typing import Any

import pytest

from chmnet.training.datasets import epoch_plan
from chmnet.training.loop import Run
from tests.data import trees
from tests.test_paths import check_calls_go_down, traced
from tests.training.tiny import SYNTHETIC, tiny_config

CHANGES = {"swap": 0.5, "flip": 0.5, "crop": 0.5, "colour": 0.5}


@pytest.mark.parametrize("kind", ["photographs", "frozen", "synthetic"])
def test_a_step_enters_few_files(tmp_path: Path, kind: str) -> None:
    source = {"dataset": "spair-71k", "path": str(trees.make_spair(tmp_path)), "count": 8}
    fields: dict[str, dict[str, Any]] = {
        "photographs": {"data": [source], "frozen": False, "augmentation": CHANGES},
        "frozen": {"data": [source], "augmentation": {"swap": 0.5}},
        "synthetic": {"data": [SYNTHETIC]},
    }
    config = tiny_config(**fields[kind])
    with Run(config, tmp_path / "run", None, False, lambda record: None) as run:
        plan = epoch_plan(run.sources, config.seed, 0)
        for part in run.batches.parts(plan, 0, config.batch_size, 1, 0):  # features of a frozen backbone are kept
            run._step((part,))
        with traced() as trace:
            run._step((next(run.batches.parts(plan, 0, config.batch_size, 1, 0)),))
    assert {"training/batches", "training/loop", "training/objective", "nn/chmnet", "nn/hough"} <= trace.files
    # Views of photographs are drawn by two files, those of generated pictures by one.
    assert len(trace.files) <= (15 if kind == "photographs" else 14), sorted(trace.files)
    check_calls_go_down(trace)
