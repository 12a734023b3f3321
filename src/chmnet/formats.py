"""Dense flow in files: Middlebury's ``.flo`` and NumPy's ``.npz``; each with its reader and its writer.

``.flo``, as optical-flow tools read it, little-endian: the number 202021.25 as float32, width and height as int32,
then two float32 (x and y of the displacement) for every pixel, row by row.

``.npz``, as ``numpy.load`` reads it, with the arrays

* ``flow``: float32, height × width × 2, displacement (x, y) in pixels;
* ``confidence``: float32, height × width, 0 … 1;
* ``source_size``, ``target_size``: int64, (height, width) of both pictures.
"""

import struct
import zipfile
import zlib
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.outputs import atomic_path

FLO_MAGIC = 202021.25
_HEADER = struct.Struct("<fii")
_MAX_SIDE = 99_999
"""What readers of ``.flo`` files accept."""
_DAMAGED = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError),  # of the archive, or a size that is a lie
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError),  # of what is in it
)


class DenseFlow(NamedTuple):
    """What an ``.npz`` file holds."""

    flow: Float32[np.ndarray, "h w 2"]
    confidence: Float32[np.ndarray, "h w"]
    source_size: Size
    target_size: Size


def check_flow_name(path: str | Path) -> None:
    """Refuse a file name of neither format.

    Raises:
        InputError: it ends in something else than ``.flo`` or ``.npz``.
    """
    if Path(path).suffix.lower() not in (".flo", ".npz"):
        raise InputError(f"a file of flow must end in .flo or .npz, got {Path(path).name!r}")


def write_flow(path: str | Path, dense: DenseFlow, overwrite: bool = False) -> None:
    """Write dense flow in the format that the file's name ends in; ``.flo`` holds the flow only.

    Raises:
        InputError: the name ends otherwise, or the file cannot be written.
    """
    check_flow_name(path)
    if Path(path).suffix.lower() == ".flo":
        write_flo(path, dense.flow, overwrite)
    else:
        write_npz(path, dense, overwrite)


def write_flo(path: str | Path, flow: Float32[np.ndarray, "h w 2"], overwrite: bool = False) -> None:
    """Write a flow as Middlebury's ``.flo``.

    Raises:
        InputError: it is empty or too large for the format, or the file cannot be written.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "flow.flo"
        >>> write_flo(path, np.zeros((2, 3, 2), dtype=np.float32))
        >>> path.stat().st_size, read_flo(path).shape
        (60, (2, 3, 2))
    """
    flow = np.asarray(flow)
    if flow.ndim != 3 or flow.shape[2] != 2 or flow.dtype.kind != "f":
        raise InputError(f"a flow must be floats of shape [h, w, 2], got {flow.dtype}, {list(flow.shape)}")
    height, width = flow.shape[:2]
    if not (0 < height <= _MAX_SIDE and 0 < width <= _MAX_SIDE):
        raise InputError(f"a .flo file holds at most {_MAX_SIDE} pixels a side, got {width}×{height}; write .npz")
    with atomic_path(path, overwrite) as temporary, temporary.open("wb") as file:
        file.write(_HEADER.pack(FLO_MAGIC, width, height))
        file.write(np.ascontiguousarray(flow, dtype="<f4").data)


def read_flo(path: str | Path) -> Float32[np.ndarray, "h w 2"]:
    """Read a ``.flo`` file.

    Raises:
        InputError: it is missing, or not such a file.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    if len(content) < _HEADER.size:
        raise InputError(f"{path} is not a .flo file: it is too short")
    magic, width, height = _HEADER.unpack_from(content)
    if magic != FLO_MAGIC or not (0 < width <= _MAX_SIDE and 0 < height <= _MAX_SIDE):
        raise InputError(f"{path} is not a .flo file: it begins otherwise")
    if len(content) != _HEADER.size + 8 * width * height:
        raise InputError(f"{path} is damaged: it holds less or more than {width}×{height} pixels")
    return np.frombuffer(content, "<f4", offset=_HEADER.size).reshape(height, width, 2).astype(np.float32)


def write_npz(path: str | Path, dense: DenseFlow, overwrite: bool = False) -> None:
    """Write flow and confidence as NumPy's ``.npz``, compressed."""
    with atomic_path(path, overwrite) as temporary, temporary.open("wb") as file:
        save_npz(file, dense)


def save_npz(file: BufferedIOBase, dense: DenseFlow) -> None:
    """As :func:`write_npz`, into a file that is open, or in memory."""
    np.savez_compressed(
        file,
        flow=dense.flow,
        confidence=dense.confidence,
        source_size=np.array(dense.source_size, dtype=np.int64),
        target_size=np.array(dense.target_size, dtype=np.int64),
    )


def read_npz(path: str | Path) -> DenseFlow:
    """Read an ``.npz`` file that :func:`write_npz` wrote. Nothing in it is executed.

    Raises:
        InputError: it is missing, or not such a file.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            sizes = [(int(height), int(width)) for height, width in (arrays["source_size"], arrays["target_size"])]
            flow, confidence = arrays["flow"], arrays["confidence"]
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except _DAMAGED:
        raise InputError(f"{path} is not a .npz file of flow") from None
    numbers = flow.dtype.kind == confidence.dtype.kind == "f"
    if not numbers or flow.ndim != 3 or flow.shape[2] != 2 or confidence.shape != flow.shape[:2]:
        raise InputError(f"{path} is not a .npz file of flow: its arrays do not go together")
    return DenseFlow(flow.astype(np.float32), confidence.astype(np.float32), *sizes)
