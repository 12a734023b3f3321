"""What pairs of all data sets have in common."""

import json
from pathlib import Path

import pytest

from chmnet.data.pairs import mirrored_rows

from . import trees


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (["left_eye", "right_eye", "nose"], [1, 0, 2]),
        (["Left Eye", "Right Eye"], [1, 0]),
        (["leftEye", "rightEye"], [1, 0]),
        (["L_eye", "R_eye"], [1, 0]),
        (["eye.l", "eye.r"], [1, 0]),
        (["left_front_paw", "right_back_paw", "right_front_paw"], [2, None, 0]),
        (["cleft", "bright_spot"], [0, 1]),
        (["0", "4"], [0, 1]),
        ([], []),
    ],
)
def test_mirrored_rows(names: list[str], rows: list[int | None]) -> None:
    assert mirrored_rows(names) == rows


def test_animal_pose_names_all_have_counterparts(shared: Path) -> None:
    names = json.loads((shared / "datasets" / trees.ANIMAL).read_text())["kp_names"]
    rows = mirrored_rows(names)
    assert sorted(row for row in rows if row is not None) == list(range(20))
    assert [names[row] for row in rows if row is not None][:3] == ["right_eye", "left_eye", "nose"]
