"""Each picture's features once, the evaluation's numbers, and results that survive anything."""

import os
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from chmnet.annotation import Moved, PartialFile, Pose, propagate
from chmnet.annotation.propagate import _guess, labelled_view
from chmnet.config import TransferConfig
from chmnet.data import load_pairs
from chmnet.data.coco import Labels, load_labels
from chmnet.data.making_pairs import Instance
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.errors import InputError
from chmnet.evaluation import Header, PredictionFile, predict
from chmnet.features import Features, Fingerprint
from chmnet.matcher import Matcher
from chmnet.nn import CHMNet
from chmnet.nn.chmnet import MatchingHead, Pyramid
from chmnet.pictures import View, to_picture
from chmnet.poses import mirrored
from chmnet.result import MatchResult
from chmnet.weights import load_model
from tests.data.trees import edit_json

from .tiny import NAMES, POINTS, noise_picture, small_model, tiny_model, write_labels


def run(labels: Labels, targets: list[Path], model: CHMNet, folder: Path) -> dict[str, np.ndarray]:
    """Points found in each target, by its name."""
    file = PartialFile(folder / "out.partial")
    file.start({"run": 1})
    outcome = propagate(labels, targets, model, file, poses="upright")
    return {found.path.name: found.objects[0].points for found in outcome.found}


def evaluated(pairs: list[Pair], model: CHMNet, folder: Path) -> dict[str, np.ndarray]:
    file = PredictionFile(folder / "p.jsonl")
    predict(pairs, model, file, Header.of("test", "test", pairs, {}))
    return {pair.target.path.name: file.predictions[pair.name].points for pair in pairs}


