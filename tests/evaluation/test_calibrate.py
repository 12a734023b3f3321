"""Fitting a confidence to annotated pairs."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from chmnet.cli.main import app
from chmnet.config import BackboneConfig, CalibrationConfig, TransferConfig
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.errors import ChmnetError, ConfigError, InputError, WeightsError
from chmnet.evaluation.calibrate import collect_evidence, fit_calibration, recalibrated
from chmnet.files import read_tensors
from chmnet.nn import CHMNet
from chmnet.ops.correlation import exchange
from chmnet.ops.transfer import (
    Located,
    calibrated,
    confidence_map,
    locate,
    match_evidence,
    soft_argmax,
)
from chmnet.training.synthetic import Texture
from chmnet.weights import load_model, save_calibrated, save_model
from chmnet.weights.models import read_notes
from tests.data import trees
from tests.flat import flat_config

SOME = CalibrationConfig(match=(1.0, 2.0, 3.0, 4.0), pose=(0.5,))


def draw(generator: np.random.Generator, slopes: tuple[float, ...], count: int = 20000) -> tuple[np.ndarray, ...]:
    evidence = generator.uniform(0, 2, (count, 3))
    probability = calibrated(torch.from_numpy(evidence), slopes).numpy()
    return evidence, probability, generator.uniform(size=count) < probability


def test_the_numbers_that_made_the_data_are_found_again() -> None:
    truth = (2.0, 1.5, 0.7, 0.4)
    evidence, _, right = draw(np.random.default_rng(0), truth)
    np.testing.assert_allclose(fit_calibration(evidence, right), truth, atol=0.15)


def test_evidence_against_never_speaks_for_a_match() -> None:
    evidence, _, right = draw(np.random.default_rng(0), (0.5, 1.0, -1.0, 0.0))
    fitted = fit_calibration(evidence, right)
    assert fitted[1] > 0.5
    assert fitted[2] == 0
    assert min(fitted[1:]) >= 0


def logistic_fit(inputs: np.ndarray, right: np.ndarray, ridge: float = 1e-3) -> tuple[float, np.ndarray]:
    """The regularised loss and the weights of a logistic regression without bounds, by Newton's method."""
    columns = np.column_stack([np.ones(len(inputs)), inputs])
    penalty = ridge * np.diag([0.0] + [1.0] * inputs.shape[1])
    weights = np.zeros(columns.shape[1])
    for _ in range(40):
        probability = 1 / (1 + np.exp(-columns @ weights))
        gradient = columns.T @ (probability - right) / len(right) + penalty @ weights
        curvature = (columns * (probability * (1 - probability))[:, None]).T @ columns / len(right) + penalty
        weights = weights - np.linalg.solve(curvature, gradient)
    probability = 1 / (1 + np.exp(-columns @ weights))
    likelihood = np.where(right, np.log(probability), np.log(1 - probability)).mean()
    return -likelihood + weights @ penalty @ weights / 2, weights


