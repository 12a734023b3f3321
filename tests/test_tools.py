"""Measurements outside of the package: mistakes end in one sentence."""

import runpy
import sys
from pathlib import Path

import pytest

from chmnet import Matcher
from chmnet import data as chmnet_data
from chmnet.data import boxes
from tests.conftest import REPOSITORY

FOREGROUND, CONFIDENCE = REPOSITORY / "tools" / "foreground.py", REPOSITORY / "tools" / "confidence.py"


def test_foreground_refuses_every_zeroth_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["foreground.py", "--root", str(tmp_path), "--every", "0"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOREGROUND), run_name="__main__")
    assert ended.value.code == 2
    assert "greater than or equal to 1" in " ".join(capsys.readouterr().err.split())


def test_foreground_without_pairs_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "load_boxes", lambda *_: [])
    monkeypatch.setattr(chmnet_data, "load_pairs", lambda *_: [])
    with pytest.raises(SystemExit, match="no pair of PF-PASCAL has boxes for both of its pictures"):
        runpy.run_path(str(FOREGROUND))["main"](tmp_path, "nearest-neighbour", 1)


def test_a_model_without_probabilities_of_hidden_parts_is_named() -> None:
    hidden_parts = runpy.run_path(str(CONFIDENCE))["hidden_parts"]
    assert hidden_parts(Matcher("nearest-neighbour"), []).startswith(
        "not known: the model has no calibration.unmatched"
    )
