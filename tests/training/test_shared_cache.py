"""Runs one after another that share the features of their pictures."""

from pathlib import Path

import pytest
import torch

from chmnet.features import FeatureCache
from chmnet.training.log import RunLog
from chmnet.training.loop import LAST, train
from tests.training.test_loop import assert_same_weights, losses
from tests.training.tiny import tiny_config

VARIANTS = {"psi": (), "iso": ("model.matching.first_sharing=iso", "model.matching.last_sharing=iso")}


@pytest.fixture(autouse=True)
def _no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunLog, "draw", lambda self: None)


@pytest.mark.parametrize("memory_bytes", [10**9, 0], ids=["memory", "disk"])
def test_runs_that_share_a_cache_are_those_of_their_own(tmp_path: Path, memory_bytes: int) -> None:
    computed = []
    with FeatureCache(memory_bytes, dtype=torch.float16) as cache:
        for name, changes in VARIANTS.items():
            train(tiny_config(*changes), tmp_path / "shared" / name, cache=cache)
            computed.append(cache.computed)
    assert computed[0] == computed[1] > 0  # the second run found every picture there
    for name, changes in VARIANTS.items():
        train(tiny_config(*changes), tmp_path / "own" / name)
        assert_same_weights(tmp_path / "shared" / name / LAST, tmp_path / "own" / name / LAST)
        assert losses(tmp_path / "shared" / name) == losses(tmp_path / "own" / name)


def test_a_cache_outlives_the_run_and_its_own_pictures_are_added(tmp_path: Path) -> None:
    with FeatureCache(10**9, dtype=torch.float16) as cache:
        train(tiny_config("epochs=1"), tmp_path / "one", cache=cache)
        first = cache.computed
        train(tiny_config("epochs=1", "seed=5"), tmp_path / "two", cache=cache)  # views of its own
        assert cache.computed > first
        assert cache.get("still open", lambda: torch.ones(1)).tolist() == [1.0]


def test_a_backbone_that_learns_keeps_no_features(tmp_path: Path) -> None:
    with FeatureCache(10**9, dtype=torch.float16) as cache:
        train(tiny_config("epochs=1", "frozen=false"), tmp_path, cache=cache)
        assert cache.computed == 0
