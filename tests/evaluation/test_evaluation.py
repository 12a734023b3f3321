"""Predict once, score many ways; resume an interrupted run."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from chmnet.cli.main import app
from chmnet.data import Pair, deduplicate, load_pairs, training_pairs
from chmnet.errors import ChmnetError, InputError, WeightsError
from chmnet.evaluation import Header, PredictionFile, evaluate, open_finished, open_predictions, predict
from chmnet.evaluation.predict import describe_model
from chmnet.matcher import Matcher
from chmnet.metrics import DEFAULT_PROTOCOLS
from chmnet.nn import CHMNet
from chmnet.weights import load_model
from tests.data import trees

SMALL = {"image_size": (64, 64)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PF-WILLOW tree of four noise pictures and six pairs."""
    folder = tmp_path_factory.mktemp("data")
    images = folder / "PF-WILLOW" / "PF-dataset" / "car(G)"
    images.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(4):
        Image.fromarray(generator.integers(0, 255, (50 + number, 60, 3), dtype=np.uint8)).save(
            images / f"{number}.png"
        )
    columns = [f"{axis}{side}{n}" for side in "AB" for axis in "XY" for n in range(10)]
    with (folder / "PF-WILLOW" / "test_pairs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["imageA", "imageB", *columns])
        for a in range(4):
            for b in range(a + 1, 4):
                names = [f"PF-dataset/car(G)/{n}.png" for n in (a, b)]
                writer.writerow([*names, *generator.uniform(1, 49, 40)])
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHMNET_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def pairs(root: Path) -> list[Pair]:
    return load_pairs("pf-willow", root)


@pytest.fixture(scope="module")
def model() -> CHMNet:
    return load_model("nearest-neighbour", changes=SMALL)


@pytest.fixture
def header(pairs: list[Pair], model: CHMNet) -> Header:
    return Header.of("pf-willow", "test", pairs, describe_model("nearest-neighbour", model))


def test_each_picture_is_computed_once_and_predictions_are_those_of_single_matches(
    pairs: list[Pair], model: CHMNet, header: Header, tmp_path: Path
) -> None:
    file = PredictionFile(tmp_path / "p.jsonl")
    assert predict(pairs, model, file, header) == 4
    matcher = Matcher(model)
    for pair in pairs:
        single = matcher.match(pair.source.path, pair.target.path).locate(pair.source.keypoints)
        np.testing.assert_allclose(file.predictions[pair.name].points, single, atol=1e-4)


def test_file_read_again_is_the_same(pairs: list[Pair], model: CHMNet, header: Header, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    first = PredictionFile(path)
    predict(pairs, model, first, header)
    second = PredictionFile(path)
    assert second.complete
    protocol = DEFAULT_PROTOCOLS["pf-willow"]
    assert evaluate(pairs, first, protocol) == evaluate(pairs, second, protocol)


@pytest.mark.parametrize("cut", [-1, -40, -400, 5, 30, 200])  # the last three inside the header
def test_resumes_after_a_line_cut_short(
    pairs: list[Pair], model: CHMNet, header: Header, tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "p.jsonl"
    predict(pairs, model, PredictionFile(path), header)
    whole = PredictionFile(path)
    content = path.read_bytes()
    path.write_bytes(content[:cut])
    resumed = PredictionFile(path)
    assert len(resumed.predictions) < len(pairs)
    predict(pairs, model, resumed, header)
    again = PredictionFile(path)
    assert list(again.predictions) == list(whole.predictions)
    for name, prediction in whole.predictions.items():
        np.testing.assert_array_equal(again.predictions[name].points, prediction.points)


def test_unfinished_is_not_scored(pairs: list[Pair], header: Header, tmp_path: Path) -> None:
    file = PredictionFile(tmp_path / "p.jsonl")
    file.start(header)
    with pytest.raises(InputError, match="finish the evaluation"):
        evaluate(pairs, file, DEFAULT_PROTOCOLS["pf-willow"])


def test_file_of_another_run_is_refused(pairs: list[Pair], model: CHMNet, header: Header, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    PredictionFile(path).start(header)
    other = Header.of("pf-willow", "test", pairs[:3], header.model)
    with pytest.raises(InputError, match=r"another run \(different pairs"):
        PredictionFile(path).start(other)


def test_a_run_that_keeps_more_is_resumed_by_one_that_asks_for_less(header: Header, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    open_predictions(replace(header, clutter=True), path)
    resumed = open_predictions(header, path)
    assert resumed.header == replace(header, clutter=True)
    open_predictions(header, tmp_path / "less.jsonl")
    with pytest.raises(InputError, match="different clutter"):
        open_predictions(replace(header, clutter=True), tmp_path / "less.jsonl")


def test_only_complete_files_of_the_same_pairs_are_scored_as_they_are(
    pairs: list[Pair], model: CHMNet, header: Header, tmp_path: Path
) -> None:
    path = tmp_path / "p.jsonl"
    assert open_finished(path, "pf-willow", "test", pairs) is None
    predict(pairs[:3], model, PredictionFile(path), header)
    assert open_finished(path, "pf-willow", "test", pairs) is None  # it is resumed
    predict(pairs, model, PredictionFile(path), header)
    found = open_finished(path, "pf-willow", "test", pairs)
    assert found is not None
    assert found.complete
    for dataset, split, others in (
        ("coco", "test", pairs),
        ("pf-willow", "val", pairs),
        ("pf-willow", "test", []),
    ):
        with pytest.raises(InputError, match="other pairs"):
            open_finished(path, dataset, split, others)
    with pytest.raises(InputError, match="no grid matches"):
        open_finished(path, "pf-willow", "test", pairs, clutter=True)


@pytest.mark.parametrize(
    "content", ["hello\n", "{}\n", '{"format": "chmnet-predictions-1"}\n', "[1]\n", "\x00\n", "no newline"]
)
def test_foreign_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match="not a file of predictions"):
        PredictionFile(path)
    assert path.read_text() == content


def test_folder_and_unwritable_place_are_refused(tmp_path: Path, header: Header) -> None:
    with pytest.raises(InputError, match="is a folder"):
        PredictionFile(tmp_path)
    with pytest.raises(InputError, match="cannot write the predictions"):
        PredictionFile(tmp_path / "none" / "p.jsonl").start(header)


COMMAND = ["evaluate", "--dataset", "pf-willow", "--model", "nearest-neighbour", "--set", "image_size=[64, 64]"]


def run(root: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*COMMAND, "--root", str(root), *arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_command_prints_the_protocol_and_writes_json(root: Path, tmp_path: Path) -> None:
    output = run(root, "--json", str(tmp_path / "r.json"), "--alpha", "0.1", "--alpha", "0.2")
    assert "keypoints' own box (bbox-kp)" in output
    assert "model: nearest-neighbour (image_size=[64, 64])" in output
    result = json.loads((tmp_path / "r.json").read_text())
    assert result.keys() >= {"dataset", "split", "pairs", "protocol", "pck", "per_class", "seconds", "model"}
    assert result["pairs"] == 6
    assert result["pck"].keys() == {"0.1", "0.2"}
    assert 0 <= result["pck"]["0.1"] <= result["pck"]["0.2"] <= 100
    assert result["protocol"]["threshold"] == "bbox-kp"


def test_finished_predictions_are_scored_without_the_model(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictions = str(tmp_path / "p.jsonl")
    run(root, "--predictions", predictions, "--json", str(tmp_path / "a.json"))
    monkeypatch.setattr("chmnet.weights.load_model", lambda *_: pytest.fail("the model was loaded"))
    command = ["evaluate", "--dataset", "pf-willow", "--root", str(root), "--predictions", predictions]
    again = CliRunner().invoke(app, [*command, "--threshold", "bbox-legacy", "--json", str(tmp_path / "b.json")])
    assert again.exit_code == 0, again.output
    kp, legacy = (json.loads((tmp_path / name).read_text())["pck"]["0.1"] for name in ("a.json", "b.json"))
    assert legacy >= kp


def test_poses_and_boxes_are_asked_for_said_and_kept(root: Path, tmp_path: Path) -> None:
    file, asked = str(tmp_path / "p.jsonl"), ["--poses", "mirror", "--place", "found", "--boxes"]
    output = run(root, *asked, "--predictions", file, "--json", str(tmp_path / "r.json"))
    assert "poses: mirror, place: found, inside of the annotated boxes" in output
    assert json.loads((tmp_path / "r.json").read_text())["search"] == {
        "poses": "mirror",
        "place": "found",
        "boxes": True,
    }
    other = CliRunner().invoke(app, [*COMMAND, "--root", str(root), "--predictions", file, "--poses", "any"])
    assert isinstance(other.exception, InputError)
    assert "different search" in str(other.exception)
    assert "poses" not in run(root, "--predictions", str(tmp_path / "upright.jsonl"))


def test_predictions_in_another_pose_are_those_of_the_matcher(
    pairs: list[Pair], model: CHMNet, tmp_path: Path
) -> None:
    found = {"poses": "any", "place": "found", "boxes": True}
    boxed = [replace(pair, target=replace(pair.target, box=(5.0, 6.0, 40.0, 45.0))) for pair in pairs]
    header = Header.of("pf-willow", "test", boxed, {}, search=found)
    file = PredictionFile(tmp_path / "p.jsonl")
    predict(boxed, model, file, header)
    matcher = Matcher(model, poses="any", place="found")
    for pair in boxed:
        expected = matcher.match(pair.source.path, pair.target.path, boxes=(None, pair.target.box))
        assert expected.target.area is not None
        np.testing.assert_allclose(
            file.predictions[pair.name].points, expected.locate(pair.source.keypoints), atol=1e-3
        )
    assert PredictionFile(tmp_path / "p.jsonl").header == header


@pytest.mark.parametrize("ending", ["html", "md"])
def test_report_is_self_contained(root: Path, tmp_path: Path, ending: str) -> None:
    report = tmp_path / f"report.{ending}"
    run(root, "--report", str(report))
    text = report.read_text()
    assert "bbox-kp" in text
    assert "Worst pairs" in text
    assert text.count("data:image/") == 10  # one curve, three best, three median, three worst
    assert "http" not in text.replace("data:image", "")


@pytest.mark.slow
def test_killed_and_started_again_gives_the_same_json(root: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "CHMNET_CACHE": str(tmp_path / "cache")}
    slow = (
        "import time, chmnet.nn.inference as m, chmnet.cli.main as c\n"
        "match = m.InferenceHead.match\n"
        "m.InferenceHead.match = lambda *a: (time.sleep(0.5), match(*a))[1]\n"
        "c.main()\n"
    )
    arguments = [*COMMAND, "--root", str(root)]
    process = subprocess.Popen(
        [sys.executable, "-c", slow, *arguments], env=environment, stdout=subprocess.DEVNULL
    )
    waiting = tmp_path / "cache" / "unfinished"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        files = list(waiting.glob("*.jsonl")) if waiting.exists() else []
        if files and files[0].read_bytes().count(b"\n") >= 3:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 3 <= files[0].read_bytes().count(b"\n") < 7
    results = []
    for cache, name in (("cache", "resumed.json"), ("fresh", "undisturbed.json")):
        environment["CHMNET_CACHE"] = str(tmp_path / cache)
        command = [sys.executable, "-m", "chmnet", *arguments, "--json", str(tmp_path / name)]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        results.append(json.loads((tmp_path / name).read_text()))
        results[-1].pop("seconds")
    assert results[0] == results[1]
    assert not list(waiting.iterdir())  # nothing is left of a finished run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--dataset", "wonder"], "there is no data set"),
        (["--split", "train"], "has no split"),
        (["--threshold", "bbox"], "box"),
        (["--threshold", "nonsense"], "'threshold'"),
        (["--alpha", "5"], "5 % is 0.05"),
        (["--model", "wonder"], "there is no model"),
        (["--deduplicate"], "only pf-pascal"),
        (["--clutter"], "neither a mask nor a box"),
        (["--report", "r.pdf"], ".html or .md"),
        (["--predictions", "p.jsonl", "--json", "p.jsonl", "--overwrite"], "is an input already"),
        (["--json", "r.md", "--report", "r.md"], "is another output already"),
        (["--set", "nonsense"], "key=value"),
        (["--set", "matching.kind=maybe"], "must be one of"),
        (["--backbone", "resnet50"], "needs weights"),
        (["--backbone", "vgg"], "must be one of"),
        (["--predictions", "no/such/place/p.jsonl"], "cannot write the predictions"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes(root: Path, arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, [*COMMAND, "--root", str(root), *arguments])
    assert isinstance(result.exception, ChmnetError), result.output
    assert sentence in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_model_file_takes_no_other_backbone() -> None:
    with pytest.raises(WeightsError, match="its own backbone"):
        load_model("some.safetensors", backbone="resnet50")


@pytest.mark.parametrize(
    "record",
    [
        '{"pair": "a", "points": [[1e999, 1]], "source_size": [1e999, 1], "target_size": [1, 1], "seconds": 0}',
        '{"pair": "a", "points": [[' + "9" * 400 + ', 1]], "source_size": [1, 1], "target_size": [1, 1]}',
        "[" * 100_000,
        '{"pair": "a"}',
    ],
    ids=["infinite size", "many digits", "deep", "incomplete"],
)
def test_damaged_line_is_named(header: Header, tmp_path: Path, record: str) -> None:
    path = tmp_path / "p.jsonl"
    PredictionFile(path).start(header)
    with path.open("a") as file:
        file.write(record + "\n")
    with pytest.raises(InputError, match="line 2, is not a file of predictions"):
        PredictionFile(path)


@pytest.fixture
def spair(tmp_path: Path) -> Path:
    return trees.make_spair(tmp_path)


NEAREST = ["--model", "nearest-neighbour", "--set", "image_size=[64, 64]"]


def spair_command(root: Path, *arguments: str) -> Result:
    command = ["evaluate", "--dataset", "spair-71k", "--root", str(root), *arguments]
    return CliRunner().invoke(app, command)


def test_clutter_difficulty_and_report_from_end_to_end(spair: Path, tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("p.jsonl", "a.json", "b.json", "r.html")}
    outputs = ["--predictions", files["p.jsonl"], "--json", files["a.json"], "--report", files["r.html"]]
    first = spair_command(spair, *NEAREST, "--clutter", *outputs)
    assert first.exit_code == 0, (first.output, first.exception)
    result = json.loads(Path(files["a.json"]).read_text())
    assert result["difficulty"]["viewpoint"].keys() == {"0", "1"}
    assert "viewpoint 1:" in first.output
    assert "Robustness to clutter" in Path(files["r.html"]).read_text()
    grid = next(iter(PredictionFile(files["p.jsonl"]).grids().values()))
    points = np.stack(np.meshgrid(np.linspace(0, 40, 20), np.linspace(0, 30, 20)), axis=-1).reshape(-1, 2)
    expected = (points[:, 0] >= 6) & (points[:, 0] < 30) & (points[:, 1] >= 5) & (points[:, 1] < 20)
    assert grid.source_inside.tolist() == expected.tolist()  # the tree's masks are this rectangle
    assert 0 <= result["clutter"]["area"] <= 1
    again = spair_command(spair, "--predictions", files["p.jsonl"], "--clutter", "--json", files["b.json"])
    assert again.exit_code == 0, again.exception
    assert json.loads(Path(files["b.json"]).read_text()) == result
    asks_for_less = spair_command(spair, *NEAREST, "--predictions", files["p.jsonl"])
    assert asks_for_less.exit_code == 0, asks_for_less.exception


def test_file_without_grids_is_refused_for_clutter(spair: Path, tmp_path: Path) -> None:
    predictions = str(tmp_path / "p.jsonl")
    assert spair_command(spair, *NEAREST, "--predictions", predictions).exit_code == 0
    refused = spair_command(spair, "--predictions", predictions, "--clutter")
    assert "holds no grid matches for --clutter" in str(refused.exception)
    with pytest.raises(InputError, match="holds no grid matches"):
        PredictionFile(predictions).grids()


def test_the_same_words_resume_an_interrupted_evaluation(
    spair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --model too: the default model's unfinished file is completed; another model's is refused."""
    path = tmp_path / "p.jsonl"
    monkeypatch.setattr("chmnet.weights.DEFAULT_MODEL", "nearest-neighbour")
    command = ["--predictions", str(path), "--json", str(tmp_path / "a.json")]
    assert spair_command(spair, *command).exit_code == 0
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    for kept in (lines[0], b"".join(lines[:2]), b"".join(lines[:2]) + lines[2][:10]):
        path.write_bytes(kept)
        again = spair_command(spair, *command, "--overwrite")
        assert again.exit_code == 0, again.exception
        assert len(path.read_bytes().splitlines()) == len(lines)
    path.write_bytes(lines[0])
    assert spair_command(spair, *NEAREST, *command, "--overwrite").exit_code != 0


def test_options_of_the_data_set_lists_and_averages(spair: Path, tmp_path: Path) -> None:
    small = spair_command(spair, *NEAREST, "--option", "layout=small", "--json", str(tmp_path / "s.json"))
    assert small.exit_code == 0, small.exception
    result = json.loads((tmp_path / "s.json").read_text())
    assert result["pairs"] == 1
    assert result["dataset_options"] == {"layout": "small"}
    pair_list = str(tmp_path / "list.json")
    listing = ["data", "list", "spair-71k", "--root", str(spair), "--option", "layout=small", "-o", pair_list]
    assert CliRunner().invoke(app, listing).exit_code == 0
    listed = spair_command(spair, *NEAREST, "--pairs", pair_list, "--average", "class", "--space", "resized")
    assert listed.exit_code == 0, listed.exception
    assert "1 pairs of list.json" in listed.output
    assert "mean over classes" in listed.output
    for option, sentence in (("wonder=1", "has no option"), ("layout=3", "must be of type str")):
        assert sentence in str(spair_command(spair, "--option", option).exception)


@pytest.mark.slow
def test_nearest_neighbours_of_resnet_50_on_pf_willow(shared: Path, tmp_path: Path) -> None:
    """The figures measured independently, written at the end of the data sets' README."""
    expected = {False: ((20.4, 43.5), (26.1, 51.5)), True: ((23.8, 46.3), (30.4, 54.6))}
    all_pairs = load_pairs("pf-willow", shared / "datasets")
    weights = shared / "weights" / "resnet50_he_conv4.safetensors"
    for filtered, figures in expected.items():
        network = load_model("nearest-neighbour", "resnet50", weights, {"output": {"mutual_filter": filtered}})
        file = PredictionFile(tmp_path / f"{filtered}.jsonl")
        predict(all_pairs, network, file, Header.of("pf-willow", "test", all_pairs, describe_model("nn", network)))
        for threshold, values in zip(("bbox-kp", "bbox-legacy"), figures, strict=True):
            protocol = DEFAULT_PROTOCOLS["pf-willow"].replace(threshold=threshold)
            pck = evaluate(all_pairs, file, protocol)["pck"]
            assert (pck["0.05"], pck["0.1"]) == pytest.approx(values, abs=0.3)


@pytest.mark.slow
def test_nearest_neighbours_of_resnet_50_on_pf_pascal(shared: Path, tmp_path: Path) -> None:
    """The official figure and the de-duplicated one, as in docs/evaluation.md."""
    weights = shared / "weights" / "resnet50_he_conv4.safetensors"
    network = load_model("nearest-neighbour", "resnet50", weights)
    all_pairs = load_pairs("pf-pascal", shared / "datasets")
    file = PredictionFile(tmp_path / "p.jsonl")
    predict(all_pairs, network, file, Header.of("pf-pascal", "test", all_pairs, {}))
    fresh = deduplicate(all_pairs, training_pairs(shared / "datasets"))
    for scored, figures in ((all_pairs, (28.5, 49.3)), (fresh, (28.6, 48.9))):
        pck = evaluate(scored, file, DEFAULT_PROTOCOLS["pf-pascal"])["pck"]
        assert (pck["0.05"], pck["0.1"]) == pytest.approx(figures, abs=0.1)


@pytest.mark.slow
def test_cached_features_make_it_four_times_faster(shared: Path, tmp_path: Path) -> None:
    every_pair = load_pairs("pf-willow", shared / "datasets")
    weights = shared / "weights" / "resnet50_he_conv4.safetensors"
    network = load_model("nearest-neighbour", "resnet50", weights)
    matcher = Matcher(network)
    sample = every_pair[::30]
    start = time.perf_counter()
    single = {pair.name: matcher.match(pair.source.path, pair.target.path) for pair in sample}
    points = {pair.name: single[pair.name].locate(pair.source.keypoints) for pair in sample}
    single_seconds = (time.perf_counter() - start) / len(sample)
    file = PredictionFile(tmp_path / "p.jsonl")
    start = time.perf_counter()
    predict(every_pair, network, file, Header.of("pf-willow", "test", every_pair, {}))
    assert (time.perf_counter() - start) / len(every_pair) < single_seconds / 4
    for name, expected in points.items():
        np.testing.assert_allclose(file.predictions[name].points, expected, atol=1e-4)
