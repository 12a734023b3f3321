"""Fitting a confidence to annotated pairs."""

import dataclasses
import itertools
import json
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
from chmnet.evaluation.calibrate import (
    BACKGROUND,
    BOTH,
    HIDDEN,
    OTHER,
    collect_evidence,
    fit_calibration,
    fit_logistic,
    probabilities,
    thing_side,
)
from chmnet.files import read_tensors
from chmnet.nn import CHMNet
from chmnet.ops.evidence import calibrated
from chmnet.training.synthetic import Texture
from chmnet.weights import load_model, save_calibrated, save_model
from chmnet.weights.models import read_notes
from tests.data import trees
from tests.flat import flat_config

SOME = CalibrationConfig(match=(1.0, 2.0, 3.0, 4.0), pose=(0.5, 1.0, 2.0, 3.0))


def draw(generator: np.random.Generator, slopes: tuple[float, ...], count: int = 20000) -> tuple[np.ndarray, ...]:
    evidence = generator.uniform(0, 2, (count, 3))
    probability = calibrated(torch.from_numpy(evidence), slopes).numpy()
    return evidence, probability, generator.uniform(size=count) < probability


def test_the_numbers_that_made_the_data_are_found_again() -> None:
    truth = (2.0, 1.5, 0.7, 0.4)
    evidence, _, right = draw(np.random.default_rng(0), truth)
    np.testing.assert_allclose(fit_logistic(evidence, right), truth, atol=0.15)


def test_evidence_against_never_speaks_for_a_match() -> None:
    evidence, _, right = draw(np.random.default_rng(0), (0.5, 1.0, -1.0, 0.0))
    fitted = fit_logistic(evidence, right)
    assert fitted[1] > 0.5
    assert fitted[2] == 0
    assert min(fitted[1:]) >= 0


def logistic_fit(inputs: np.ndarray, right: np.ndarray, ridge: float = 1e-3) -> tuple[float, np.ndarray]:
    """The regularised loss and the weights of a logistic regression without bounds, by Newton's method."""
    columns = np.column_stack([np.ones(len(inputs)), inputs])
    penalty = ridge * np.diag([0.0, *inputs.var(axis=0)])  # as if each kind of evidence varied by one
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
    np.testing.assert_allclose(fit_logistic(evidence, right), best_bounded_fit(evidence, right), atol=1e-5)


def test_a_slope_that_is_negative_without_bounds_may_be_positive_within_them() -> None:
    """Leaving out every negative slope at once, and fitting the others again, misses this optimum."""
    evidence, right = correlated(60)
    _, free = logistic_fit(-evidence, right)
    fitted = fit_logistic(evidence, right)
    assert free[2] < 0
    assert fitted[2] > 0.3
    assert fitted[1] == fitted[3] == 0


@pytest.mark.parametrize("right", [np.ones(60, bool), np.zeros(60, bool)], ids=["all right", "all wrong"])
def test_nothing_to_tell_apart(right: np.ndarray) -> None:
    with pytest.raises(InputError, match="correct and wrong matches"):
        fit_logistic(np.random.default_rng(0).uniform(size=(60, 3)), right)


def test_weights_are_worth_repetitions() -> None:
    evidence, right = correlated(1)
    counts = np.random.default_rng(0).integers(1, 4, len(right))
    repeated = np.repeat(np.arange(len(right)), counts)
    weighted = fit_logistic(evidence, right, counts.astype(float))
    np.testing.assert_allclose(weighted, fit_logistic(evidence[repeated], right[repeated]), atol=0.01)


