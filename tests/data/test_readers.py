"""Every layout is read as it was written; the real data sets as they are known to be."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chmnet.data import DATASETS, Pair, deduplicate, image_names, load_pairs, training_pairs
from chmnet.data.making_pairs import outside
from chmnet.data.masks import open_mask
from chmnet.errors import InputError

from . import trees


def assert_all_inside(pairs: list[Pair]) -> None:
    sizes: dict[Path, tuple[int, int]] = {}
    for pair in pairs:
        for side in (pair.source, pair.target):
            if side.path not in sizes:
                with Image.open(side.path) as image:
                    sizes[side.path] = (image.height, image.width)
            assert not outside(side.keypoints, sizes[side.path]).any(), pair.origin


# ---------------------------------------------------------------- PF-WILLOW


def test_pf_willow(tmp_path: Path) -> None:
    pairs = load_pairs("pf-willow", trees.make_pf_willow(tmp_path))
    assert [pair.name for pair in pairs] == ["Cars_000a-Cars_001a:car(G)", "Cars_001a-Cars_002a:car(G)"]
    first = pairs[0]
    assert first.category == "car(G)"
    assert first.source.path == tmp_path / "PF-WILLOW/PF-dataset/car(G)/Cars_000a.png"
    np.testing.assert_array_equal(first.source.keypoints, [[i + 1, i + 2] for i in range(10)])
    np.testing.assert_array_equal(first.target.keypoints, [[i + 11, i + 2] for i in range(10)])
    assert first.source.keypoints.dtype == np.float64
    assert first.source.box is None
    assert first.origin == f"{tmp_path / trees.WILLOW_LIST} line 2"


def test_pf_willow_is_whole(shared: Path) -> None:
    pairs = load_pairs("pf-willow", shared / "datasets")
    assert len(pairs) == 900
    assert len({side.path for pair in pairs for side in (pair.source, pair.target)}) == 100
    assert {pair.category for pair in pairs} == DATASETS["pf-willow"].categories
    assert len({pair.name for pair in pairs}) == 900
    assert_all_inside(pairs)


# ---------------------------------------------------------------- PF-PASCAL


def test_pf_pascal_with_keypoints_in_the_list(tmp_path: Path) -> None:
    pairs = load_pairs("pf-pascal", trees.make_pf_pascal(tmp_path))
    assert [pair.category for pair in pairs] == ["cat", "cat"]
    np.testing.assert_array_equal(pairs[0].source.keypoints, [[4, 7], [5, 8], [6, 9]])
    np.testing.assert_array_equal(pairs[0].target.keypoints, [[14, 17], [15, 18], [16, 19]])
    assert pairs[0].source.path == tmp_path / "PF-PASCAL/JPEGImages/2008_000001.jpg"
    # Two boxes of cats hold all keypoints, one holds only some: the smaller of the two.
    assert pairs[0].source.box == (1, 1, 20, 20)


def test_pf_pascal_training_rows_with_keypoints(tmp_path: Path) -> None:
    pairs = load_pairs("pf-pascal", trees.make_pf_pascal(tmp_path), "train")
    base = "2008_000002-2008_000001:cat"
    assert [pair.name for pair in pairs] == [base, f"{base}:flip", f"{base}:2"]
    assert [dict(pair.flags) for pair in pairs] == [{}, {"flip": 1}, {}]
    np.testing.assert_array_equal(pairs[0].source.keypoints, pairs[1].source.keypoints)
    assert pairs[1].origin.endswith("trn_pairs.csv line 3")


@pytest.mark.parametrize("below", ["", "PF-dataset-PASCAL"])
def test_pf_pascal_official_layout(tmp_path: Path, below: str) -> None:
    pairs = load_pairs("pf-pascal", trees.make_pf_pascal_mat(tmp_path, below))
    # Keypoint 0 cannot be seen in image 0, nor 3 in image 1.
    np.testing.assert_array_equal(pairs[0].source.keypoints, [[3, 4], [5, 6]])
    np.testing.assert_array_equal(pairs[0].target.keypoints, [[13, 14], [15, 16]])
    np.testing.assert_array_equal(pairs[1].source.keypoints, [[11, 12], [13, 14], [15, 16]])
    assert pairs[0].source.path.is_file()
    assert pairs[0].source.box == (1, 2, 30, 29)
    train = load_pairs("pf-pascal", tmp_path, "train")
    assert [pair.flags.get("flip", 0) for pair in train] == [0, 1, 0, 1]


def test_pf_pascal_box_of_the_annotation_goes_first(tmp_path: Path) -> None:
    trees.make_pf_pascal_mat(tmp_path)
    trees.make_pf_pascal(tmp_path)
    pair = load_pairs("pf-pascal", tmp_path)[0]
    np.testing.assert_array_equal(pair.source.keypoints, [[4, 7], [5, 8], [6, 9]])
    assert pair.source.box == (1, 2, 30, 29)


def test_pf_pascal_annotation_without_box(tmp_path: Path) -> None:
    trees.make_pf_pascal_mat(tmp_path)
    trees.save_mat(trees.mat_file(tmp_path, 0), kps=np.ones((4, 2)))
    assert load_pairs("pf-pascal", tmp_path)[0].source.box is None


@pytest.mark.parametrize(("split", "count"), [("test", 299), ("val", 308)])
def test_pf_pascal_is_whole(shared: Path, split: str, count: int) -> None:
    pairs = load_pairs("pf-pascal", shared / "datasets", split)
    assert len(pairs) == len({pair.name for pair in pairs}) == count
    assert {pair.category for pair in pairs} == DATASETS["pf-pascal"].categories
    assert all(side.box is not None for pair in pairs for side in (pair.source, pair.target))
    assert_all_inside(pairs)


def test_pf_pascal_training_list(shared: Path) -> None:
    pairs = load_pairs("pf-pascal", shared / "datasets", "train")
    assert len(pairs) == len({pair.name for pair in pairs}) == 2 * 462
    assert sum(pair.flags.get("flip", 0) for pair in pairs) == 462
    assert_all_inside(pairs)


# ---------------------------------------------------------------- de-duplication


def test_deduplicate_in_either_order(tmp_path: Path) -> None:
    trees.make_pf_pascal(tmp_path)
    test = load_pairs("pf-pascal", tmp_path)
    listed = training_pairs(tmp_path)
    assert listed == {
        frozenset({"2008_000001.jpg", "2008_000002.jpg"}),
        frozenset({"2008_000001.jpg", "2008_000003.jpg"}),
    }
    # The training list has the first test pair the other way round.
    assert deduplicate(test, listed) == test[1:]
    assert deduplicate(test, set()) == test
    assert deduplicate(test, {image_names(pair) for pair in test}) == []


def test_deduplicated_test_list(shared: Path) -> None:
    root = shared / "datasets"
    pairs = load_pairs("pf-pascal", root)
    listed = training_pairs(root)
    kept = deduplicate(pairs, listed)
    # Counted from the files by hand: 613 unordered pairs in the training list; they hold 95 of the test pairs.
    assert len(listed) == 613
    assert len(kept) == 299 - 95
    lines = (root / "PF-PASCAL/trn_pairs.csv").read_text().splitlines()
    trained = {tuple(name.rsplit("/", 1)[-1] for name in line.split(",")[:2]) for line in lines}
    for pair in pairs:
        names = (pair.source.path.name, pair.target.path.name)
        assert (pair in kept) == (names not in trained and names[::-1] not in trained)


# ---------------------------------------------------------------- SPair-71k


def test_spair(tmp_path: Path) -> None:
    pairs = load_pairs("spair-71k", trees.make_spair(tmp_path))
    assert len(pairs) == 2
    pair = pairs[0]
    assert pair.name == trees.SPAIR_PAIR
    assert pair.category == "cat"
    np.testing.assert_array_equal(pair.source.keypoints, [[7, 8], [9, 10], [11, 12]])
    np.testing.assert_array_equal(pair.target.keypoints, [[17, 8], [19, 10], [21, 12]])
    assert pair.keypoint_names == ("0", "4", "9")
    assert pair.source.box == (6, 5, 30, 20)
    assert dict(pair.flags) == {"viewpoint": 0, "scale": 2, "truncation": 3, "occlusion": 0}
    assert pairs[1].flags["viewpoint"] == 1
    assert "test.txt line 1" in pair.origin


def test_spair_without_some_flags(tmp_path: Path) -> None:
    root = trees.make_spair(tmp_path)
    file = root / trees.SPAIR / f"PairAnnotation/test/{trees.SPAIR_PAIR}.json"
    trees.edit_json(file, lambda document: document.pop("viewpoint_variation"))
    pairs = load_pairs("spair-71k", root)
    assert dict(pairs[0].flags) == {"scale": 2, "truncation": 3, "occlusion": 0}
    assert "viewpoint" in pairs[1].flags


def test_spair_masks(tmp_path: Path) -> None:
    pair = load_pairs("spair-71k", trees.make_spair(tmp_path))[0]
    assert pair.source.mask == tmp_path / "SPair-71k/Segmentation/cat/2007_000001.png"
    mask = open_mask(pair.source.mask)
    assert mask.shape == (trees.HEIGHT, trees.WIDTH)
    assert mask.sum() == 15 * 24
    assert mask[5, 6]
    assert not mask[4, 6]


def test_spair_layouts_and_splits(tmp_path: Path) -> None:
    trees.make_spair(tmp_path)
    assert len(load_pairs("spair-71k", tmp_path, layout="small")) == 1
    assert len(load_pairs("spair-71k", tmp_path, "train")) == 1
    with pytest.raises(InputError, match="no layout 'tiny'; it has large and small"):
        load_pairs("spair-71k", tmp_path, layout="tiny")


def test_spair_without_masks_and_names(tmp_path: Path) -> None:
    trees.make_spair(tmp_path)
    (tmp_path / "SPair-71k/Segmentation").rename(tmp_path / "elsewhere")
    trees.edit_json(tmp_path / trees.SPAIR_ANNOTATION, lambda document: document.pop("kps_ids"))
    pair = load_pairs("spair-71k", tmp_path)[0]
    assert pair.source.mask is None
    assert pair.keypoint_names == ()


def test_mask_with_palette_and_colours(tmp_path: Path) -> None:
    palette = Image.new("P", (2, 1), 0)
    palette.putpalette([255, 255, 255, 0, 0, 0])  # number 0 is white, and still not the object
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "palette.png")
    assert open_mask(tmp_path / "palette.png").tolist() == [[False, True]]
    colours = Image.new("RGB", (2, 1))
    colours.putpixel((1, 0), (0, 0, 9))
    colours.save(tmp_path / "colours.png")
    assert open_mask(tmp_path / "colours.png").tolist() == [[False, True]]


# ---------------------------------------------------------------- what all of them accept and refuse


def test_byte_order_mark_blank_lines_and_windows_line_ends(tmp_path: Path) -> None:
    trees.make_pf_willow(tmp_path)
    before = load_pairs("pf-willow", tmp_path)
    file = tmp_path / trees.WILLOW_LIST
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n\r\n"))
    after = load_pairs("pf-willow", tmp_path)
    assert [pair.name for pair in after] == [pair.name for pair in before]
    assert after[1].origin.endswith("line 5")


def test_unknown_name_split_folder_and_option(tmp_path: Path) -> None:
    trees.make_pf_willow(tmp_path)
    with pytest.raises(InputError, match="no data set 'pf-wilow'; there are pf-willow, pf-pascal, spair-71k, "):
        load_pairs("pf-wilow", tmp_path)
    with pytest.raises(InputError, match="pf-willow has no split 'train'; it has test"):
        load_pairs("pf-willow", tmp_path, "train")
    with pytest.raises(InputError, match=r"no folder .*PF-PASCAL; .* holds PF-WILLOW"):
        load_pairs("pf-pascal", tmp_path)
    with pytest.raises(InputError, match="name the folder above it"):
        load_pairs("pf-willow", tmp_path / "PF-WILLOW")
    with pytest.raises(InputError, match=r"there is no folder .*nowhere; name the folder that holds PF-WILLOW"):
        load_pairs("pf-willow", tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"there is no .*nowhere; name a folder with annotations.json"):
        load_pairs("coco", tmp_path / "nowhere")
    with pytest.raises(InputError, match="pf-willow has no option 'seed'; its options: none"):
        load_pairs("pf-willow", tmp_path, seed=1)
    with pytest.raises(InputError, match="no option 'layot'; its options: layout"):
        load_pairs("spair-71k", trees.make_spair(tmp_path), layot="small")


def test_pairs_with_flags_can_be_pickled(tmp_path: Path) -> None:
    pair = load_pairs("spair-71k", trees.make_spair(tmp_path))[0]
    assert pickle.loads(pickle.dumps(pair)).flags == pair.flags