def best_bounded_fit(evidence: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Every choice of slopes that are zero is tried: the best one without a negative slope is the optimum."""
    found = []
    for used in itertools.chain.from_iterable(itertools.combinations(range(3), count) for count in range(4)):
        loss, weights = logistic_fit(-evidence[:, used], right)
        if (weights[1:] >= 0).all():
            whole = np.zeros(4)
            whole[[0, *(1 + number for number in used)]] = weights
            found.append((loss, whole))
    return min(found, key=lambda entry: entry[0])[1]


def correlated(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Kinds of evidence that are sums of the same things, some of which speak for a match."""
    generator = np.random.default_rng(seed)
    mixture = np.abs(generator.normal(size=(3, 3)))
    evidence = generator.uniform(0, 2, (2000, 3)) @ mixture
    against = evidence @ (1.5 * generator.normal(size=3))
    return evidence, generator.uniform(size=2000) < 1 / (1 + np.exp(against - against.mean() - 1))


@pytest.mark.parametrize("seed", [0, 1, 11, 24, 60, 151])
def test_the_fit_is_the_best_one_within_the_bounds(seed: int) -> None:
    """At 11, 60 and 151 a gradient method may stop near a bound."""
    evidence, right = correlated(seed)
    np.testing.assert_allclose(fit_calibration(evidence, right), best_bounded_fit(evidence, right), atol=1e-5)


def test_a_slope_that_is_negative_without_bounds_may_be_positive_within_them() -> None:
    """Leaving out every negative slope at once, and fitting the others again, misses this optimum."""
    evidence, right = correlated(60)
    _, free = logistic_fit(-evidence, right)
    fitted = fit_calibration(evidence, right)
    assert free[2] < 0
    assert fitted[2] > 0.3
    assert fitted[1] == fitted[3] == 0


@pytest.mark.parametrize("right", [np.ones(60, bool), np.zeros(60, bool)], ids=["all right", "all wrong"])
def test_nothing_to_tell_apart(right: np.ndarray) -> None:
    with pytest.raises(InputError, match="correct and wrong matches"):
        fit_calibration(np.random.default_rng(0).uniform(size=(60, 3)), right)


# ---------------------------------------------------------------- evidence and the map


def maps(correlation: torch.Tensor, config: TransferConfig) -> tuple[Located, torch.Tensor]:
    return locate(correlation, config), soft_argmax(exchange(correlation), config)


def test_nothing_speaks_against_the_identity() -> None:
    identity = 1000 * torch.eye(36).view(1, 1, 6, 6, 6, 6)
    config = TransferConfig()
    torch.testing.assert_close(match_evidence(*maps(identity, config)), torch.zeros(1, 6, 6, 3))


def test_evidence_tells_what_is_wrong() -> None:
    correlation = 1000 * torch.eye(49).view(1, 1, 7, 7, 7, 7)
    correlation[0, 0, 1, 1] = 0  # one position without any preference
    correlation[0, 0, 5, 5] = 0
    correlation[0, 0, 5, 5, 0, 0] = 999  # one that goes far away, where another is answered
    config = TransferConfig()
    miss, spread, roughness = match_evidence(*maps(correlation, config))[0].unbind(-1)
    assert spread[1, 1] == pytest.approx(1)
    assert spread[3, 3] == pytest.approx(0, abs=1e-6)
    assert miss[5, 5] == pytest.approx(np.log1p(np.hypot(5, 5)), rel=1e-3)
    assert roughness[5, 5] > 1
    assert roughness[5, 0] == pytest.approx(0, abs=1e-3)  # none of its neighbours moves


def test_the_map_is_calibrated_where_the_configuration_says_so() -> None:
    """The identity on 9×9 cells, where one cell goes two cells to the right and one has no preference."""
    correlation = 1000 * torch.eye(81).view(1, 1, 9, 9, 9, 9)
    correlation[0, 0, 4, 3] = 0
    correlation[0, 0, 4, 3, 4, 5] = 1000  # the cell there answers that it belongs to (4, 5) as much as to (4, 3)
    correlation[0, 0, 1, 7] = 0  # ends in the middle, which answers that it belongs to itself
    first, *slopes = calibration = (2.0, 1.0, 0.5, 0.25)
    config = TransferConfig(gaussian_sigma=0)
    found = confidence_map(*maps(correlation, config), calibration)[0]

    def expected(miss: float, entropy: float, roughness: float, border: float) -> float:
        logit = first - slopes[0] * math.log1p(miss) - slopes[1] * entropy - slopes[2] * math.log1p(roughness)
        return (1 - 0.6 * math.exp(-(border**2) / 2)) / (1 + math.exp(-logit))

    # Of 25 displacements one is (2, 0): it differs from their mean by 48 / 25, the others by 2 / 25.
    assert found[4, 3] == pytest.approx(expected(miss=1, entropy=0, roughness=48 / 25, border=4 - 1), rel=1e-4)
    assert found[6, 4] == pytest.approx(expected(miss=0, entropy=0, roughness=2 / 25, border=2), rel=1e-4)
    # At (1, 7) sixteen cells of the grid are near; the displacement (-3, 3) of one is left out of their mean.
    far = math.hypot(3, 3)
    assert found[1, 7] == pytest.approx(expected(far, 1, far * 15 / 16, border=4), rel=1e-4)
    plain = confidence_map(*maps(correlation, config))[0]
    assert plain[1, 7] == pytest.approx(math.exp(-(far**2) / (2 * 1.5**2)) * (1 - 0.6 * math.exp(-8)), rel=1e-4)
    assert plain[8, 8] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"match": (1.0,)}, "four numbers or none, got 1"),
        ({"match": (1.0, 2.0, 3.0, float("nan"))}, "calibration.match must be a finite number"),
        ({"same_kind": (1.0, 1e9)}, "calibration.same_kind must be at most 100"),
        ({"pose": (1.0,) * 33}, "length of calibration.pose must be at most 32, got 33"),
    ],
)
def test_calibrations_that_are_none(fields: dict[str, tuple[float, ...]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CalibrationConfig(**fields)


# ---------------------------------------------------------------- models


@pytest.fixture(scope="module")
def model() -> CHMNet:
    torch.manual_seed(0)
    return CHMNet(
        flat_config(
            backbone=BackboneConfig("efficientnet-lite0", ("blocks.4",)),
            transfer=TransferConfig(temperature=1e-3),
            matching="none",
            dimensions="4d-4d",
            channel_reduction=0,
            image_size=(96, 96),
        )
    ).eval()


def textures(folder: Path, count: int = 6) -> list[Pair]:
    """Pairs of a texture and itself: half of the keypoints are put where they do not belong."""
    generator, pairs = np.random.default_rng(0), []
    for number in range(count):
        path = folder / f"{number}.png"
        Texture(seed=number).picture((96, 128)).save(path)
        points = generator.uniform(10, 80, (12, 2))
        truth = points + np.where(np.arange(12) % 2, 0, 60)[:, None]
        pairs.append(Pair(str(number), "texture", AnnotatedImage(path, points), AnnotatedImage(path, truth)))
    return pairs


def test_evidence_is_collected_at_keypoints(tmp_path: Path, model: CHMNet) -> None:
    found = collect_evidence(textures(tmp_path), model)
    assert found.evidence.shape == (72, 3)
    assert found.confidence.shape == found.correct.shape == (72,)
    assert found.correct[1::2].mean() > 0.75  # what belongs together is found, mostly
    assert not found.correct[::2].any()


def test_predicted_confidences_of_another_calibration_are_those_of_the_calibrated_model(
    tmp_path: Path, model: CHMNet
) -> None:
    """A sampler of one cell: else a mean of logistic functions is compared with the function of a mean."""
    pairs, calibration = textures(tmp_path), (3.0, 1.0, 0.5, 0.5)
    path, after = tmp_path / "model.safetensors", tmp_path / "calibrated.safetensors"
    plain = CHMNet(model.config.replace(transfer={"sampler": "nearest"})).eval()
    plain.load_state_dict(model.state_dict())
    save_model(plain, path)
    save_calibrated(path, CalibrationConfig(match=calibration), after, "")
    predicted = recalibrated(collect_evidence(pairs, plain), calibration)
    found = collect_evidence(pairs, load_model(after))
    assert found.border.min() < 0.9  # some lie where the border counts
    np.testing.assert_allclose(predicted, found.confidence, atol=1e-4)


def test_too_few_keypoints(tmp_path: Path, model: CHMNet) -> None:
    with pytest.raises(InputError, match="the pairs have 12 keypoints; a calibration needs at least 50"):
        collect_evidence(textures(tmp_path, count=1), model)


def test_a_calibrated_file_differs_in_nothing_else(tmp_path: Path, model: CHMNet) -> None:
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    save_model(model, before, {"licence": "none"}, half=True)
    save_calibrated(before, SOME, after, "some pairs")
    (old, old_metadata), (new, metadata) = read_tensors(before), read_tensors(after)
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert load_model(after).config == load_model(before).config.replace(calibration=SOME)
    assert read_notes(after) == {"licence": "none", "calibration": "some pairs"}
    assert old_metadata.keys() == metadata.keys()
    with pytest.raises(InputError, match="exists already"):
        save_calibrated(before, SOME, after, "some pairs")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "no.safetensors").write_text("no")
    with pytest.raises(WeightsError, match="not a whole safetensors file"):
        save_calibrated(tmp_path / "no.safetensors", SOME, tmp_path / "out.safetensors", "")


# ---------------------------------------------------------------- the command


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


def test_the_command(tmp_path: Path, model: CHMNet) -> None:
    root = trees.make_pf_willow(tmp_path)
    path, names = root / trees.WILLOW_LIST, [f"PF-dataset/car(G)/Cars_00{number}a.png" for number in range(3)]
    for number, name in enumerate(names):
        Texture(seed=number % 2).picture((96, 128)).save(root / "PF-WILLOW" / name)
    numbers = [str(20 + 6 * i) for _ in range(4) for i in range(10)]
    rows = [",".join([names[a], names[b], *numbers]) for a, b in ((0, 1), (1, 2), (0, 2), (2, 0), (2, 1), (1, 0))]
    path.write_text(path.read_text().splitlines()[0] + "\n" + "\n".join(rows) + "\n")
    save_model(model, tmp_path / "model.safetensors")
    output = tmp_path / "calibrated.safetensors"
    data = ("--dataset", "pf-willow", "--root", root, "--split", "test")
    result = run(tmp_path / "model.safetensors", *data, "-o", output)
    assert result.exit_code == 0, result.output
    assert "calibration error" in result.output
    config = json.loads(read_tensors(output)[1]["config"])
    assert len(config["calibration"]["match"]) == 4
    measured = run(output, *data, "--plot", tmp_path / "reliability.png", "--json", tmp_path / "figures.json")
    assert measured.exit_code == 0, measured.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["pairs"] == 6
    assert len(figures["calibration"]) == 4
    assert 0 <= figures["now"]["calibration_error"] <= 1
    with Image.open(tmp_path / "reliability.png") as picture:
        assert picture.size == (750, 510)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hough-prior", "-o", "out.safetensors"], "model file (.safetensors), got 'hough-prior'"),
        (["m.safetensors", "-o", "out.bin"], "model file (.safetensors), got 'out.bin'"),
        (["m.safetensors", "-o", "m.safetensors"], "m.safetensors is an input already"),
        (["hough-prior", "--plot", "plot.bmp"], "a plot must end in .png, got 'plot.bmp'"),
        (["hough-prior", "--plot", "no/plot.png"], "no such folder"),
        (["wonder"], "there is no model 'wonder'"),
        (["nearest-neighbour", "--dataset", "wonder"], "there is no data set 'wonder'"),
        (["nearest-neighbour", "--split", "val"], "has no split 'val'"),
    ],
)
def test_mistakes_write_nothing(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments[:1], "--dataset", "pf-willow", "--root", ".", "--split", "test", *arguments[1:])
    assert isinstance(result.exception, ChmnetError)
    assert words in str(result.exception)
    assert list(tmp_path.iterdir()) == []