def test_evidence_that_never_changes_has_no_slope() -> None:
    evidence, right = correlated(1)
    evidence[:, 1] = 0.7
    fitted = fit_logistic(evidence, right)
    assert fitted[2] == 0
    np.testing.assert_allclose(fitted[:2], fit_logistic(evidence[:, [0, 2]], right)[:2], atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"match": (1.0,)}, "calibration.match must be 4 or 14 numbers or none, got 1"),
        ({"unmatched": (1.0,) * 4}, "calibration.unmatched must be 14 numbers or none, got 4"),
        ({"match": (1.0, 2.0, 3.0, float("nan"))}, "calibration.match must be a finite number"),
        ({"same_kind": (1.0, 1e9, 0.0)}, "calibration.same_kind must be at most 100"),
        ({"pose": (1.0,)}, "calibration.pose must be 4 or 5 numbers or none, got 1"),
        ({"pose": (1.0,) * 6}, "calibration.pose must be 4 or 5 numbers or none, got 6"),
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
        source = AnnotatedImage(path, points, box=(5, 5, 85, 85))
        kind = "stone(A)" if number % 2 else "wood"
        pairs.append(Pair(str(number), kind, source, AnnotatedImage(path, truth), unmatched=points[:3]))
    return pairs


def test_evidence_is_collected_at_keypoints(tmp_path: Path, model: CHMNet) -> None:
    pairs = textures(tmp_path)
    found = collect_evidence([pairs[:3], pairs[3:]], model)
    plain = found.plain
    assert found.evidence.shape == (len(found.case), 13)
    assert plain.sum() == 72
    assert found.correct[plain][1::2].mean() > 0.7  # what belongs together is found, mostly
    assert not found.correct[plain][::2].any()
    assert not found.correct[found.mirrored & (found.case == BOTH)].all()
    # Six pairs as they are and mirrored, and three with another kind of thing: 15 points each there.
    assert (found.case == HIDDEN).sum() == 2 * 6 * 3
    assert (found.case == OTHER).sum() == 3 * 15
    assert (found.case == BACKGROUND).sum() == 15 * 4
    assert found.same.sum() == 12
    assert (~found.same).sum() == 3
    assert np.isnan(found.unmatched).all()
    assert np.isnan(found.same_kind).all()
    assert sorted(set(found.group)) == sorted(set(found.pair_group)) == [0, 1]
    same, other = (found.pairs[found.same == kind, 0].mean() for kind in (True, False))
    assert same < other


def test_one_category_has_no_pairs_of_different_kinds(tmp_path: Path, model: CHMNet) -> None:
    pairs = [
        dataclasses.replace(pair, category=kind) for pair, kind in zip(textures(tmp_path), "ABABAB", strict=True)
    ]
    alike = [dataclasses.replace(pair, category=f"car({pair.category})") for pair in pairs]
    assert collect_evidence([alike], model).same.all()


def test_what_the_pairs_do_not_tell_stays(tmp_path: Path, model: CHMNet) -> None:
    old = CalibrationConfig(match=(1.0, 2.0, 3.0, 4.0), same_kind=(7.0, 8.0, 9.0), pose=(0.5, 1.0, 2.0, 3.0))
    fitted = fit_calibration(collect_evidence([textures(tmp_path)], model), [1.0], old)
    assert len(fitted.match) == len(fitted.unmatched) == 14
    assert fitted.same_kind == (7.0, 8.0, 9.0)  # three pairs of different kinds are too few
    assert fitted.pose == old.pose


def test_a_data_set_of_no_weight_does_not_count(tmp_path: Path, model: CHMNet) -> None:
    pairs = textures(tmp_path, count=8)
    wrong = [
        dataclasses.replace(pair, target=dataclasses.replace(pair.target, keypoints=pair.target.keypoints + 40))
        for pair in pairs
    ]
    alone = fit_calibration(collect_evidence([pairs], model), [1.0], CalibrationConfig())
    ignored = fit_calibration(collect_evidence([pairs, wrong], model), [1.0, 0.0], CalibrationConfig())
    counted = fit_calibration(collect_evidence([pairs, wrong], model), [1.0, 1.0], CalibrationConfig())
    evidence = np.zeros((1, 13))
    first, second, third = (probabilities(evidence, each.match)[0] for each in (alone, ignored, counted))
    assert first == pytest.approx(second, abs=0.05)
    assert third < first - 0.05


