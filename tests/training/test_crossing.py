"""Pairs across the pairs of a batch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from chmnet.data.pairs import AnnotatedImage, Pair, side_words
from chmnet.errors import ConfigError
from chmnet.pictures import Picture, View
from chmnet.training.config import AugmentationConfig, SourceConfig
from chmnet.training.crossing import cross_pairs, in_groups
from chmnet.training.datasets import epoch_plan
from chmnet.training.initialise import build_model
from chmnet.training.loop import train
from chmnet.training.objective import Objective
from chmnet.training.sources import AnnotatedSource, ColouredView, TrainingPair
from tests.data import trees
from tests.training.tiny import tiny_config

NAMES = ("nose", "tail", "left ear", "right ear")


def make_pair(number: int, category: str = "cat", names: tuple[str, ...] = NAMES) -> TrainingPair:
    points = np.random.default_rng(number).uniform(-1, 1, (2, len(names) or 3, 2))
    views = [ColouredView(View(Picture(Path(name)))) for name in (f"{number}.jpg", "other.jpg")]
    return TrainingPair(views[0], views[1], points[0], points[1], category, names)


def test_points_of_one_name_meet() -> None:
    pairs = [make_pair(0), make_pair(1, names=NAMES[::-1]), make_pair(2, "dog"), make_pair(3, names=())]
    found = cross_pairs(pairs, most=100)
    assert found is not None
    assert list(zip(found.source.tolist(), found.target.tolist(), strict=True)) == [(0, 1), (0, 5), (1, 4), (4, 5)]
    np.testing.assert_allclose(found.source_points[0], pairs[0].source_points[::-1], rtol=1e-6)
    np.testing.assert_allclose(found.target_points[0], pairs[1].source_points, rtol=1e-6)
    assert found.mask.all()


def test_at_most_so_many_and_none_without_names() -> None:
    pairs = [make_pair(number) for number in range(6)]
    found = cross_pairs(pairs, most=7)
    assert found is not None
    assert len(found.mask) == 7
    assert cross_pairs([make_pair(0, names=()), make_pair(1, names=())], most=7) is None
    assert cross_pairs([make_pair(0, names=NAMES[:2]), make_pair(1, names=NAMES[:2])], most=7) is None


def test_mirrored_pictures_keep_what_points_look_like(tmp_path: Path) -> None:
    trees.make_image(tmp_path / "a.jpg", 40, 30)
    image = AnnotatedImage(tmp_path / "a.jpg", np.array([[10.0, 15.0], [20.0, 15.0]]))
    pair = Pair("a-a", "cat", image, image, ("left_eye", "nose"))
    source = AnnotatedSource(SourceConfig(), [pair], AugmentationConfig(flip=1.0, swap=1.0))
    made = source.pair(0, np.random.default_rng(0))
    assert side_words(made.names, made.mirrored) == (("right", "eye"), ("nose",))


def test_what_looks_alike_meets() -> None:
    pairs = [make_pair(0), replace(make_pair(1), mirrored=True)]
    found = cross_pairs(pairs, most=1)
    assert found is not None
    np.testing.assert_allclose(found.source_points[0], pairs[0].source_points[[0, 1, 3, 2]], rtol=1e-6)
    np.testing.assert_allclose(found.target_points[0], pairs[1].source_points, rtol=1e-6)


def test_groups_keep_all_pairs_and_put_categories_together() -> None:
    image = AnnotatedImage(Path("a.jpg"), np.zeros((3, 2)))
    pairs = [Pair(str(n), "cat" if n % 2 else "dog", image, image, ("a", "b", "c")) for n in range(16)]
    source = AnnotatedSource(SourceConfig(), pairs, AugmentationConfig())
    plan = epoch_plan([source], 0, 0)
    grouped = in_groups(plan, [source], 4, [0])
    assert sorted(grouped) == sorted(plan)
    assert grouped == in_groups(plan, [source], 4, [0])
    for start in range(0, 16, 4):
        assert len({pairs[index].category for _, index in grouped[start : start + 4]}) == 1


def test_loss_of_crossed_pairs_is_that_of_pairs() -> None:
    config = tiny_config(feature_loss=1.0, match_sigma=[1.0, 1.0])
    model = build_model(config).eval()
    features = torch.rand(4, model.backbone.channels, 3, 3)
    found = cross_pairs([make_pair(0), make_pair(1)], most=10)
    assert found is not None
    objective = Objective(model, config)
    levels = model.head.pyramid(features)
    halves = [levels._replace(levels=[level[part] for level in levels.levels]) for part in ([0, 1], [2, 3])]
    across = objective._loss_across(halves[0], halves[1], found)
    single = [
        objective._loss_of_features(
            *[levels._replace(levels=[level[one][None] for level in levels.levels]) for one in (here, there)],
            found.source_points[number][None],
            found.target_points[number][None],
            found.mask[number][None],
        )
        for number, (here, there) in enumerate(zip(found.source.tolist(), found.target.tolist(), strict=True))
    ]
    torch.testing.assert_close(across, torch.stack(single).mean())


def test_a_run_with_crossed_pairs(tmp_path: Path) -> None:
    root = trees.make_animal_pose(tmp_path)
    data = [{"dataset": "animal-pose", "count": 16}, {"dataset": "synthetic", "count": 8}]
    config = tiny_config(data=data, feature_loss=0.3, crossed_pairs=8, category_group=2)
    assert train(config.replace(epochs=1, validation=[]), tmp_path / "run", root).step == 6
    with pytest.raises(ConfigError, match="crossed_pairs are compared by their features"):
        tiny_config(crossed_pairs=8)
