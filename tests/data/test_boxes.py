"""Pictures with the boxes of their objects, each picture once."""

from pathlib import Path

import pytest

from chmnet.data.boxes import load_boxes
from chmnet.errors import InputError
from tests.data import trees


def test_pf_pascal_gives_every_object_but_no_picture_of_a_later_list(tmp_path: Path) -> None:
    root = trees.make_pf_pascal(tmp_path)
    found = load_boxes("pf-pascal", root, "test")
    assert [picture.path.stem for picture in found] == list(trees.PASCAL_IMAGES)
    assert found[0].boxes[3] == (0, 0, 9, 9)  # a dog in a picture of cats
    assert len(found[0].boxes) == 4
    with pytest.raises(InputError, match="no pictures with boxes of objects in its split train"):
        load_boxes("pf-pascal", root, "train")  # all of them are in the test list
    kept = load_boxes("pf-pascal", root, "test", without={f"{trees.PASCAL_IMAGES[0]}.jpg"})
    assert [picture.path.stem for picture in kept] == list(trees.PASCAL_IMAGES[1:])


def test_the_official_layout_gives_the_boxes_of_its_annotations(tmp_path: Path) -> None:
    found = load_boxes("pf-pascal", trees.make_pf_pascal_mat(tmp_path), "test")
    assert [picture.boxes for picture in found] == [((1, 2, 30, 29),)] * 3


def test_other_data_sets(tmp_path: Path) -> None:
    animals = load_boxes("animal-pose", trees.make_animal_pose(tmp_path / "animals"), "train")
    assert all(picture.boxes for picture in animals)
    assert len({picture.path for picture in animals}) == len(animals)
    spair = load_boxes("spair-71k", trees.make_spair(tmp_path / "spair"), "test")
    assert all(len(picture.boxes) >= 1 for picture in spair)
    with pytest.raises(InputError, match="no pictures with boxes"):
        load_boxes("pf-willow", trees.make_pf_willow(tmp_path / "willow"), "test")