def assert_equal_predictions(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, points in expected.items():
        np.testing.assert_allclose(found[name], points, atol=0.01)


def test_predictions_are_those_of_the_evaluation(tmp_path: Path) -> None:
    noise_picture(tmp_path / "source.png", 0)
    sizes = [(64, 48), (48, 64), (200, 31), (33, 33)]
    targets = [noise_picture(tmp_path / f"{number}.png", number, size) for number, size in enumerate(sizes)]
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: the file lies on its side
    to_picture(targets[0]).save(tmp_path / "turned.jpg", exif=exif)
    targets.append(tmp_path / "turned.jpg")
    labels = load_labels(write_labels(tmp_path / "labels.json", ["source.png"]))
    keypoints = np.array(POINTS)
    source = AnnotatedImage(tmp_path / "source.png", keypoints)
    pairs = [Pair(path.name, "cat", source, AnnotatedImage(path, keypoints)) for path in targets]
    found = run(labels, targets, small_model(), tmp_path)
    assert_equal_predictions(found, evaluated(pairs, small_model(), tmp_path))
    assert (found["turned.jpg"] <= (48, 64)).all()
    assert found["turned.jpg"][:, 1].max() > 48  # below the edge of the picture as it lies in the file


@pytest.mark.slow
def test_pf_willow_siblings_equal_the_evaluation(shared: Path, tmp_path: Path) -> None:
    pairs = [pair for pair in load_pairs("pf-willow", shared / "datasets") if pair.category == "motorbike(S)"]
    source = pairs[0].source
    pairs = [pair for pair in pairs if pair.source.path == source.path]
    assert len(pairs) == 9
    link = tmp_path / source.path.name
    link.symlink_to(source.path)
    file = write_labels(tmp_path / "labels.json", [link.name])

    def ten_keypoints(document: dict) -> None:
        names = [f"part {number}" for number in range(10)]
        document["categories"][0].update(keypoints=names, skeleton=[])
        flat = [value for x, y in source.keypoints.tolist() for value in (x, y, 2)]
        document["annotations"][0].update(keypoints=flat)

    edit_json(file, ten_keypoints)
    model = load_model()
    found = run(load_labels(file), [pair.target.path for pair in pairs], model, tmp_path)
    assert_equal_predictions(found, evaluated(pairs, model, tmp_path))


@pytest.mark.parametrize(("poses", "seen"), [("upright", 1), ("mirror", 2)])
@pytest.mark.parametrize("number", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_features_are_computed_once_for_each_pose_of_a_target_and_few_are_kept(
    number: int, poses: str, seen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise_picture(tmp_path / "source.png", 0)
    first = noise_picture(tmp_path / "targets" / "0.bmp", 1, (16, 12))
    for each in range(1, number):
        os.link(first, tmp_path / "targets" / f"{each}.bmp")  # real paths differ: other pictures
    labels = load_labels(write_labels(tmp_path / "labels.json", ["source.png"]))
    alive: list[weakref.ref[Tensor]] = []
    most = 0
    features, pyramid = CHMNet.features, MatchingHead.pyramid
    calls = 0

    def count(self: CHMNet, images: Tensor, branch: str = "source") -> Tensor:
        nonlocal calls
        calls += len(images)
        return features(self, images, branch)

    def watch(self: MatchingHead, values: Tensor) -> Pyramid:
        nonlocal most
        made = pyramid(self, values)
        alive[:] = [one for one in alive if one() is not None] + [weakref.ref(made.levels[0])]
        most = max(most, len(alive))
        return made

    monkeypatch.setattr(CHMNet, "features", count)
    monkeypatch.setattr(MatchingHead, "pyramid", watch)
    file = PartialFile(tmp_path / "out.partial")
    file.start({})
    targets = [tmp_path / "targets" / f"{each}.bmp" for each in range(number)]
    outcome = propagate(labels, targets, tiny_model(), file, poses=poses)
    assert len(outcome.found) == number
    assert outcome.computed == calls == seen * number + 1
    assert most <= 2 * seen + 1  # the source, a target in its poses, and the one before it


def propagated(labels: Labels, target: Path, folder: Path, **search: object) -> Moved:
    """What the small model finds in one target."""
    file = PartialFile(folder / "one.partial")
    file.start({}, restart=True)
    (found,) = propagate(labels, [target], small_model(), file, **search).found  # type: ignore[arg-type]
    file.remove()
    return found.objects[0]


def test_the_example_that_matches_is_taken_and_what_it_does_not_show_has_no_place(tmp_path: Path) -> None:
    for number in range(2):
        noise_picture(tmp_path / f"{number}.png", number)
    target = tmp_path / "target.png"
    shutil.copy(tmp_path / "1.png", target)
    visible = [[2, 2, 2, 2], [2, 2, 2, 0]]
    both = load_labels(write_labels(tmp_path / "labels.json", ["0.png", "1.png"], visible))
    moved = propagated(both, target, tmp_path)
    assert moved.sources == (1,)
    assert np.isnan(moved.points).any(axis=1).tolist() == [False, False, False, True]
    assert moved.confidence[3] == 0
    alone = propagated(load_labels(write_labels(tmp_path / "one.json", ["1.png"], visible[1:])), target, tmp_path)
    assert alone.sources == (0,)
    np.testing.assert_array_equal(moved.points, alone.points)
    np.testing.assert_array_equal(moved.confidence, alone.confidence)


def test_mirrored_picture_gets_its_left_and_right_exchanged(tmp_path: Path) -> None:
    noise_picture(tmp_path / "source.png", 0)
    target = tmp_path / "mirrored.png"
    ImageOps.mirror(to_picture(tmp_path / "source.png")).save(target)
    labels = load_labels(write_labels(tmp_path / "labels.json", ["source.png"]))
    upright = propagated(labels, target, tmp_path, poses="upright")
    assert upright.pose == Pose()
    moved = propagated(labels, target, tmp_path)
    assert moved.pose.mirrored
    assert moved.pose.probability is not None
    assert moved.pose.probability > 0.5
    points = np.array(POINTS) * (-1, 1) + (64, 0)
    expected = points[[0, 1, 3, 2]]  # the ears are the other ones
    assert np.abs(moved.points - expected).max() < 8
    assert np.abs(upright.points - expected).max() > 20


def test_the_pose_that_won_is_preferred_to_its_mirror_image_however_unsure_the_turn() -> None:
    view, scores = View.of(np.zeros((48, 64), dtype=np.uint8)), 50 * torch.eye(16).view(1, 1, 4, 4, 4, 4)
    features = Features((torch.zeros(1, 1, 4, 4),), (4, 4), view, Fingerprint(""))

    class Fixed(Matcher):
        """Matches everything with itself; the turn has a probability of 0.55, the mirror image one of 0.6."""

        def __init__(self) -> None:
            pass

        def match(self, source: Features, target: Features | View, **search: str) -> MatchResult:  # type: ignore[override]
            if isinstance(target, View):
                return MatchResult(scores, source.view, target, TransferConfig())
            chances = {"pose_probability": 0.33, "other_pose_probability": 0.22}
            return MatchResult(scores, source.view, mirrored(view), TransferConfig(), **chances)

    instance = Instance("a", "cat", Path("a.png"), np.array(POINTS), NAMES)
    won, lost = _guess(instance, [0, 1, 3, 2], Fixed(), features, features)
    assert (won.pose, lost.pose) == (Pose(True, 0.0, 0.33), Pose(False, 0.0, 0.22))
    assert won.quality > lost.quality


def test_labelled_object_is_seen_with_its_box_and_all_its_keypoints(tmp_path: Path) -> None:
    noise_picture(tmp_path / "source.png", 0, (200, 100))
    file = write_labels(tmp_path / "labels.json", ["source.png"])
    (plain,) = load_labels(file).instances
    assert labelled_view(plain).area is None
    edit_json(file, lambda document: document["annotations"][0].update(bbox=[20, 20, 40, 10]))
    (boxed,) = load_labels(file).instances
    assert labelled_view(boxed).area == (2, 7, 68, 45)  # keypoints lie beside the box
    assert labelled_view(boxed, whole=True).area is None


def test_known_results_are_not_computed_again_unless_the_picture_changed(tmp_path: Path) -> None:
    noise_picture(tmp_path / "source.png", 0)
    targets = [noise_picture(tmp_path / f"{number}.png", number) for number in range(1, 4)]
    labels = load_labels(write_labels(tmp_path / "labels.json", ["source.png"]))
    path = tmp_path / "out.partial"
    first = PartialFile(path)
    first.start({})
    before = propagate(labels, targets[:2], tiny_model(), first, poses="upright")
    assert before.computed == 3
    again = PartialFile(path)
    again.start({})
    assert propagate(labels, targets[:2], tiny_model(), again, poses="upright").computed == 0
    noise_picture(targets[1], 9, (30, 40))
    after = propagate(labels, targets[::-1], tiny_model(), again, poses="upright")
    assert after.computed == 3
    assert [found.path for found in after.found] == targets[::-1]
    assert after.found[1].size == (40, 30)
    link = tmp_path / "link.png"
    link.symlink_to(targets[0])
    assert propagate(labels, [link], tiny_model(), again).found[0].path == link  # as it was named
    np.testing.assert_array_equal(after.found[2].objects[0].points, before.found[0].objects[0].points)


def test_unreadable_and_vanishing_pictures_are_skipped(tmp_path: Path) -> None:
    noise_picture(tmp_path / "source.png", 0)
    good = noise_picture(tmp_path / "good.png", 1)
    text = tmp_path / "text.png"
    text.write_text("no picture")
    gone = noise_picture(tmp_path / "gone.png", 2)
    labels = load_labels(write_labels(tmp_path / "labels.json", ["source.png"]))

    class Forgetful(PartialFile):
        def add(self, path: Path, *rest: object) -> object:  # type: ignore[override]
            gone.unlink(missing_ok=True)
            return super().add(path, *rest)  # type: ignore[arg-type]

    file = Forgetful(tmp_path / "p")
    file.start({})
    outcome = propagate(labels, [text, gone, good, tmp_path / "never.png"], tiny_model(), file)
    assert [found.path.name for found in outcome.found] == ["good.png"]
    reasons = {one.path.name: one.reason for one in outcome.skipped}
    assert "not a picture" in reasons["text.png"]
    assert "removed" in reasons["gone.png"]
    assert "there is no picture" in reasons["never.png"]


def test_file_of_another_run_is_refused_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "p"
    PartialFile(path).start({"model": "a", "labels": 1})
    with pytest.raises(InputError, match=r"unfinished run with other settings \(different model\)"):
        PartialFile(path).start({"model": "b", "labels": 1})
    PartialFile(path).start({"model": "b", "labels": 1}, restart=True)
    PartialFile(path).start({"model": "b", "labels": 1})


def test_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p"
    PartialFile(path).start({})
    with path.open("a") as file:
        file.write('{"picture": 3}\n')
    with pytest.raises(InputError, match="line 2, is not a file of results of chmnet propagate"):
        PartialFile(path)
