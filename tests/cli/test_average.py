"""The mean of several models."""

from pathlib import Path

import pytest
import torch

from chmnet.errors import WeightsError
from chmnet.weights import load_model, save_model
from chmnet.weights.average import average_models
from chmnet.weights.models import read_notes
from tests.cli.conftest import Run


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """A model without votes, and one whose weights are two more."""
    paths = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    model = load_model("nearest-neighbour", changes={"image_size": (96, 96)})
    save_model(model, paths[0], {"description": "the first"})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 2
    save_model(model, paths[1], {"description": "the second", "calibration": "on cats", "figures": {"cats": 90}})
    return paths


def test_every_number_is_the_mean(two: list[Path], tmp_path: Path, run: Run) -> None:
    output = tmp_path / "mean.safetensors"
    assert run("average", *two, "-o", output)[0] == 0
    first, second, mean = (dict(load_model(path).named_parameters()) for path in (*two, output))
    for name, value in mean.items():
        torch.testing.assert_close(value, (first[name] + second[name]) / 2)
    notes = read_notes(output)
    assert notes["description"] == "the second"
    assert not {"calibration", "figures"} & notes.keys()  # nobody measured the mean
    assert [line.split()[0] for line in notes["averaged"]] == ["a.safetensors", "b.safetensors"]
    assert run("average", *two, "-o", output)[0] == 2  # nothing is overwritten


def test_what_is_fitted_after_training_is_left_out(tmp_path: Path) -> None:
    average_models(["chmnet-lite", "chmnet-lite"], tmp_path / "mean.safetensors")
    mean, shipped = load_model(tmp_path / "mean.safetensors"), load_model("chmnet-lite")
    assert mean.facing is mean.foreground is None
    assert mean.config.calibration.match == ()
    assert mean.config.fine == shipped.config.fine
    torch.testing.assert_close(mean.head.state_dict(), shipped.head.state_dict(), rtol=0, atol=0)


def test_what_has_no_mean_is_refused(two: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "mean.safetensors"
    for models, message in (
        (two[:1], "at least two models, got 1"),
        ([two[0], "hough-prior"], "hough-prior learned nothing"),
        ([two[0], "chmnet-lite"], "chmnet-lite is another network than"),
        ([two[0], tmp_path / "none.safetensors"], "none.safetensors"),
    ):
        with pytest.raises(WeightsError, match=message):
            average_models(models, output)
    save_model(load_model(two[0]), tmp_path / "head.safetensors", backbone_weights="package")
    with pytest.raises(WeightsError, match="come with their backbone"):
        average_models([two[0], tmp_path / "head.safetensors"], output)
    with pytest.raises(WeightsError, match="a model file ends in"):
        average_models(two, tmp_path / "mean.pt")
    assert not output.exists()