def test_predicted_confidences_of_another_calibration_are_those_of_the_calibrated_model(
    tmp_path: Path, model: CHMNet
) -> None:
    """A sampler of one cell: else a mean of logistic functions is compared with the function of a mean."""
    pairs = textures(tmp_path)
    numbers = (3.0, 1.0, 0.5, 0.5, 1.0, 2.0, 1.0, 0.5, 0.5, 0.2, 0.3, 0.1, 0.1, 0.1)
    calibration = CalibrationConfig(match=numbers, unmatched=numbers, same_kind=(3.0, 4.0, 0.5))
    path, after = tmp_path / "model.safetensors", tmp_path / "calibrated.safetensors"
    plain = CHMNet(model.config.replace(transfer={"sampler": "nearest"})).eval()
    plain.load_state_dict(model.state_dict())
    save_model(plain, path)
    save_calibrated(path, calibration, after, "")
    before = collect_evidence([pairs], plain)
    found = collect_evidence([pairs], load_model(after))
    np.testing.assert_allclose(probabilities(before.evidence, numbers), found.confidence, atol=1e-4)
    np.testing.assert_allclose(1 - probabilities(before.evidence, numbers), found.unmatched, atol=1e-4)
    np.testing.assert_allclose(probabilities(before.pairs, calibration.same_kind), found.same_kind, atol=1e-4)


def test_the_side_of_a_thing() -> None:
    points = np.array([[10.0, 20.0], [40.0, 80.0]])
    assert thing_side(AnnotatedImage(Path("a.png"), points)) == 60
    assert thing_side(AnnotatedImage(Path("a.png"), points, box=(0, 0, 90, 85))) == 90


def test_too_few_keypoints(tmp_path: Path, model: CHMNet) -> None:
    with pytest.raises(InputError, match="the pairs have 12 keypoints; a calibration needs at least 50"):
        collect_evidence([textures(tmp_path, count=1)], model)


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
    assert len(config["calibration"]["match"]) == 14
    assert not config["calibration"].get("pose")
    posed = tmp_path / "posed.safetensors"
    assert run(tmp_path / "model.safetensors", *data, "--poses", "-o", posed).exit_code == 0
    fitted = json.loads(read_tensors(posed)[1]["config"])["calibration"]
    assert (len(fitted["pose"]), len(fitted["turn"]), len(fitted["place"])) == (4, 4, 1)
    measured = run(output, *data, "--plot", tmp_path / "reliability.png", "--json", tmp_path / "figures.json")
    assert measured.exit_code == 0, measured.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["pairs"] == 6
    assert len(figures["calibration"]["match"]) == 14
    assert "AUROC of the same kind of thing" in figures["now"]
    assert 0 <= figures["now"]["calibration_error"] <= 1
    with Image.open(tmp_path / "reliability.png") as picture:
        assert picture.size == (750, 510)


def test_too_few_keypoints_are_refused_before_the_poses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = trees.make_pf_willow(tmp_path)
    monkeypatch.setattr("chmnet.evaluation.poses.collect_poses", lambda *_: pytest.fail("matched"))
    data = ("--dataset", "pf-willow", "--root", root, "--split", "test")
    result = run("nearest-neighbour", *data, "--poses")
    assert "a calibration needs at least 50" in str(result.exception)


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
        (
            ["nearest-neighbour", "--weight", "1", "--weight", "2"],
            "give --weight once, or once for each of 1 data",
        ),
    ],
)
def test_mistakes_write_nothing(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = {"--dataset": "pf-willow", "--root": ".", "--split": "test"}
    others = [word for name, value in usual.items() if name not in arguments for word in (name, value)]
    result = run(*arguments, *others)
    assert isinstance(result.exception, ChmnetError)
    assert words in str(result.exception)
    assert list(tmp_path.iterdir()) == []
