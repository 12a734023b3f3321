"""Files of dense flow: by round trip, by bytes, and what is refused."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from chmnet.errors import InputError
from chmnet.formats import (
    DenseFlow,
    check_flow_name,
    read_flo,
    read_npz,
    write_flo,
    write_flow,
    write_npz,
)


def dense(height: int = 3, width: int = 5) -> DenseFlow:
    generator = np.random.default_rng(0)
    flow = generator.normal(size=(height, width, 2)).astype(np.float32)
    return DenseFlow(flow, generator.random((height, width), dtype=np.float32), (height, width), (7, 9))


def test_flo_bytes_are_middlebury_s(tmp_path: Path) -> None:
    path = tmp_path / "flow.flo"
    flow = np.array([[[1.5, -2.0], [0.25, 3.0]]], dtype=np.float32)  # one row, two columns
    write_flo(path, flow)
    assert path.read_bytes() == b"PIEH" + struct.pack("<ii4f", 2, 1, 1.5, -2.0, 0.25, 3.0)


def test_flo_round_trip(tmp_path: Path) -> None:
    write_flow(tmp_path / "flow.flo", dense())
    np.testing.assert_array_equal(read_flo(tmp_path / "flow.flo"), dense().flow)


def test_npz_round_trip_and_keys(tmp_path: Path) -> None:
    path = tmp_path / "flow.npz"
    write_flow(path, dense())
    read = read_npz(path)
    np.testing.assert_array_equal(read.flow, dense().flow)
    np.testing.assert_array_equal(read.confidence, dense().confidence)
    assert (read.source_size, read.target_size) == ((3, 5), (7, 9))
    with np.load(path) as arrays:
        assert set(arrays) == {"flow", "confidence", "source_size", "target_size"}
        assert arrays["flow"].dtype == np.float32


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "too short"),
        (b"PIE", "too short"),
        (b"hello, this is text", "begins otherwise"),
        (b"PIEH" + struct.pack("<ii", -2, 1), "begins otherwise"),
        (b"PIEH" + struct.pack("<ii", 99_999, 99_999), "damaged"),
        (b"PIEH" + struct.pack("<ii3f", 2, 1, 0, 0, 0), "damaged"),
    ],
)
def test_hostile_flo(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.flo"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_flo(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello", b"\x93NUMPY\x01\x00"])
def test_hostile_npz(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "flow.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"not a \.npz file of flow"):
        read_npz(path)


def test_npz_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(InputError, match=r"not a \.npz file of flow"):
        read_npz(path)
    np.savez(path, flow=np.zeros((2, 2, 2)), confidence=np.zeros(3), source_size=[1, 1], target_size=[1, 1])
    with pytest.raises(InputError, match="do not go together"):
        read_npz(path)
    pickled = np.array([{"a": 1}], dtype=object)
    np.savez(path, flow=pickled, confidence=pickled, source_size=[1, 1], target_size=[1, 1])
    with pytest.raises(InputError, match=r"not a \.npz file of flow"):
        read_npz(path)


@pytest.mark.parametrize(
    "change",
    [
        {"flow": np.full((1, 1, 2), "a")},
        {"flow": np.full((1, 1, 2), 1j)},
        {"target_size": np.array([np.inf, 1])},
        {"source_size": np.array([1, 1, 1])},
    ],
    ids=["letters", "complex", "infinite", "three"],
)
def test_npz_of_odd_numbers(change: dict[str, np.ndarray], tmp_path: Path) -> None:
    sound = {"flow": np.zeros((1, 1, 2)), "confidence": np.zeros((1, 1)), "source_size": [1, 1]}
    np.savez(tmp_path / "sound.npz", **{**sound, "target_size": [1, 1]})
    assert read_npz(tmp_path / "sound.npz").source_size == (1, 1)  # control
    np.savez(tmp_path / "odd.npz", **{**sound, "target_size": [1, 1], **change})
    with pytest.raises(InputError, match=r"not a \.npz file of flow"):
        read_npz(tmp_path / "odd.npz")


def test_npz_whose_bytes_are_damaged_or_lie(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (10**7, 10**7, 2)}
    )
    np.savez_compressed(tmp_path / "huge.npz", confidence=np.zeros((1, 1)), source_size=[1, 1], target_size=[1, 1])
    with zipfile.ZipFile(tmp_path / "huge.npz", "a") as archive:
        archive.writestr("flow.npy", header.getvalue())
    whole = (tmp_path / "huge.npz").read_bytes()
    place = whole.index(b".npy") + 30  # in the first compressed array
    (tmp_path / "damaged.npz").write_bytes(whole[:place] + b"\xff" * 8 + whole[place + 8 :])
    for name in ("huge.npz", "damaged.npz"):
        with pytest.raises(InputError, match=r"not a \.npz file of flow"):
            read_npz(tmp_path / name)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_flo(tmp_path / "none.flo")
    with pytest.raises(InputError, match="there is no file"):
        read_npz(tmp_path / "none.npz")


def test_names_sides_and_existing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in \.flo or \.npz"):
        check_flow_name("flow.png")
    with pytest.raises(InputError, match="at most 99999 pixels"):
        write_flo(tmp_path / "wide.flo", np.zeros((1, 100_000, 2), dtype=np.float32))
    (tmp_path / "flow.npz").write_text("precious")
    with pytest.raises(InputError, match="exists already"):
        write_npz(tmp_path / "flow.npz", dense())
    assert [path.name for path in tmp_path.iterdir()] == ["flow.npz"]
