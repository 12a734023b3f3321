"""Where training pairs come from, and what never gets in."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chmnet import data
from chmnet.data.making_pairs import divide
from chmnet.errors import ConfigError, InputError
from chmnet.pictures import Picture, View
from chmnet.training.config import AugmentationConfig, SourceConfig, TrainingConfig
from chmnet.training.datasets import epoch_plan, open_sources, without_test_pairs
from chmnet.training.sources import (
    LEAST_EXTENT,
    SMALLEST,
    AnnotatedSource,
    ColouredView,
    ReducedView,
    jitter_colours,
    random_crop,
)
from chmnet.training.synthetic import SyntheticSource, Texture, WarpedView
from tests.data import trees

GENERATOR = np.random.default_rng(0)


def open_one(root: Path | None = None, **fields: object) -> AnnotatedSource | SyntheticSource:
    (source,) = open_sources([SourceConfig.from_dict(fields)], root, seed=0)
    assert isinstance(source, AnnotatedSource | SyntheticSource)
    return source


# ---------------------------------------------------------------- test data stays out


def test_no_test_pair_of_pf_pascal_gets_in(tmp_path: Path) -> None:
    root = trees.make_pf_pascal(tmp_path)  # its training pairs with keypoints are all reversed test pairs
    assert len(data.load_pairs("pf-pascal", root, "train")) > 0
    with pytest.raises(InputError, match="pf-pascal has no pairs left for its split train"):
        open_one(root, dataset="pf-pascal")


def test_other_pairs_of_pf_pascal_stay(tmp_path: Path) -> None:
    root = trees.make_pf_pascal(tmp_path)
    path = root / trees.PASCAL_LIST
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[2]]) + "\n")  # the test list without the pair that is in training
    assert len(open_one(root, dataset="pf-pascal")) == 3  # the pair, its flip and its repeat


def test_the_official_list_of_pf_pascal_stays_whole(tmp_path: Path) -> None:
    root = trees.make_pf_pascal(tmp_path)
    source = open_one(root, dataset="pf-pascal", official=True)
    assert len(source) == len(data.load_pairs("pf-pascal", root, "train"))
    assert source.describe()["official"] is True


@pytest.mark.parametrize("fields", [{"dataset": "coco"}, {"dataset": "pf-pascal", "split": "val"}])
def test_only_the_training_list_of_pf_pascal_is_official(fields: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="official is for the training list of pf-pascal"):
        SourceConfig(official=True, **fields)


@pytest.mark.slow
def test_no_test_pair_of_the_real_pf_pascal_gets_in(shared: Path) -> None:
    root = shared / "datasets"
    pairs = data.load_pairs("pf-pascal", root, "train")
    kept = without_test_pairs(pairs, root)
    test = {data.image_names(pair) for pair in data.load_pairs("pf-pascal", root, "test")}
    assert 0 < len(kept) < len(pairs)
    assert not test & {data.image_names(pair) for pair in kept}


def test_animal_pose_without_pictures_of_pf_pascals_test(tmp_path: Path) -> None:
    source = open_one(trees.make_animal_pose(tmp_path), dataset="animal-pose", maximum_pairs=500)
    assert isinstance(source, AnnotatedSource)
    used = {side.path.name for pair in source.pairs for side in (pair.source, pair.target)}
    assert used
    assert not used & {f"2009_{number:06d}.jpg" for number in range(7)}  # 0 to 3 test, 4 to 6 validation


@pytest.mark.parametrize("dataset", ["pf-pascal", "pf-willow", "animal-pose", "spair-71k", "coco"])
def test_test_splits_are_refused(dataset: str) -> None:
    with pytest.raises(ConfigError, match=f"the test split of {dataset} is never training data"):
        TrainingConfig.from_dict({"data": [{"dataset": dataset, "split": "test"}]})


# ---------------------------------------------------------------- each source


def test_spair_and_coco(tmp_path: Path) -> None:
    assert len(open_one(trees.make_spair(tmp_path / "a"), dataset="spair-71k")) == 1
    file = trees.make_coco(tmp_path / "b") / trees.COCO
    assert len(open_one(None, dataset="coco", path=str(file))) > 1


def test_coco_divided_into_training_and_held_out_pictures(tmp_path: Path) -> None:
    file = trees.make_coco(tmp_path, images=40) / trees.COCO
    used = {}
    for part in ("training", "held-out"):
        source = open_one(None, dataset="coco", path=str(file), images=part)
        assert isinstance(source, AnnotatedSource)
        used[part] = {side.path for pair in source.pairs for side in (pair.source, pair.target)}
        assert source.describe()["images_used"] == part
    assert not used["training"] & used["held-out"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dataset": "pf-pascal"}, "where is pf-pascal. Name its folder with --root or CHMNET_DATA"),
        ({"dataset": "spair-71k", "path": "none"}, "none"),
        ({"dataset": "coco", "path": "none.json"}, "there is no none.json"),
        ({"dataset": "synthetic", "path": "none"}, "there is no folder none with pictures"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sources_that_are_not_there(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_one(None, **fields)


def test_folder_without_pictures(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(InputError, match="holds no pictures"):
        open_one(None, dataset="synthetic", path=str(tmp_path))
    trees.make_image(tmp_path / "only.gif")  # any of the endings that `chmnet propagate` knows
    assert len(open_one(None, dataset="synthetic", path=str(tmp_path), views=3)) == 6
    with pytest.raises(InputError, match="1 pictures cannot be divided"):
        open_one(None, dataset="synthetic", path=str(tmp_path), images="training")


def test_division_is_fixed_and_disjoint() -> None:
    names = [str(number) for number in range(30)]
    assert sorted(divide(names, "training") + divide(names, "held-out")) == sorted(names)
    assert len(divide(names, "held-out")) == 3
    assert divide(names, "all") == names


# ---------------------------------------------------------------- pairs


def test_synthetic_pairs_have_exact_ground_truth() -> None:
    source = open_one(dataset="synthetic", points=50, views=3)
    for index in range(len(source)):
        pair = source.pair(index, np.random.default_rng(index))
        assert isinstance(pair.source, WarpedView)
        assert isinstance(pair.target, WarpedView)
        assert pair.source.picture == pair.target.picture
        assert pair.source != pair.target
        assert len(pair.source_points) > 10
        seen = pair.source.warp(pair.source_points), pair.target.warp(pair.target_points)
        np.testing.assert_allclose(*seen, atol=1e-5)  # the same point of the picture
        assert np.abs(pair.target_points).max() < 1
        assert np.abs(seen[0]).max() < 1  # not in the mirrored margin


def test_training_and_validation_have_other_warps() -> None:
    config = [SourceConfig(dataset="synthetic")]
    views = [open_sources(config, None, seed)[0].pair(0, np.random.default_rng(0)).source for seed in (0, 1)]
    assert views[0] != views[1]


def annotated(tmp_path: Path, **chances: float) -> AnnotatedSource:
    root = trees.make_spair(tmp_path)
    return AnnotatedSource(
        SourceConfig(dataset="spair-71k"), data.load_pairs("spair-71k", root), AugmentationConfig(**chances)
    )


def test_annotated_pair_without_changes(tmp_path: Path) -> None:
    pair = annotated(tmp_path).pair(0, GENERATOR)
    assert isinstance(pair.source, ColouredView)
    assert pair.source.view.picture.path is not None
    assert pair.source.view.picture.path.name == "2007_000001.jpg"
    assert not pair.source.view.mirrored
    np.testing.assert_allclose(pair.source_points[0], [7 / 20 - 1, 8 / 15 - 1])


def test_swap_and_flip(tmp_path: Path) -> None:
    plain = annotated(tmp_path).pair(0, GENERATOR)
    swapped = annotated(tmp_path, swap=1).pair(0, GENERATOR)
    assert swapped.source == plain.target
    np.testing.assert_array_equal(swapped.target_points, plain.source_points)
    flipped = annotated(tmp_path, flip=1).pair(0, GENERATOR)
    assert isinstance(flipped.target, ColouredView)
    assert flipped.target.view.mirrored
    np.testing.assert_allclose(flipped.target_points, plain.target_points * (-1, 1))


def test_flip_of_the_list_and_of_the_augmentation_undo_each_other(tmp_path: Path) -> None:
    pairs = data.load_pairs("pf-pascal", trees.make_pf_pascal(tmp_path), "train")
    flags = [bool(pair.flags.get("flip")) for pair in pairs]
    assert {True, False} == set(flags)
    source = AnnotatedSource(SourceConfig(), pairs, AugmentationConfig(flip=1))
    for index, flag in enumerate(flags):
        view = source.pair(index, GENERATOR).source
        assert isinstance(view, ColouredView)
        assert view.view.mirrored != flag


def test_crop_moves_points_with_the_picture(tmp_path: Path) -> None:
    source = annotated(tmp_path, crop=1, colour=1, flip=0.5)
    areas = set()
    for seed in range(10):
        pair = source.pair(0, np.random.default_rng(seed))
        assert isinstance(pair.source, ColouredView)
        assert pair.source.view.area is not None
        assert pair.source.colour_seed is not None
        areas.add(pair.source.view.area)
        left, top, right, bottom = pair.source.view.area
        assert 0 <= left < right <= trees.WIDTH
        assert 0 <= top < bottom <= trees.HEIGHT
        points = pair.source_points * ((-1, 1) if pair.source.view.mirrored else (1, 1))
        in_file = (points + 1) / 2 * (right - left, bottom - top) + (left, top)
        np.testing.assert_allclose(in_file[0], [7, 8], atol=1e-9)
        assert np.abs(pair.source_points).max() <= 1
        assert pair.source.tensor((16, 16)).shape == (3, 16, 16)
    assert len(areas) > 3


@pytest.mark.parametrize("side", [0.37, 0.5, 0.803, 1.0])
def test_reduced_pictures_take_their_points_with_them_exactly(side: float) -> None:
    ramp = np.zeros((200, 200, 3), np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(200), np.arange(200)[:, None]  # each pixel says where it is
    view, blue = ColouredView(View.of(ramp)), ColouredView(View.of(np.full_like(ramp, (0, 0, 255))))
    for corner in ((0.0, 0.0), (1.0, 0.25), (0.337, 0.611)):
        reduced = ReducedView(view, blue, side, corner)
        drawn = 255 * reduced.tensor((120, 150)).numpy()
        rows, columns = (drawn[2] == 0).nonzero()
        assert len(rows) > 0.97 * side**2 * 120 * 150 - 300
        points = np.stack([drawn[0] + 0.5, drawn[1] + 0.5], axis=-1)[rows, columns] / 100 - 1
        inner = np.abs(points).max(axis=1) < 0.9
        centres = np.stack([(columns + 0.5) / 75 - 1, (rows + 0.5) / 60 - 1], axis=-1)
        np.testing.assert_allclose(reduced.place(points)[inner], centres[inner], atol=0.006 * side + 1e-3)


def test_pictures_are_reduced_on_others_of_another_category(tmp_path: Path) -> None:
    root = trees.make_animal_pose(tmp_path)
    pairs = data.load_pairs("animal-pose", root, "train")
    assert {pair.category for pair in pairs} == {"cat", "dog"}
    source = AnnotatedSource(SourceConfig(dataset="animal-pose"), pairs, AugmentationConfig(reduce=1))
    plain = AnnotatedSource(SourceConfig(dataset="animal-pose"), pairs, AugmentationConfig())
    categories = {side.path: pair.category for pair in pairs for side in (pair.source, pair.target)}
    for seed in range(8):
        made = source.pair(0, np.random.default_rng(seed))
        assert isinstance(made.source, ReducedView)
        assert SMALLEST <= made.source.side <= 1
        behind = made.source.behind.view.picture.path
        assert behind is not None
        assert categories[behind] != pairs[0].category
        whole = plain.pair(0, np.random.default_rng(seed))
        np.testing.assert_allclose(made.source_points, made.source.place(whole.source_points))
        assert np.abs(made.source_points).max() <= 1


def test_reduced_keypoints_keep_an_extent(tmp_path: Path) -> None:
    pairs = data.load_pairs("animal-pose", trees.make_animal_pose(tmp_path), "train")

    def smallest(width: float) -> float:
        points = np.array([[-width / 2, 0.0], [width / 2, 0.0]])
        source = AnnotatedSource(SourceConfig(), pairs, AugmentationConfig(reduce=1))
        view = ColouredView(View.of(np.zeros((9, 9), dtype=np.uint8)))
        made = [source._reduce(view, points, "cat", np.random.default_rng(seed)) for seed in range(200)]
        return min(float(np.ptp(each.place(points), axis=0).max()) / 2 for each in made)

    assert smallest(2.0) == pytest.approx(SMALLEST, rel=0.05)  # of the frame, whose sides are 2 long
    assert smallest(0.8) == pytest.approx(LEAST_EXTENT, rel=0.05)
    assert smallest(0.2) == pytest.approx(0.1)  # already less: stays as it is


def test_a_single_category_cannot_be_reduced(tmp_path: Path) -> None:
    pairs = [replace(pair, category="cat") for pair in data.load_pairs("spair-71k", trees.make_spair(tmp_path))]
    views = [replace(pair, category=f"cat({number})") for number, pair in enumerate(pairs)]
    for same in (pairs, views):
        with pytest.raises(InputError, match="spair-71k has one category here; set reduce to 0"):
            AnnotatedSource(SourceConfig(dataset="spair-71k"), same, AugmentationConfig(reduce=1))


def test_one_pair_of_another_category_is_found_by_one_draw(tmp_path: Path) -> None:
    first, second = data.load_pairs("pf-pascal", trees.make_pf_pascal(tmp_path))[:2]
    pairs = [replace(first, category="cat")] * 999 + [replace(second, category="dog")]
    source = AnnotatedSource(SourceConfig(), pairs, AugmentationConfig(reduce=1))
    view, points = ColouredView(View.of(np.zeros((9, 9), dtype=np.uint8))), np.zeros((0, 2))
    generator, counted = np.random.default_rng(0), np.random.default_rng(0)
    reduced = source._reduce(view, points, "cat", generator)
    assert reduced.behind.view.picture.path == second.source.path
    counted.integers(1)
    counted.uniform(size=3)
    assert generator.uniform() == counted.uniform()


def test_a_picture_is_decoded_to_be_drawn_and_never_for_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    decode = Picture._decode

    def counted(self: Picture) -> Image.Image:
        decoded.append(self.path)
        return decode(self)

    monkeypatch.setattr(Picture, "_decode", counted)
    source = annotated(tmp_path, crop=1, flip=0.5)
    pairs = [source.pair(0, np.random.default_rng(seed)) for seed in range(3)]
    assert decoded == []
    for pair in pairs:
        pair.source.tensor((8, 8))
    assert len(decoded) == 3  # and not kept: a set of photographs does not fit into memory


# ---------------------------------------------------------------- random crops


@pytest.mark.parametrize(
    "keypoints",
    [
        np.random.default_rng(0).uniform(0, (64, 48), (5, 2)),
        np.array([[30.5, 20.25], [31.0, 21.0]]),
        np.array([[64.0, 48.0]]),
    ],
    ids=["spread", "close", "corner"],
)
def test_random_crop_holds_every_keypoint(keypoints: np.ndarray) -> None:
    generator = np.random.default_rng(0)
    areas = {random_crop((48, 64), keypoints, generator) for _ in range(50)}
    for left, top, right, bottom in areas:
        assert 0 <= left < right <= 64
        assert 0 <= top < bottom <= 48
        assert (keypoints >= (left, top)).all()
        assert (keypoints <= (right, bottom)).all()
    assert len(areas) > 10


@pytest.mark.parametrize("keypoints", [np.zeros((0, 2)), np.array([[-5.0, 99.0]])], ids=["none", "outside"])
def test_random_crop_of_odd_keypoints(keypoints: np.ndarray) -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        left, top, right, bottom = random_crop((48, 64), keypoints, generator)
        assert 0 <= left < right <= 64
        assert 0 <= top < bottom <= 48


# ---------------------------------------------------------------- colours

COLOURFUL = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))


def difference(first: Image.Image, second: Image.Image) -> np.ndarray:
    return np.abs(np.asarray(first).astype(int) - np.asarray(second))


def test_jitter_changes_the_colours() -> None:
    after = jitter_colours(COLOURFUL, np.random.default_rng(0))
    assert after.size == COLOURFUL.size
    assert difference(after, COLOURFUL).mean() > 3


def test_jitter_is_the_generators() -> None:
    first, again, other = (jitter_colours(COLOURFUL, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert difference(first, again).max() == 0
    assert difference(first, other).max() > 0


def test_no_jitter_is_nearly_no_change() -> None:
    after = jitter_colours(COLOURFUL, np.random.default_rng(0), 0, 0, 0, 0)
    assert difference(after, COLOURFUL).max() <= 6  # only the conversion to hue and back rounds


@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        ({"brightness": -0.1}, "brightness must be from 0 to 1, got -0.1"),
        ({"contrast": 1.5}, "contrast must be from 0 to 1, got 1.5"),
        ({"hue": 0.6}, "hue must be from 0 to 0.5, got 0.6"),
    ],
)
def test_jitter_refuses(amounts: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        jitter_colours(COLOURFUL, np.random.default_rng(0), **amounts)


def test_colours_change_but_nothing_moves(tmp_path: Path) -> None:
    path = tmp_path / "texture.png"
    Texture(1).picture((96, 128)).save(path)
    view = View(Picture(path))
    plain, coloured, again = (ColouredView(view, seed).tensor((96, 128)) for seed in (None, 3, 3))
    assert plain.shape == coloured.shape == (3, 96, 128)
    assert (plain - coloured).abs().max() > 0.02
    assert (coloured - again).abs().max() == 0
    assert (plain - view.tensor((96, 128))).abs().max() == 0


def test_views_of_photographs_are_keys(tmp_path: Path) -> None:
    pairs = [annotated(tmp_path, flip=flip).pair(0, GENERATOR) for flip in (0, 0, 1)]
    assert pairs[0].source == pairs[1].source
    assert len({view for pair in pairs for view in (pair.source, pair.target)}) == 4


# ---------------------------------------------------------------- epochs


def test_plan_counts_and_weights() -> None:
    config = SourceConfig(dataset="synthetic", views=3)
    pictures = [Texture(0), Texture(1)]  # 12 pairs
    sources = [
        SyntheticSource(config.replace(count=30), pictures, seed=0),
        SyntheticSource(config.replace(count=5), pictures, seed=0),
        SyntheticSource(config, pictures, seed=0),
    ]
    plan = epoch_plan(sources, seed=0, epoch=0)
    assert [sum(number == wanted for number, _ in plan) for wanted in range(3)] == [30, 5, 100]
    drawn = [index for number, index in plan if number == 0]
    assert {drawn.count(index) for index in range(12)} == {2, 3}  # no repeat before all had their turn
    assert plan == epoch_plan(sources, seed=0, epoch=0)
    assert plan != epoch_plan(sources, seed=0, epoch=1)
    assert plan != epoch_plan(sources, seed=1, epoch=0)


def test_weight_of_annotated_pairs(tmp_path: Path) -> None:
    source = annotated(tmp_path)
    source.config = SourceConfig(dataset="spair-71k", weight=2.5)
    assert len(epoch_plan([source], 0, 0)) == 5


def test_description_for_the_record(tmp_path: Path) -> None:
    described = annotated(tmp_path).describe()
    assert described["dataset"] == "spair-71k"
    assert (described["pairs"], described["images"]) == (2, 3)
    assert len(described["pairs_sha256"]) == 64
    assert open_one(dataset="synthetic").describe()["pictures"] == 20


# ---------------------------------------------------------------- lists of pairs


def test_a_list_is_a_source_without_test_pairs(tmp_path: Path) -> None:
    root = trees.make_pf_pascal(tmp_path)
    pairs = data.load_pairs("pf-pascal", root, "test")
    assert len(pairs) == 2
    path = tmp_path / "pairs.json"
    data.write_list(pairs, path, root)
    with pytest.raises(InputError, match="list has no pairs left"):
        open_one(root, dataset="list", path=str(path))
    test_list = root / trees.PASCAL_LIST
    test_list.write_text("\n".join(test_list.read_text().splitlines()[:2]) + "\n")
    assert len(open_one(root, dataset="list", path=str(path))) == 1


def test_a_list_of_pictures_without_pf_pascal(tmp_path: Path) -> None:
    root = trees.make_pf_willow(tmp_path)
    data.write_list(data.load_pairs("pf-willow", root), tmp_path / "pairs.json", root)
    assert len(open_one(root, dataset="list", path=str(tmp_path / "pairs.json"))) == 2


def test_pictures_of_a_list_may_lie_in_a_folder_below_the_root(tmp_path: Path) -> None:
    root = trees.make_pf_willow(tmp_path / "willow")
    data.write_list(data.load_pairs("pf-willow", root), tmp_path / "pairs.json", root)
    folder = str(root.relative_to(tmp_path))
    assert len(open_one(tmp_path, dataset="list", path=str(tmp_path / "pairs.json"), folder=folder)) == 2
    with pytest.raises(InputError, match="image"):
        open_one(tmp_path, dataset="list", path=str(tmp_path / "pairs.json"))


def test_a_list_needs_a_path_and_a_root(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a list of pairs needs a path"):
        TrainingConfig(data=(SourceConfig(dataset="list"),))
    with pytest.raises(InputError, match=r"where is what pairs.json lists\?"):
        open_one(None, dataset="list", path=str(tmp_path / "pairs.json"))
