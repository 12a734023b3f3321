"""The network that sees which way things face."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from chmnet import Matcher
from chmnet.data.making_pairs import Instance
from chmnet.errors import InputError
from chmnet.evaluation.facing import fit_facing, label_instance, label_pictures
from chmnet.features import Features
from chmnet.pictures import Picture, View
from chmnet.weights import load_model, save_model, save_probe

NAMES = ("nose", "tail_base", "left_ear", "right_ear")


def animal(path: Path, keypoints: list[tuple[float, float]], box: tuple[float, ...] = (0, 0, 100, 50)) -> Instance:
    return Instance(path.stem, "cat", path, np.array(keypoints), NAMES, box=box, size=(50, 100))  # type: ignore[arg-type]


SIDE = [(10.0, 10.0), (90.0, 10.0), (np.nan, np.nan), (15.0, 5.0)]
FRONTAL = [(50.0, 10.0), (np.nan, np.nan), (70.0, 5.0), (30.0, 5.0)]


def test_a_side_view_faces_left_and_shows_no_sides() -> None:
    assert label_instance(animal(Path("a.png"), SIDE)) == (-1.0, 0.0)


def test_a_frontal_view_has_its_left_on_the_right() -> None:
    across, along = label_instance(animal(Path("a.png"), FRONTAL))
    assert np.isnan(across)
    assert along == pytest.approx(-0.8)


def test_small_things_and_contradicting_ones_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    left, right = animal(path, SIDE), animal(path, [(90.0, 1.0), (10.0, 1.0), *SIDE[2:]])
    assert set(label_pictures([left])) == {str(path)}
    assert label_pictures([left, right]) == {}
    assert set(label_pictures([left, replace(right, box=(0, 0, 30, 20))])) == {str(path)}
    assert label_pictures([replace(left, box=(0, 0, 10, 10))]) == {}


def draw_arrow(path: Path, left: bool, seed: int) -> Instance:
    """An arrow that points to one side, somewhere on noise."""
    generator = np.random.default_rng(seed)
    noise = generator.integers(90, 130, (96, 96, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    x, y = generator.integers(8, 24, 2)
    tip, end = (x, x + 60) if left else (x + 60, x)
    turn = 1 if left else -1
    draw = ImageDraw.Draw(picture)
    draw.polygon([(tip, y + 24), (tip + turn * 30, y), (tip + turn * 30, y + 48)], fill="yellow")
    draw.rectangle([min(end, tip + turn * 30), y + 16, max(end, tip + turn * 30), y + 32], fill="blue")
    picture.save(path)
    keypoints = np.array([[tip, y + 24], [end, y + 24]], dtype=float)
    box = (float(x), float(y), float(x + 60), float(y + 48))
    return Instance(path.stem, "arrow", path, keypoints, ("nose", "tail"), box=box, size=(96, 96))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Instance]]:
    folder = tmp_path_factory.mktemp("arrows")
    arrows = [draw_arrow(folder / f"{number}.png", number % 2 == 0, number) for number in range(70)]
    model = load_model("nearest-neighbour", changes={"image_size": (96, 96)})
    save_model(model, folder / "before.safetensors")
    probe = fit_facing(model, arrows[:60], steps=80)
    save_probe(folder / "before.safetensors", probe, folder / "after.safetensors", "sixty arrows")
    return folder / "after.safetensors", arrows[60:]


def test_a_fitted_model_sees_which_way_new_things_face(fitted: tuple[Path, list[Instance]]) -> None:
    matcher = Matcher(fitted[0], device="cpu")
    for arrow in fitted[1]:
        facing = matcher.extract(arrow.path).facing
        mirror = matcher.extract(View(Picture(arrow.path), mirrored=True)).facing
        assert facing is not None
        assert mirror is not None
        assert facing[0] * label_instance(arrow)[0] > 0
        assert facing[0] * mirror[0] < 0


def test_facing_is_kept_in_files_of_features(fitted: tuple[Path, list[Instance]], tmp_path: Path) -> None:
    features = Matcher(fitted[0], device="cpu").extract(fitted[1][0].path)
    features.save(tmp_path / "f.safetensors")
    assert Features.load(tmp_path / "f.safetensors").facing == features.facing


def test_an_opposite_target_is_matched_mirrored(fitted: tuple[Path, list[Instance]]) -> None:
    model = load_model(fitted[0])
    model.config = model.config.replace(calibration={"pose": (-1.0, 4.0, 0.0, 0.0, 60.0)})
    matcher = Matcher(model, device="cpu")
    left, right, other = (arrow.path for arrow in fitted[1][:3])
    opposite, same = matcher.match(left, right), matcher.match(left, other)
    assert opposite.target.mirrored
    assert not same.target.mirrored
    assert opposite.pose_probability is not None
    assert opposite.pose_probability > 0.5
    nose, tail = opposite.locate(fitted[1][0].keypoints)
    assert nose[0] > tail[0]  # in the target's own pixels


def test_too_few_pictures_are_refused() -> None:
    with pytest.raises(InputError, match="at least 50"):
        fit_facing(load_model("nearest-neighbour"), [])


def test_training_a_network_does_not_touch_it(fitted: tuple[Path, list[Instance]]) -> None:
    model = load_model(fitted[0])
    assert model.facing is not None
    assert not any(parameter.requires_grad for parameter in model.facing.parameters())
    assert torch.isfinite(next(model.facing.parameters())).all()
