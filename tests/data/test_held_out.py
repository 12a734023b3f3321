"""Keypoints that nothing is trained on: read from a file, and scored alone."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from chmnet.cli.main import app
from chmnet.data import load_pairs
from chmnet.data.held_out import EVERY, check_names, choose_keypoints, read_held_out
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.errors import ConfigError, InputError
from chmnet.training.config import SourceConfig
from chmnet.training.datasets import open_sources
from tests.data import trees

NAMES = ("nose", "ear", "tail")
POINTS = np.arange(6.0).reshape(3, 2)
PAIR = Pair("a-b", "cat", AnnotatedImage(Path("a.jpg"), POINTS), AnnotatedImage(Path("b.jpg"), POINTS + 9), NAMES)


def test_lists_hold_names_by_category(tmp_path: Path) -> None:
    file = tmp_path / "held-out.toml"
    file.write_text('cat = ["tail"]\nevery-category = ["ear"]\n')
    assert read_held_out(file) == {"cat": {"tail"}, EVERY: {"ear"}}


def test_wrong_lists_of_held_out_keypoints(tmp_path: Path) -> None:
    file = tmp_path / "held-out.toml"
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*held-out\.toml"):
        read_held_out(str(file))
    file.write_text('cat = "tail"\n')
    with pytest.raises(ConfigError, match="cat must be a list of names"):
        read_held_out(str(file))


def test_held_out_keypoints_and_the_others_are_complementary() -> None:
    names = {"cat": frozenset(["tail"]), EVERY: frozenset(["ear"]), "dog": frozenset(["nose"])}
    only, others = (choose_keypoints(PAIR, names, held_out) for held_out in (True, False))
    assert only.keypoint_names == ("ear", "tail")
    assert others.keypoint_names == ("nose",)
    np.testing.assert_array_equal(only.target.keypoints, POINTS[1:] + 9)
    np.testing.assert_array_equal(others.source.keypoints, POINTS[:1])


def test_keypoints_without_names_cannot_be_held_out() -> None:
    with pytest.raises(InputError, match="its keypoints have no names"):
        choose_keypoints(Pair("a-b", "cat", PAIR.source, PAIR.target), {}, held_out=True)


def test_names_that_no_keypoint_has_are_refused() -> None:
    check_names([PAIR], {"cat": frozenset(["tail"]), EVERY: frozenset(["ear"]), "car": frozenset(["wheel"])})
    with pytest.raises(InputError, match="'cat' has none called 'tial'; it has 'ear', 'nose', 'tail'"):
        check_names([PAIR], {"cat": frozenset(["tail", "tial"])})
    with pytest.raises(InputError, match=f"'{EVERY}' has none called 'wing'"):
        check_names([PAIR], {EVERY: frozenset(["wing"])}, all_categories=True)
    for every in (False, True):
        with pytest.raises(
            InputError, match="of 'car' are held out, but there is no such category; there are 'cat'"
        ):
            check_names([PAIR], {"car": frozenset(["wheel"])}, all_categories=every)
    with pytest.raises(InputError, match="nothing here has annotated keypoints; leave the list out"):
        check_names([], {"cat": frozenset(["tail"])}, all_categories=True)


def test_names_that_other_categories_have_are_known() -> None:
    drawn = replace(PAIR, category="dog", keypoint_names=("nose", "ear"))  # no drawn pair of dogs shows a tail
    check_names([PAIR, drawn], {"dog": frozenset(["tail"])})
    with pytest.raises(InputError, match="'dog' has none called 'wing'; it has 'ear', 'nose'"):
        check_names([PAIR, drawn], {"dog": frozenset(["wing"])})


def test_names_that_no_drawn_pair_shows_are_known(tmp_path: Path) -> None:
    root = trees.make_animal_pose(tmp_path)
    options = {"minimum_common": 1, "maximum_pairs": 1}
    (pair,) = load_pairs("animal-pose", root, "test", **options)
    (unseen,) = set(trees.ANIMAL_NAMES) - set(pair.keypoint_names)
    file = tmp_path / "held-out.toml"
    file.write_text(f'{pair.category} = ["{unseen}", "{pair.keypoint_names[0]}"]\n')
    command = ["evaluate", "--dataset", "animal-pose", "--root", str(root), "--model", "nearest-neighbour"]
    command += ["--set", "image_size=[64, 64]", "--threshold", "bbox"]
    for name, number in options.items():
        command += ["--option", f"{name}={number}"]
    result = CliRunner().invoke(app, [*command, "--only-keypoints", str(file)])
    assert result.exit_code == 0, (result.output, result.exception)
    sources = [SourceConfig(dataset="animal-pose", split="test", **options)]
    assert len(open_sources(sources, root, 0, held_out=read_held_out(file))) == 1


def test_the_command_scores_held_out_keypoints_alone(tmp_path: Path) -> None:
    root = trees.make_animal_pose(tmp_path)
    file = tmp_path / "held-out.toml"
    file.write_text(f'every-category = ["{trees.ANIMAL_NAMES[0]}"]\n')
    command = ["evaluate", "--dataset", "animal-pose", "--root", str(root), "--model", "nearest-neighbour"]
    command += ["--set", "image_size=[64, 64]", "--threshold", "bbox", "--option", "maximum_pairs=3"]
    for option, word in (("--only-keypoints", "only"), ("--without-keypoints", "without")):
        output = tmp_path / f"{word}.json"
        result = CliRunner().invoke(app, [*command, option, str(file), "--json", str(output)])
        assert result.exit_code == 0, (result.output, result.exception)
        assert f"keypoints: {word} those of held-out.toml" in result.output
        assert json.loads(output.read_text())["keypoints"] > 0
    assert "keypoints:" not in CliRunner().invoke(app, command).output
    both = CliRunner().invoke(app, [*command, "--only-keypoints", str(file), "--without-keypoints", str(file)])
    assert isinstance(both.exception, InputError)
    for option in ("--only-keypoints", "--without-keypoints"):
        file.write_text('every-category = ["wing"]\n')
        misspelt = CliRunner().invoke(app, [*command, option, str(file)])
        assert "has none called 'wing'" in str(misspelt.exception)
    file.write_text('catt = ["wheel"]\n')
    misspelt = CliRunner().invoke(app, [*command, "--only-keypoints", str(file)])
    assert "keypoints of 'catt' are held out, but there is no such category" in str(misspelt.exception)
    file.write_text("cat = []\n")
    nothing = CliRunner().invoke(app, [*command, "--only-keypoints", str(file)])
    assert "no pairs with the keypoints" in str(nothing.exception)


def test_an_unknown_part_of_the_images(tmp_path: Path) -> None:
    root = trees.make_coco(tmp_path)
    with pytest.raises(InputError, match="images must be all, training or held-out, got 'some'"):
        load_pairs("coco", root, "test", images="some")
