"""The example pictures are small, credited and matched well; the demo leaves a page that shows its drawings."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chmnet import Matcher
from chmnet.data.coco import load_instances

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PICTURES = sorted(EXAMPLES.rglob("*.png"))

# Where the demo's points lie in the targets, marked by hand on a grid laid over the pictures; `None`: nowhere.
TRUTH = {
    "zebra": [(6, 52), (18, 24), (22, 3), (80, 33), (180, 32), (72, 142), (165, 85), (178, 105), (105, 65)],
    "gnu": [(12, 122), (55, 50), (130, 120), (138, 220), (265, 190), (290, 155), (295, 38), (318, 150), (210, 75)],
    "cow": [(188, 45), (152, 15), (128, 85), (113, 132), (5, 132), (10, 30), (70, 55)],
    "dromedary": [(3, 12), (40, 18), (38, 57), (73, 130), (148, 130), (157, 65), (95, 55)],
    "pigeon": [(4, 22), (16, 8), (32, 70), (70, 112), (180, 122), (80, 48), (115, 85)],
    "black-bear": [(172, 88), (138, 40), (100, 18), (10, 40), (150, 155), (95, 148), (65, 60)],
    "sportscar": [(36, 48), (155, 48), None, (6, 40), (185, 42), (90, 40), (22, 24), (118, 24)],
}


@pytest.fixture(scope="module")
def demo() -> dict[str, object]:
    return runpy.run_path(str(EXAMPLES / "demo.py"), run_name="demo")


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_pictures_are_small_and_credited(path: Path) -> None:
    with Image.open(path) as picture:
        assert max(picture.size) <= 400
    assert path.stat().st_size < 200_000
    assert f"`{path.relative_to(EXAMPLES)}`" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


def test_demo_shows_every_drawing(demo: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "heat.png").write_bytes(b"of an earlier run")
    demo["main"](tmp_path / "demo")
    page = (tmp_path / "demo" / "index.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'src="([^"]+)"', page))
    assert shown == {path.name for path in (tmp_path / "demo").iterdir()} - {"index.html"}
    assert len(shown) == len(demo["PAIRS"]) + 6
    for name in shown:
        with Image.open(tmp_path / "demo" / name) as picture:
            assert min(picture.size) >= 150
    assert "index.html" in capsys.readouterr().out


def test_matches_of_the_demo_are_right(demo: dict) -> None:
    right = []
    for pair in demo["PAIRS"]:
        result = Matcher().match(EXAMPLES / pair.source, EXAMPLES / pair.target)
        truth = TRUTH[Path(pair.target).stem]
        known = [(start, end) for start, end in zip(pair.points, truth, strict=True) if end is not None]
        starts, ends = (np.array(points) for points in zip(*known, strict=True))
        misses = np.linalg.norm(result.locate(starts) - ends, axis=1)
        right.append(misses <= 0.1 * max(result.target_size))
        assert right[-1].mean() > 0.7, pair.target
    assert np.concatenate(right).mean() >= 0.9


def test_labels_to_propagate_are_whole() -> None:
    (instance,) = load_instances(EXAMPLES / "donkey.json")
    assert len(instance.keypoints) == 10


def test_notebook_is_kept_without_outputs_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((EXAMPLES / "chmnet.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    monkeypatch.chdir(EXAMPLES)
    names: dict[str, object] = {}
    for cell in cells:
        exec("".join(cell["source"]), names)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the kernel's own packages
def test_notebook_runs_in_a_kernel() -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "chmnet.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}})
    client.execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in shown) >= 6
