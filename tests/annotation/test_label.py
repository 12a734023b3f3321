"""Keypoints for pairs that have none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from typer.testing import CliRunner

from chmnet import data
from chmnet.annotation.label import (
    LabellingConfig,
    Member,
    along_keypoints,
    crop,
    draw_pairs,
    label_pairs,
    scores_on_grid,
)
from chmnet.cli.main import app
from chmnet.config import BackboneConfig, TransferConfig
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.data.posing import MIRRORED
from chmnet.errors import ConfigError, InputError
from chmnet.features import FeatureCache, Features
from chmnet.metrics import inside
from chmnet.nn.chmnet import CHMNet
from chmnet.training.synthetic import Texture
from chmnet.weights import load_model, save_model
from tests.data import trees
from tests.flat import flat_config

LABELLING = LabellingConfig(minimum_confidence=0.5)


@pytest.fixture(scope="module")
def member() -> Member:
    """Nearest neighbours of random features: good enough to find a texture again."""
    torch.manual_seed(0)
    config = flat_config(
        backbone=BackboneConfig("efficientnet-lite0", ("blocks.4",)),
        transfer=TransferConfig(temperature=1e-3),
        matching="none",
        dimensions="4d-4d",
        channel_reduction=0,
        image_size=(240, 240),
    )
    return Member(CHMNet(config).eval())


@pytest.fixture
def moved(tmp_path: Path) -> Pair:
    """One texture on two grey pictures, at other places, with its boxes."""
    sides = []
    for name, size, corner in (("a.png", (200, 180), (20, 30)), ("b.png", (240, 200), (100, 60))):
        picture = Image.new("RGB", size, "grey")
        picture.paste(Texture(seed=3).picture((100, 120)), corner)
        picture.save(tmp_path / name)
        box = (float(corner[0]), float(corner[1]), corner[0] + 120.0, corner[1] + 100.0)
        sides.append(AnnotatedImage(tmp_path / name, np.zeros((0, 2)), box))
    return Pair("a-b", "texture", *sides)


def test_keypoints_are_found_in_pixels_of_the_whole_pictures(moved: Pair, member: Member) -> None:
    (found,) = label_pairs([moved], [member], LABELLING)
    assert 10 < len(found.source.keypoints) == len(found.target.keypoints) <= LABELLING.most_points
    errors = np.linalg.norm(found.target.keypoints - found.source.keypoints - (80, 30), axis=1)
    assert np.median(errors) < 6
    for side in (found.source, found.target):
        assert side.box is not None
        assert inside(side.keypoints, side.box).all()


def test_members_of_other_sizes_join(moved: Pair, member: Member) -> None:
    other = Member(member.model, side=160)
    assert len(label_pairs([moved], [member, other], LABELLING)) == 1
    with FeatureCache[Features]() as cache:
        scores = scores_on_grid(other.matcher("cpu", cache), crop(moved.source), crop(moved.target))
    assert scores.shape[2:] == (30, 30, 30, 30)
    assert scores.max().item() == pytest.approx(1)


def test_the_members_scores_are_filtered_once_when_they_are_added_up(moved: Pair, member: Member) -> None:
    filtered = CHMNet(member.model.config.replace(output={"mutual_filter": True})).eval()
    filtered.load_state_dict(member.model.state_dict())
    (plain,), (same,) = (label_pairs([moved], [one], LABELLING) for one in (member, Member(filtered)))
    np.testing.assert_array_equal(plain.target.keypoints, same.target.keypoints)


@pytest.mark.parametrize("mirrored", [False, True])
def test_keypoints_that_are_kept_get_matches_between_them(moved: Pair, member: Member, mirrored: bool) -> None:
    corners = np.array([[25.0, 35], [135, 35], [135, 125], [25, 125]])
    ends = corners + np.array([80, 30])
    if mirrored:
        picture = ImageOps.mirror(Image.open(moved.target.path))
        picture.save(moved.target.path)
        ends = ends * (-1, 1) + (picture.width, 0)
        box = (240 - 220.0, 60.0, 240 - 100.0, 160.0)
        moved = replace(moved, target=replace(moved.target, box=box), flags={MIRRORED: 1})
    source, target = replace(moved.source, keypoints=corners), replace(moved.target, keypoints=ends)
    pair = replace(moved, source=source, target=target)
    (found,) = label_pairs([pair], [member], replace(LABELLING, keep=True, minimum_matches=10))
    np.testing.assert_array_equal(found.source.keypoints[:4], corners)
    np.testing.assert_array_equal(found.target.keypoints[:4], ends)
    assert len(found.source.keypoints) > 10
    assert inside(found.source.keypoints[4:], (25.0, 35.0, 135.0, 125.0)).all()
    there = found.source.keypoints + np.array([80, 30])
    there = there * (-1, 1) + (240, 0) if mirrored else there
    assert np.median(np.linalg.norm(found.target.keypoints - there, axis=1)) < 6
    turned = replace(pair, target=replace(target, keypoints=ends[[2, 3, 0, 1]]))  # no match goes their way
    assert len(label_pairs([turned], [member], replace(LABELLING, keep=True))) == 0


def test_nothing_lies_between_keypoints_on_a_line() -> None:
    line = np.array([[-1.0, -1], [0, 0], [1, 1]])
    for keypoints in (line, line[:2], line[:0]):
        assert not along_keypoints(np.zeros((1, 2)), np.zeros((1, 2)), keypoints, keypoints).any()


def test_pairs_with_few_confident_matches_are_left_out(moved: Pair, member: Member) -> None:
    assert label_pairs([moved], [member], replace(LABELLING, minimum_matches=900)) == []


def test_without_boxes_the_whole_pictures_are_matched(moved: Pair) -> None:
    view = crop(replace(moved.source, box=None))
    assert view.size == (180, 200)
    np.testing.assert_allclose(view.to_picture(np.array([[1.0, 1.0]])), [[200, 180]])


def test_the_margin_ends_at_the_picture(moved: Pair) -> None:
    assert crop(replace(moved.source, box=(0.0, 0.0, 195.0, 170.0))).area == (0, 0, 200, 180)


def test_a_box_outside_of_its_picture(moved: Pair) -> None:
    with pytest.raises(InputError, match=r"box of .*a\.png lies outside"):
        crop(replace(moved.source, box=(500.0, 500.0, 520.0, 530.0)))


def test_no_members(moved: Pair) -> None:
    with pytest.raises(InputError, match="at least one model"):
        label_pairs([moved], [])


@pytest.mark.parametrize("field", ["minimum_confidence", "minimum_matches", "most_points"])
def test_numbers_out_of_range(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        LabellingConfig(**{field: -1})  # type: ignore[arg-type]


def side(name: str) -> AnnotatedImage:
    return AnnotatedImage(Path(name), np.zeros((0, 2)))


def test_drawn_pairs_are_new_and_of_one_category() -> None:
    pairs = [
        Pair("1", "cat", side("a"), side("b")),
        Pair("2", "cat", side("c"), side("d")),
        Pair("3", "dog", side("x"), side("y")),
    ]
    drawn = draw_pairs(pairs, 100, excluded={frozenset("ac")})
    assert {data.image_names(pair) for pair in drawn} == {frozenset(two) for two in ("ad", "bc", "bd")}
    assert {pair.category for pair in drawn} == {"cat"}
    assert len(draw_pairs(pairs, 2, excluded=set())) == 2


# ---------------------------------------------------------------- the command


def test_the_command_leaves_test_pairs_out(tmp_path: Path) -> None:
    root = trees.make_pf_pascal(tmp_path)
    for name in trees.PASCAL_IMAGES:  # something to match
        Texture(seed=3).picture((90, 120)).save(root / trees.PASCAL / "JPEGImages" / f"{name}.jpg")
    output = tmp_path / "labels.json"
    arguments = ["data", "label", "pf-pascal", "--root", str(root), "-o", str(output)]
    model = ("--model", "nearest-neighbour@160")
    result = CliRunner().invoke(app, [*arguments, *model])
    assert result.exit_code == 0, result.output
    assert "1 of 1 pairs" in result.output  # the others stand in the test list
    (pair,) = data.read_list(output, root)
    assert data.image_names(pair) == {f"{trees.PASCAL_IMAGES[number]}.jpg" for number in (0, 2)}
    kept = CliRunner().invoke(app, [*arguments, *model, "--keep", "--overwrite"])
    assert "posed alike" in str(kept.exception)  # those with keypoints all stand in the test list
    assert CliRunner().invoke(app, [*arguments, *model]).exit_code != 0  # the file exists
    drawn = CliRunner().invoke(app, [*arguments, *model, "--draw", "5", "--overwrite"])
    assert "none of 0 pairs" in str(drawn.exception)  # every other pair stands in a list


@pytest.mark.parametrize("word", ["nearest-neighbour@x", "nearest-neighbour@1"])
def test_the_command_refuses_sides_that_are_none(tmp_path: Path, word: str) -> None:
    root = trees.make_pf_pascal(tmp_path)
    arguments = ["data", "label", "pf-pascal", "--root", str(root), "-o", str(tmp_path / "out.json")]
    result = CliRunner().invoke(app, [*arguments, "--model", word])
    assert isinstance(result.exception, InputError)
    assert "16 to 1024 pixels" in str(result.exception)


def test_the_command_takes_backbone_weights_for_models_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = trees.make_pf_pascal(tmp_path)
    bare = tmp_path / "bare.safetensors"
    save_model(load_model("hough-prior"), bare, backbone_weights="somebody's")
    found: list[Member] = []
    monkeypatch.setattr("chmnet.annotation.label.label_pairs", lambda pairs, members, *rest: found.extend(members))
    arguments = ["data", "label", "pf-pascal", "--root", str(root), "-o", str(tmp_path / "out.json")]
    models = ["--model", f"{bare}@64", "--model", "chmnet-lite"]
    CliRunner().invoke(app, [*arguments, *models, "--backbone-weights", "package"])
    assert [member.side for member in found] == [64, None]
    assert "without its backbone" in str(CliRunner().invoke(app, [*arguments, *models]).exception)


def test_the_command_without_any_sure_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = trees.make_pf_pascal(tmp_path)
    monkeypatch.setattr("chmnet.annotation.label.label_pairs", lambda *arguments: [])
    arguments = ["data", "label", "pf-pascal", "--root", str(root), "-o", str(tmp_path / "out.json")]
    result = CliRunner().invoke(app, [*arguments, "--model", "nearest-neighbour"])
    assert isinstance(result.exception, InputError)
    assert "none of 1 pairs" in str(result.exception)
    assert not (tmp_path / "out.json").exists()


def test_the_command_keeps_keypoints_of_pairs_of_one_pose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = trees.make_animal_pose(tmp_path)
    asked: list[tuple[list[Pair], LabellingConfig]] = []
    monkeypatch.setattr(
        "chmnet.annotation.label.label_pairs", lambda pairs, members, config, *rest: asked.append((pairs, config))
    )
    arguments = ["data", "label", "animal-pose", "--root", str(root), "-o", str(tmp_path / "out.json"), "--keep"]
    CliRunner().invoke(app, [*arguments, "--model", "nearest-neighbour", "--option", "maximum_pairs=9"])
    ((pairs, config),) = asked
    assert config.keep
    assert 0 < len(pairs) <= 9
    assert all(len(pair.source.keypoints) for pair in pairs)
    wrong = CliRunner().invoke(app, [*arguments[:-1], "--option", "nonsense=5"])
    assert "has no option 'nonsense'" in str(wrong.exception)
    both = CliRunner().invoke(app, [*arguments, "--draw", "3"])
    assert isinstance(both.exception, InputError)
    assert "use --keep or --draw" in str(both.exception)


def test_the_command_labels_no_test_pairs(tmp_path: Path) -> None:
    root = trees.make_pf_willow(tmp_path)
    arguments = ["data", "label", "pf-willow", "--root", str(root), "-o", str(tmp_path / "out.json")]
    result = CliRunner().invoke(app, [*arguments, "--split", "test"])
    assert isinstance(result.exception, InputError)
    assert "test pairs are not labelled" in str(result.exception)
