"""Fitting the probe of the foreground to pictures with boxes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from chmnet.config import BackboneConfig
from chmnet.data.boxes import BoxedPicture
from chmnet.errors import InputError
from chmnet.evaluation import foreground
from chmnet.evaluation.foreground import fit_foreground, label_positions
from chmnet.files import read_tensors
from chmnet.matcher import Matcher
from chmnet.nn import CHMNet, Foreground
from chmnet.pictures import Box, View
from chmnet.training.synthetic import Texture
from chmnet.weights import load_model, save_model, save_probe
from chmnet.weights.models import read_notes
from tests.flat import flat_config


@pytest.fixture(scope="module")
def model() -> CHMNet:
    return load_model("nearest-neighbour", changes={"image_size": (96, 96)})


def scene(seed: int) -> tuple[Image.Image, Box]:
    """A striped square somewhere on a smooth background."""
    generator = np.random.default_rng(seed)
    left, top = (int(number) for number in generator.integers(0, 64, 2))
    pixels = np.asarray(Texture(seed).picture((128, 128)).resize((8, 8)).resize((128, 128))).copy()
    pixels[top : top + 64, left : left + 64] = np.where(np.arange(64) % 8 < 4, 250, 5)[:, None, None]
    return Image.fromarray(pixels), (float(left), float(top), float(left + 64), float(top + 64))


def boxed(folder: Path, count: int) -> list[BoxedPicture]:
    pictures = []
    for number in range(count):
        picture, box = scene(number)
        picture.save(folder / f"{number}.png")
        pictures.append(BoxedPicture(folder / f"{number}.png", (box,)))
    return pictures


@pytest.fixture(scope="module")
def probe(model: CHMNet, tmp_path_factory: pytest.TempPathFactory) -> Foreground:
    return fit_foreground(model, boxed(tmp_path_factory.mktemp("squares"), 12))


def test_positions_between_inside_and_well_outside_say_nothing() -> None:
    picture = BoxedPicture(Path("a.png"), ((0.0, 0.0, 50.0, 100.0), (99.0, 99.0, 100.0, 100.0)))
    labels = label_positions(picture, (100, 100), (3, 26))  # a column every 4 pixels; the edge is 4 wide
    assert labels[0].tolist() == [1] * 13 + [-1] + [0] * 12
    assert labels[2].tolist() == [1] * 13 + [-1] + [0] * 10 + [-1, 1]


def test_a_fitted_probe_finds_things_in_pictures_it_has_not_seen(
    tmp_path: Path, model: CHMNet, probe: Foreground
) -> None:
    again = fit_foreground(model, boxed(tmp_path, 12))
    assert torch.equal(probe.weight, again.weight)
    path, after = tmp_path / "model.safetensors", tmp_path / "after.safetensors"
    save_model(model, path, {"licence": "none"})
    save_probe(path, probe, after, "twelve squares")
    matcher = Matcher(after, device="cpu")
    right, total = 0, 0
    for seed in range(100, 106):
        picture, box = scene(seed)
        found = matcher.extract(picture)
        assert found.foreground is not None
        labels = label_positions(BoxedPicture(Path(), (box,)), (128, 128), found.grid)
        known = labels >= 0
        right += int(((found.foreground[0] > 0.5) == (labels == 1))[known].sum())
        total += int(known.sum())
    assert right / total > 0.85


def test_default_matches_lie_on_the_thing(tmp_path: Path, model: CHMNet, probe: Foreground) -> None:
    path, after = tmp_path / "model.safetensors", tmp_path / "after.safetensors"
    save_model(model, path)
    save_probe(path, probe, after, "")
    picture, (left, top, right, bottom) = scene(200)
    result = Matcher(after, device="cpu").match(picture, picture)

    def share(points: np.ndarray) -> float:
        x, y = points.T
        return float(((x > left - 8) & (x < right + 8) & (y > top - 8) & (y < bottom + 8)).mean())

    few, many = result.matches(6, spread=True), result.matches(top=1000)
    assert len(few.source) == 6
    assert share(few.source) == share(few.target) == 1
    assert share(many.source) > 0.85
    assert len(many.source) < len(result.matches(1000, background=True).source) == result.confidence.size


def test_a_file_with_a_probe_differs_in_nothing_else(tmp_path: Path, model: CHMNet, probe: Foreground) -> None:
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    save_model(model, before, {"licence": "none"}, half=True)
    save_probe(before, probe, after, "squares")
    old, new = read_tensors(before)[0], read_tensors(after)[0]
    assert new.keys() - old.keys() == {"foreground.weight", "foreground.bias"}
    assert all(torch.equal(old[name], new[name]) for name in old)
    loaded = load_model(after)
    assert loaded.config == model.config.replace(foreground=True)
    assert loaded.foreground is not None
    torch.testing.assert_close(loaded.foreground.weight, probe.weight, rtol=1e-3, atol=1e-3)
    assert read_notes(after) == {"licence": "none", "foreground": "squares"}
    with pytest.raises(InputError, match="exists already"):
        save_probe(before, probe, after, "")


def test_a_probe_goes_with_a_file_without_its_backbone(tmp_path: Path) -> None:
    config = flat_config(backbone=BackboneConfig("efficientnet-lite0"), image_size=(64, 64))
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    save_model(CHMNet(config), before, backbone_weights="package")
    model = load_model(before)
    probe = fit_foreground(model, boxed(tmp_path, 10))
    save_probe(before, probe, after, "")
    loaded = load_model(after).foreground
    assert loaded is not None
    torch.testing.assert_close(loaded.bias, probe.bias, rtol=1e-3, atol=1e-3)


def test_refusals(tmp_path: Path, model: CHMNet) -> None:
    pictures = boxed(tmp_path, 10)
    with pytest.raises(InputError, match="at least 10 pictures, got 9"):
        fit_foreground(model, pictures[:9])
    everywhere = [picture._replace(boxes=((0.0, 0.0, 128.0, 128.0),)) for picture in pictures]
    with pytest.raises(InputError, match="both things and background"):
        fit_foreground(model, everywhere)


def test_background_inside_of_boxes_is_not_learned(
    tmp_path: Path, model: CHMNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes that reach far beyond their square on all sides; what counts is the square."""
    wide = [
        picture._replace(boxes=tuple(tuple(np.add(box, (-16, -16, 16, 16))) for box in picture.boxes))
        for picture in boxed(tmp_path, 16)
    ]
    shares = []
    for rounds in (1, 4):
        monkeypatch.setattr(foreground, "ROUNDS", rounds)
        found = fit_foreground(model, wide)
        right = 0.0
        for seed in range(100, 106):
            picture, box = scene(seed)
            with torch.inference_mode():
                features = model.features(View.of(picture).tensor((96, 96))[None])
            on = label_positions(BoxedPicture(Path(), (box,)), (128, 128), (6, 6)) == 1
            right += float(((found(features)[0] > 0.5) == on).float().mean()) / 6
        shares.append(right)
    assert shares[1] > shares[0] + 0.03, shares
