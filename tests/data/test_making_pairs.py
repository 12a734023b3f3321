"""Pairs made from annotated images: Animal-Pose, COCO, and the lists they can be written to."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from chmnet.data import Pair, load_pairs, read_list, write_list
from chmnet.data.animal_pose import load_instances, split_images
from chmnet.data.coco import find_annotations
from chmnet.data.making_pairs import Instance, make_pairs, share_out
from chmnet.errors import InputError

from . import trees


def names(pairs: list[Pair]) -> list[str]:
    return [pair.name for pair in pairs]


def images(pairs: list[Pair]) -> set[str]:
    return {side.path.name for pair in pairs for side in (pair.source, pair.target)}


def instance(name: str, visible: list[int], category: str = "cat", image: str = "") -> Instance:
    keypoints = np.full((6, 2), np.nan)
    keypoints[visible] = [[number, number + 1] for number in visible]
    return Instance(name, category, Path(image or name), keypoints, tuple("abcdef"))


# ---------------------------------------------------------------- the helper


def test_only_keypoints_that_both_show() -> None:
    pairs = make_pairs([instance("1", [0, 1, 2, 3]), instance("2", [1, 2, 3, 4]), instance("3", [0, 4, 5])])
    assert len(pairs) == 1
    assert pairs[0].keypoint_names == ("b", "c", "d")
    np.testing.assert_array_equal(pairs[0].source.keypoints, [[1, 2], [2, 3], [3, 4]])
    only_source = 0 if pairs[0].source.path.name == "1" else 4
    np.testing.assert_array_equal(pairs[0].unmatched, [[only_source, only_source + 1]])


def test_never_two_objects_of_one_image_or_of_two_categories() -> None:
    everything = list(range(6))
    objects = [
        instance("1.1", everything, image="1"),
        instance("1.2", everything, image="1"),
        instance("2", everything),
        instance("3", everything, category="dog"),
    ]
    made = {frozenset(pair.name.removesuffix(":cat").split("-")) for pair in make_pairs(objects)}
    assert made == {frozenset({"1.1", "2"}), frozenset({"1.2", "2"})}


def test_same_seed_same_pairs_whatever_the_order() -> None:
    objects = [instance(f"{number:02d}", list(range(6)), "cat" if number % 2 else "dog") for number in range(30)]
    made = make_pairs(objects, maximum_pairs=40, seed=3)
    assert len(made) == 40
    assert names(made) == names(make_pairs(objects[::-1], maximum_pairs=40, seed=3))
    assert names(made) != names(make_pairs(objects, maximum_pairs=40, seed=4))
    assert len({frozenset({pair.source.path, pair.target.path}) for pair in made}) == 40


def test_minimum_and_cap() -> None:
    objects = [instance(f"{number}", [0, 1, 2]) for number in range(5)]
    assert len(make_pairs(objects)) == 10
    assert len(make_pairs(objects, maximum_pairs=4)) == 4
    with pytest.raises(InputError, match="among 5 objects no two images of a category share 4 visible keypoints"):
        make_pairs(objects, minimum_common=4)
    with pytest.raises(InputError, match="must be at least 1, got 0 and 1000"):
        make_pairs(objects, minimum_common=0)
    with pytest.raises(InputError, match="must be at least 1, got 3 and -1"):
        make_pairs(objects, maximum_pairs=-1)


def test_of_very_many_objects_some_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chmnet.data.making_pairs.MAX_INSTANCES", 4)
    objects = [instance(f"{number}", [0, 1, 2]) for number in range(50)]
    assert len(make_pairs(objects)) == 6


def test_shares() -> None:
    assert share_out(9, [100, 100, 100]) == [3, 3, 3]
    assert share_out(100, [1, 2]) == [1, 2]
    assert share_out(2, [5, 5, 5]) == [0, 1, 1]
    assert share_out(5, []) == []


# ---------------------------------------------------------------- Animal-Pose


def test_animal_pose(tmp_path: Path) -> None:
    trees.make_animal_pose(tmp_path)
    pairs = load_pairs("animal-pose", tmp_path, "train", maximum_pairs=20)
    assert len(pairs) == 20
    for pair in pairs:
        assert pair.source.box == (1, 2, 30, 28)
        assert set(pair.keypoint_names) <= set(trees.ANIMAL_NAMES)
        for side in (pair.source, pair.target):
            number = int(side.path.stem.removeprefix("2009_"))
            expected = [
                point
                for name, point in zip(trees.ANIMAL_NAMES, trees.animal_keypoints(number), strict=True)
                if name in pair.keypoint_names
            ]
            np.testing.assert_array_equal(side.keypoints, expected)


def test_animal_pose_splits_are_disjoint(tmp_path: Path) -> None:
    trees.make_animal_pose(tmp_path)
    found = {split: images(load_pairs("animal-pose", tmp_path, split)) for split in ("train", "val", "test")}
    assert found["test"] == {f"2009_{number:06d}.jpg" for number in range(4)}
    assert {"2009_000004.jpg", "2009_000006.jpg"} <= found["val"]
    assert not found["train"] & (found["val"] | found["test"])


def test_animal_pose_keypoints_outside_are_left_out(tmp_path: Path) -> None:
    trees.make_animal_pose(tmp_path)

    def move_outside(document: dict) -> None:
        document["images"]["2009_000001.jpg"]["instances"][0]["kps"][0] = [trees.WIDTH + 0.5, 5]
        document["images"]["2009_000003.jpg"]["instances"][0]["kps"][0] = [trees.WIDTH, 5]  # the edge is inside

    trees.edit_json(tmp_path / trees.ANIMAL, move_outside)
    told: list[InputError] = []
    animals = load_instances(tmp_path, "test", told.append)
    assert [str(problem).rpartition("json: ")[2] for problem in told] == [
        "2009_000001.jpg, instance 1: left_eye at (40.5, 5.0) lies outside the image of 40×30 pixels; "
        "it is left out"
    ]
    by_name = {animal.name: animal for animal in animals}
    assert np.isnan(by_name["2009_000001.1"].keypoints[0]).all()
    assert not np.isnan(by_name["2009_000003.1"].keypoints[0]).any()
    dogs = [pair for pair in load_pairs("animal-pose", tmp_path) if pair.category == "dog"]
    assert any(pair.keypoint_names == ("right_eye", "nose", "tail") for pair in dogs)


def real_splits(root: Path) -> dict[str, list[str]]:
    entries = json.loads((root / trees.ANIMAL).read_text())["images"]
    return split_images({name: entry["pfpascal"] for name, entry in entries.items()})


def test_animal_pose_real_splits(shared: Path) -> None:
    root = shared / "datasets"
    splits = real_splits(root)
    entries = json.loads((root / trees.ANIMAL).read_text())["images"]
    test = {name for name, entry in entries.items() if "test" in entry["pfpascal"]}
    assert len(test) == 119
    assert set(splits["test"]) == test
    assert not test & {*splits["train"], *splits["val"]}
    assert not set(splits["train"]) & set(splits["val"])
    assert sum(len(split) for split in splits.values()) == len(entries) == 3608
    # Nor does training see a photograph that PF-PASCAL validates with.
    assert not any("val" in entries[name]["pfpascal"] for name in splits["train"])


@pytest.mark.slow
def test_animal_pose_is_whole(shared: Path) -> None:
    root = shared / "datasets"
    splits = real_splits(root)
    told: list[InputError] = []
    found = {split: load_instances(root, split, told.append) for split in splits}
    assert sum(len(animals) for animals in found.values()) == 5117
    assert len(told) == 29  # keypoints outside their image
    for split, animals in found.items():
        assert {animal.path.name for animal in animals} == set(splits[split])
    trained = make_pairs(found["train"], maximum_pairs=3000)
    assert len(trained) == 3000
    assert not images(trained) & set(splits["test"])


# ---------------------------------------------------------------- COCO


def test_coco(tmp_path: Path) -> None:
    pairs = load_pairs("coco", trees.make_coco(tmp_path))
    assert {pair.category for pair in pairs} == {"cup", "cat"}
    assert len(pairs) == 12  # of four cups and four cats, all against all
    cup = next(pair for pair in pairs if pair.name in ("picture0.1-picture2.3:cup", "picture2.3-picture0.1:cup"))
    assert cup.keypoint_names == ("handle", "left rim", "right rim")  # picture 0 hides its foot
    assert cup.source.box == (1, 2, 21, 27)
    assert all(side.path.is_file() for side in (cup.source, cup.target))


def test_coco_from_a_named_file_and_by_splits(tmp_path: Path) -> None:
    trees.make_coco(tmp_path)
    own = (tmp_path / trees.COCO).rename(tmp_path / "own.json")
    assert len(load_pairs("coco", own)) == 12
    with pytest.raises(InputError, match=r"no annotations_test.json or annotations.json in .*; it holds own.json"):
        load_pairs("coco", tmp_path)
    own.rename(tmp_path / "annotations_train.json")
    assert len(load_pairs("coco", tmp_path, "train")) == 12
    with pytest.raises(InputError, match=r"no annotations_val.json in .*; it holds annotations_train.json"):
        load_pairs("coco", tmp_path, "val")
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        find_annotations(tmp_path / "nowhere", "test")


def test_coco_without_sizes_boxes_and_with_crowds(tmp_path: Path) -> None:
    trees.make_coco(tmp_path)

    def change(document: dict) -> None:
        for image in document["images"]:
            del image["width"]
        for annotation in document["annotations"]:
            del annotation["bbox"]
        document["annotations"][0]["iscrowd"] = 1
        document["annotations"][1]["keypoints"] = [0] * 12

    trees.edit_json(tmp_path / trees.COCO, change)
    pairs = load_pairs("coco", tmp_path)
    assert not images(pairs) & {"picture0.png", "picture1.png"}
    assert pairs[0].source.box is None


# ---------------------------------------------------------------- lists


@pytest.mark.parametrize("dataset", ["coco", "spair-71k"])
def test_list_and_back(tmp_path: Path, dataset: str) -> None:
    trees.make_coco(tmp_path)
    trees.make_spair(tmp_path)
    pairs = load_pairs(dataset, tmp_path)
    write_list(pairs, tmp_path / "list.json", tmp_path)
    again = read_list(tmp_path / "list.json", tmp_path)
    assert again[1].origin == f"{tmp_path / 'list.json'} line 3"
    line = (tmp_path / "list.json").read_text().splitlines()[2]
    assert pairs[1].name in line
    for old, new in zip(pairs, again, strict=True):
        for field in ("name", "category", "keypoint_names"):
            assert getattr(old, field) == getattr(new, field)
        assert dict(old.flags) == dict(new.flags)
        for before, after in ((old.source, new.source), (old.target, new.target)):
            np.testing.assert_array_equal(before.keypoints, after.keypoints)
            assert (before.path, before.box, before.mask) == (after.path, after.box, after.mask)


def test_list_of_a_named_file(tmp_path: Path) -> None:
    trees.make_coco(tmp_path)
    pairs = load_pairs("coco", tmp_path / trees.COCO)
    write_list(pairs, tmp_path / "list.json", tmp_path / trees.COCO)
    assert names(read_list(tmp_path / "list.json", tmp_path)) == names(pairs)


def test_list_refuses(tmp_path: Path) -> None:
    pairs = load_pairs("coco", trees.make_coco(tmp_path / "data"))
    with pytest.raises(InputError, match=r"not below .*elsewhere"):
        write_list(pairs, tmp_path / "list.json", tmp_path / "elsewhere")
    assert not (tmp_path / "list.json").exists()
    write_list(pairs, tmp_path / "list.json", tmp_path / "data")
    with pytest.raises(InputError, match="exists already"):
        write_list(pairs, tmp_path / "list.json", tmp_path / "data")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.update(format="chmnet pairs 9"), "'format' must be 'chmnet pairs 1'"),
        (lambda document: document.update(pairs=[]), "lists no pairs"),
        (lambda document: document.update(pairs=3), "'pairs' must be a list, got 3"),
        (lambda document: document["pairs"][0].pop("name"), "line 2: there is no 'name'"),
        (lambda document: document["pairs"][1]["source"].update(image="../../x.png"), "line 3: the image"),
        (lambda document: document["pairs"][1]["source"].update(mask="gone.png"), "line 3: there is no mask"),
        (lambda document: document["pairs"][0]["source"].update(keypoints=None), "'keypoints' must be a list"),
        (lambda document: document["pairs"][0]["source"]["keypoints"].pop(), "numbers must be equal"),
        (lambda document: document["pairs"][0].update(keypoint_names=["a"]), "line 2: 1 names for"),
    ],
)
def test_broken_lists(tmp_path: Path, change: object, words: str) -> None:
    assert callable(change)
    pairs = load_pairs("coco", trees.make_coco(tmp_path))
    write_list(pairs, tmp_path / "list.json", tmp_path)
    trees.edit_json(tmp_path / "list.json", change)
    with pytest.raises(InputError) as caught:
        read_list(tmp_path / "list.json", tmp_path)
    assert words in str(caught.value)


def test_names_that_occur_twice_become_unique() -> None:
    objects = [dataclasses.replace(instance("1", [0, 1, 2]), path=Path(f"{number}.jpg")) for number in range(3)]
    assert sorted(names(make_pairs(objects))) == ["1-1:cat", "1-1:cat:2", "1-1:cat:3"]
