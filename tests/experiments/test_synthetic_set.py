"""The set that can be made anywhere: keypoints that are true, objects inside, nothing written twice."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chmnet import data
from chmnet.data import Pair
from chmnet.experiments import synthetic_set
from chmnet.experiments.synthetic_set import KEYPOINTS, SIZE, write_synthetic_set
from chmnet.pictures import to_picture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_set(tmp_path_factory.mktemp("set") / "below" / "here", categories=3, views=3)


def pairs_of(folder: Path) -> list[Pair]:
    return [pair for split in ("train", "test") for pair in data.load_pairs("coco", folder, split)]


def test_every_two_views_of_a_texture_are_a_pair(folder: Path) -> None:
    for split in ("train", "test"):
        pairs = data.load_pairs("coco", folder, split)
        assert len(pairs) == 3 * 3
        assert len({pair.category for pair in pairs}) == 3
    categories = [
        {pair.category for pair in data.load_pairs("coco", folder, split)} for split in ("train", "test")
    ]
    assert categories[0] & categories[1] == set()


def colours(picture: Image.Image, points: np.ndarray) -> np.ndarray:
    """Mean colour of 5×5 pixels around each point."""
    pixels = np.asarray(picture, dtype=np.float64)
    corners = np.clip(np.floor(points).astype(int) - 2, 0, np.array(picture.size) - 5)
    return np.array([pixels[y : y + 5, x : x + 5].mean(axis=(0, 1)) for x, y in corners])


def test_keypoints_of_two_views_show_the_same_place(folder: Path) -> None:
    """Colours at a pair's keypoints are nearer to each other than to those of other keypoints."""
    own, others = [], []
    for pair in pairs_of(folder):
        assert 3 <= len(pair.source.keypoints) <= KEYPOINTS
        source, target = (colours(to_picture(side.path), side.keypoints) for side in (pair.source, pair.target))
        source, target = (one - one.mean(axis=0) for one in (source, target))  # views differ in brightness
        distances = np.linalg.norm(source[:, None] - target[None], axis=-1)
        own += np.diag(distances).tolist()
        others += distances[~np.eye(len(distances), dtype=bool)].tolist()
    assert len(own) > 50
    assert np.mean(own) < 0.35 * np.mean(others)


def test_keypoints_and_boxes_lie_inside_the_picture(folder: Path) -> None:
    for pair in pairs_of(folder):
        for side in (pair.source, pair.target):
            with Image.open(side.path) as picture:
                assert picture.size == SIZE[::-1]
            assert side.keypoints.min() >= 0
            assert (side.keypoints <= SIZE[::-1]).all()
            assert side.box is not None
            left, top, right, bottom = side.box
            assert 0 <= left < right <= SIZE[1]
            assert 0 <= top < bottom <= SIZE[0]


def test_annotations_count_the_keypoints_that_are_seen(folder: Path) -> None:
    document = json.loads((folder / "annotations_test.json").read_text())
    for annotation in document["annotations"]:
        rows = np.array(annotation["keypoints"]).reshape(-1, 3)
        assert len(rows) == KEYPOINTS
        assert annotation["num_keypoints"] == (rows[:, 2] > 0).sum()
        assert (rows[rows[:, 2] == 0] == 0).all()


def test_a_second_call_rewrites_nothing(folder: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(before) == 2 + 2 * 9
    assert write_synthetic_set(folder, categories=3, views=3) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_the_set_is_the_same_everywhere(folder: Path, tmp_path: Path) -> None:
    write_synthetic_set(tmp_path, categories=3, views=3)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_an_interrupted_set_is_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class StopError(Exception):
        """While pictures are written."""

    def stop(*arguments: object) -> None:
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(synthetic_set, "_annotation", stop)
        with pytest.raises(StopError):
            write_synthetic_set(tmp_path)
    assert not list(tmp_path.glob("*.json"))  # which say that the pictures are there
    write_synthetic_set(tmp_path)
    assert len(data.load_pairs("coco", tmp_path, "test")) == 6
