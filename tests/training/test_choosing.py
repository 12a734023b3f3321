"""What gets into training by configuration, and what stays out."""

from pathlib import Path

import numpy as np
import pytest

from chmnet.data.held_out import EVERY
from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.data.posing import MIRRORED
from chmnet.errors import ConfigError, InputError
from chmnet.training.choosing import balanced_order, below_root, choose_pairs
from chmnet.training.config import AugmentationConfig, SourceConfig
from chmnet.training.datasets import epoch_plan, open_sources
from chmnet.training.sources import AnnotatedSource, ColouredView
from chmnet.training.synthetic import Texture
from tests.data import trees

NAMES = ("nose", "tail", "ear", "paw")


def make_pair(name: str, category: str = "cat", names: tuple[str, ...] = NAMES) -> Pair:
    sides = [AnnotatedImage(Path(f"{one}.jpg"), np.arange(8.0).reshape(4, 2)) for one in name.split("-")]
    return Pair(name, category, sides[0], sides[1], names)


def test_pictures_to_avoid_stay_out(tmp_path: Path) -> None:
    trees.make_image(tmp_path / "test-pictures" / "deep" / "b.jpg")
    config = SourceConfig(avoid=("test-pictures",))
    kept = choose_pairs([make_pair("a-b"), make_pair("b-c"), make_pair("a-c")], config, tmp_path)
    assert [pair.name for pair in kept] == ["a-c"]
    with pytest.raises(InputError, match="there is no folder elsewhere with pictures to avoid"):
        choose_pairs([make_pair("a-b")], SourceConfig(avoid=("elsewhere",)), tmp_path)


def test_held_out_keypoints_stay_out() -> None:
    hidden = {"cat": frozenset(["tail"]), EVERY: frozenset(["ear"])}
    pairs = [make_pair("a-b"), make_pair("a-b", "dog")]
    cat, dog = choose_pairs(pairs, SourceConfig(minimum_common=2), None, hidden)
    assert cat.keypoint_names == ("nose", "paw")
    assert dog.keypoint_names == ("nose", "tail", "paw")
    np.testing.assert_array_equal(cat.target.keypoints, [[0, 1], [6, 7]])
    assert choose_pairs([make_pair("a-b")], SourceConfig(minimum_common=3), None, hidden) == []
    with pytest.raises(InputError, match="its keypoints have no names"):
        choose_pairs([make_pair("a-b", names=())], SourceConfig(), None, hidden)


def test_misspelt_keypoints_are_not_held_out_in_silence(tmp_path: Path) -> None:
    root = trees.make_animal_pose(tmp_path)
    configs = [SourceConfig(dataset="animal-pose"), SourceConfig(dataset="synthetic")]
    name = trees.ANIMAL_NAMES[0]
    assert len(open_sources(configs, root, 0, held_out={"cat": frozenset([name])})) == 2
    with pytest.raises(InputError, match="'cat' has none called 'tial'"):
        open_sources(configs, root, 0, held_out={"cat": frozenset([name, "tial"])})
    with pytest.raises(InputError, match="of 'catt' are held out, but there is no such category"):
        open_sources(configs, root, 0, held_out={"catt": frozenset([name])})


def test_paths_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    assert below_root("inside", tmp_path) == tmp_path / "inside"
    assert below_root("nowhere", tmp_path) == Path("nowhere")
    assert below_root("inside", None) == Path("inside")


def test_every_category_is_drawn_alike() -> None:
    categories = ["cat"] * 50 + ["dog"] * 5 + ["cow"]
    order = balanced_order(categories, 60, [0, 1])
    counts = {name: sum(categories[number] == name for number in order) for name in set(categories)}
    assert set(counts.values()) == {20}
    assert sorted(set(order) & set(range(50, 55))) == list(range(50, 55))  # all dogs before one comes twice
    assert order == balanced_order(categories, 60, [0, 1]) != balanced_order(categories, 60, [0, 2])


def test_plans_are_balanced_where_asked() -> None:
    pairs = [make_pair(f"a-{number}", "cat" if number else "dog") for number in range(9)]
    source = AnnotatedSource(SourceConfig(count=8, balanced=True), pairs, AugmentationConfig())
    assert sum(index == 0 for _, index in epoch_plan([source], 0, 0)) == 4
    with pytest.raises(ConfigError, match="balanced needs a count"):
        SourceConfig(balanced=True)


def test_mirrored_targets_are_drawn_mirrored(tmp_path: Path) -> None:
    trees.make_image(tmp_path / "a.jpg", 40, 30)
    image = AnnotatedImage(tmp_path / "a.jpg", np.array([[10.0, 15.0]]))
    pair = Pair("a-a", "cat", image, image, flags={MIRRORED: 1})
    made = AnnotatedSource(SourceConfig(), [pair], AugmentationConfig()).pair(0, np.random.default_rng(0))
    assert isinstance(made.source, ColouredView)
    assert isinstance(made.target, ColouredView)
    assert (made.source.view.mirrored, made.target.view.mirrored) == (False, True)
    np.testing.assert_allclose(made.target_points, made.source_points * (-1, 1))


def test_one_view_twice() -> None:
    (source,) = open_sources([SourceConfig(dataset="synthetic", identity=1.0)], None, seed=0)
    pair = source.pair(3, np.random.default_rng(0))
    assert pair.source == pair.target
    assert not isinstance(pair.source, Texture)
    np.testing.assert_allclose(pair.source_points, pair.target_points, atol=1e-5)
