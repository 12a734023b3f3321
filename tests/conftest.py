"""Where the tests find data that is not part of the repository, and what all of them share."""

import os
from pathlib import Path

import pytest
import torch
from PIL import Image

REPOSITORY = Path(__file__).parent.parent
SHARED = Path(os.environ.get("CHMNET_SHARED", REPOSITORY.parent / "shared"))

if "PYTEST_XDIST_WORKER" in os.environ:  # as many processes as cores: one thread each, what they start included
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden values, weights and data sets; the test is skipped where there is none."""
    if not SHARED.is_dir():
        pytest.skip("no shared data: set CHMNET_SHARED to the folder that holds golden/, weights/, datasets/")
    return SHARED


@pytest.fixture(scope="session")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture of two animals side by side, for the donkey: a donkey on the left, a gnu on the right."""
    canvas = Image.new("RGB", (480, 300), "#b9c2a8")
    for name, left in (("donkey.png", 5), ("pairs/gnu.png", 245)):
        animal = Image.open(REPOSITORY / "examples" / name).convert("RGBA")
        animal = animal.resize((230, round(230 * animal.height / animal.width)))
        canvas.paste(animal, (left, (300 - animal.height) // 2), animal)
    path = tmp_path_factory.mktemp("herd") / "herd.png"
    canvas.save(path)
    return path
