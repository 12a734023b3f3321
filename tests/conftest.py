"""Where the tests find data that is not part of the repository, and what all of them share."""

import os
from pathlib import Path

import pytest
import torch

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
