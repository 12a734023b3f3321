"""The checks that every test relies on are at work, in each process that runs tests."""

import os
import warnings

import pytest
import torch
from jaxtyping import TypeCheckError

from chmnet.geometry import grid_axis
from chmnet.ops import cosine_correlation


def test_annotated_shapes_are_checked() -> None:
    with pytest.raises(TypeCheckError, match="cosine_correlation"):
        cosine_correlation(torch.rand(1, 2, 3, 3), torch.rand(1, 5, 3, 3))


def test_annotated_types_are_checked() -> None:
    with pytest.raises(TypeCheckError, match="grid_axis"):
        grid_axis("three", torch.rand(1))  # type: ignore[arg-type]


def test_warnings_are_errors() -> None:
    with pytest.raises(UserWarning, match="loud"):
        warnings.warn("loud", stacklevel=1)


def test_workers_have_one_thread() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process has all threads")
    assert torch.get_num_threads() == 1
    assert os.environ["OMP_NUM_THREADS"] == "1"
