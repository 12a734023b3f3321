"""Features of pictures as values, and the one cache that keeps them: in memory, then in a temporary file."""

import hashlib
import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Generic, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from chmnet.errors import InputError, WeightsError
from chmnet.files import read_tensors, write_tensors
from chmnet.geometry import Size
from chmnet.pictures import Area, Picture, View

MEMORY_BYTES = 512 * 2**20
"""What a cache keeps in memory, unless it is told otherwise."""

_FORMAT = "chmnet-features-1"


def hash_weights(module: nn.Module | None) -> str:
    """SHA-256 of a module's weights, the same for the same numbers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items() if module is not None else []):
        if not name.endswith("num_batches_tracked"):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@dataclass(eq=False, repr=False)
class Fingerprint:
    """What tells models apart: a hash of their weights, computed only when two of them are compared."""

    module: nn.Module | str
    """The network, or a hash that is known already."""
    facts: str = ""
    """What else decides the features of a network."""

    @property
    def value(self) -> str:
        """The hash; once it is known, the network is not kept."""
        if not isinstance(self.module, str):
            self.module = hashlib.sha256(f"{hash_weights(self.module)} {self.facts}".encode()).hexdigest()
        return self.module

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Fingerprint) and self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __reduce__(self) -> tuple[type["Fingerprint"], tuple[str]]:
        return Fingerprint, (self.value,)


@dataclass(frozen=True, eq=False)
class Features:
    """All that matching needs of one view of a picture; :meth:`chmnet.Matcher.extract` makes them."""

    levels: tuple[Tensor, ...] = field(repr=False)
    """``1 c h_i w_i`` for each scale."""
    grid: Size
    """(height, width) of the feature grid."""
    view: View
    """What was seen."""
    fingerprint: Fingerprint = field(repr=False)
    """Of the model that computed them."""
    branch: str = "source"
    """Which of a model's backbones computed them, where it has two."""
    facing: tuple[float, float] | None = None
    """Which way the thing faces, if the model can tell; see :mod:`chmnet.nn.facing`."""
    foreground: Tensor | None = field(default=None, repr=False)
    """``1 h w``: the probability that each position of the grid lies on a thing, if the model can tell."""

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return sum(level.nbytes for level in self.levels) + (
            0 if self.foreground is None else self.foreground.nbytes
        )

    def to(self, *arguments: Any) -> "Features":
        """A copy on another device or of another type of numbers, as ``Tensor.to``."""
        levels = tuple(level.to(*arguments) for level in self.levels)
        foreground = None if self.foreground is None else self.foreground.to(*arguments)
        return replace(self, levels=levels, foreground=foreground)

    def half(self) -> "Features":
        """A copy in half precision: half the memory."""
        return self.to(torch.float16)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write them, without the picture, to a safetensors file; :meth:`load` reads it.

        Raises:
            InputError: the file exists and may not be replaced, or cannot be written.
        """
        values: dict[str, Any] = {"grid": self.grid, "view": describe_view(self.view)}
        values |= {"branch": self.branch, "facing": self.facing}
        metadata = {"format": _FORMAT, "fingerprint": self.fingerprint.value}
        metadata |= {name: json.dumps(value) for name, value in values.items()}
        tensors = {str(number): level for number, level in enumerate(self.levels)}
        if self.foreground is not None:
            tensors["foreground"] = self.foreground
        write_tensors(path, tensors, metadata, overwrite)

    @staticmethod
    def load(path: str | Path) -> "Features":
        """Read what :meth:`save` wrote.

        Raises:
            InputError: there is no such file, or it holds something else.
        """
        try:
            tensors, metadata = read_tensors(path)
            if metadata.get("format") != _FORMAT:
                raise ValueError("it is something else")
            foreground = check_foreground(tensors.pop("foreground", None))
            levels = tuple(tensors[str(number)] for number in range(len(tensors)))
            if not levels or not all(_is_feature_map(level) for level in levels):
                raise ValueError("its levels are no feature maps")
            grid, branch = json.loads(metadata["grid"]), json.loads(metadata["branch"])
            if branch not in ("source", "target"):
                raise ValueError(f"its branch is {branch!r}")
            view = restore_view(json.loads(metadata["view"]))
            fingerprint = Fingerprint(metadata["fingerprint"])
            facing = _check_facing(json.loads(metadata.get("facing", "null")))
            return Features(levels, check_sides(grid), view, fingerprint, branch, facing, foreground)
        except WeightsError as error:
            raise InputError(str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise InputError(f"{path} is not a file of features: {error}") from None


def _is_feature_map(level: Tensor) -> bool:
    return level.dim() == 4 and 0 not in level.shape and level.is_floating_point() and bool(level.isfinite().all())


def _check_facing(facing: Any) -> tuple[float, float] | None:
    if facing is None:
        return None
    if not (isinstance(facing, list) and len(facing) == 2 and all(type(n) in (int, float) for n in facing)):
        raise ValueError(f"the thing faces {facing!r}")
    across, along = facing
    if not (-1 <= across <= 1 and -1 <= along <= 1):
        raise ValueError(f"the thing faces {facing!r}")
    return across, along


def check_foreground(foreground: Tensor | None) -> Tensor | None:
    """The foreground of a stored picture, if it is one.

    Raises:
        ValueError: it is something else.
    """
    if foreground is not None:
        if foreground.dim() != 3 or len(foreground) != 1 or 0 in foreground.shape:
            raise ValueError(f"its foreground has the shape {list(foreground.shape)}")
        if not (foreground.is_floating_point() and bool(((foreground >= 0) & (foreground <= 1)).all())):
            raise ValueError("its foreground is not all probabilities")
    return foreground


def describe_view(view: View) -> dict[str, Any]:
    """A view without its picture, as JSON."""
    shape = {"area": view.area, "mirrored": view.mirrored, "turn": view.turn, "window": view.window}
    return {"size": list(view.picture.size), **shape}


def restore_view(table: dict[str, Any]) -> View:
    """The view that :func:`describe_view` described, its picture not at hand.

    Raises:
        ValueError: the table describes none.
    """
    area, window = (_check_area(table.get(name), name) for name in ("area", "window"))
    mirrored = table.get("mirrored", False)
    if not isinstance(mirrored, bool):
        raise ValueError(f"a view is mirrored or not, got {mirrored!r}")
    picture = Picture(None, check_sides(table["size"]))
    return View(picture, area, mirrored, table.get("turn", 0), window)


def _check_area(sides: Any, name: str) -> Area | None:
    """Four whole numbers, or nothing; a :class:`ValueError` where it is something else."""
    if sides is None:
        return None
    if not (isinstance(sides, list) and len(sides) == 4 and all(type(side) is int for side in sides)):
        raise ValueError(f"the {name} of a view is {sides}")
    return sides[0], sides[1], sides[2], sides[3]


def check_sides(sides: Any) -> Size:
    """(height, width), if it is that.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(sides, list) or len(sides) != 2 or not all(type(n) is int and 0 < n < 2**31 for n in sides):
        raise ValueError(f"a size is {sides}")
    return sides[0], sides[1]


Value = TypeVar("Value")
"""Features, a tensor, or (where nothing goes to disk) anything that says its ``nbytes``."""


class _Stored(NamedTuple):
    """A value whose numbers are in the file."""

    shell: Features | None
    """All but the numbers; ``None``: it is a tensor."""
    dtype: torch.dtype
    device: torch.device
    places: list[tuple[int, torch.Size, list[int]]]
    """Of each tensor: where it begins, its shape there, and which axes these are."""


class FeatureCache(Generic[Value]):
    """Values that are computed once: in memory, the least recently used first pushed out to a temporary file.

    The file has no name: it vanishes with the process, however that ends. Threads may share a cache. A copy, a
    pickle, and the cache of a forked process begin empty.

    Args:
        memory_bytes: what may be kept in memory.
        disk: off: what does not fit into memory is forgotten.
        dtype: of kept numbers; also of those just computed, so that all times are equal. ``None``: as they come.

    Example:
        >>> with FeatureCache(memory_bytes=0) as cache:
        ...     first = cache.get("a", lambda: torch.ones(2))
        ...     second = cache.get("a", lambda: torch.zeros(2))  # kept: not computed again
        >>> second.tolist(), cache.computed
        ([1.0, 1.0], 1)
    """

    def __init__(
        self, memory_bytes: int = MEMORY_BYTES, disk: bool = True, dtype: torch.dtype | None = None
    ) -> None:
        self.memory_bytes, self.disk, self.dtype = memory_bytes, disk, dtype
        self._begin()

    def _begin(self) -> None:
        self.computed = 0
        """How many values were computed."""
        self.nbytes = 0
        """Memory that is in use."""
        self._kept: OrderedDict[tuple[str, Hashable], Value] = OrderedDict()
        self._places: dict[tuple[str, Hashable], _Stored] = {}
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("memory_bytes", "disk", "dtype")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __enter__(self) -> "FeatureCache[Value]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            cast(IO[bytes], self._file).close()

    def close(self) -> None:
        """Forget everything."""
        if self._file is not None:
            self._file.close()
        self._file, self.nbytes = None, 0
        self._kept.clear()
        self._places.clear()

    def get(self, key: Hashable, compute: Callable[[], Value], owner: str = "") -> Value:
        """The value of a key, computed if it is not known.

        Args:
            key: says all that decides the value.
            compute: makes it.
            owner: whose it is; see :meth:`drop`.
        """
        known = self.find(key, owner)
        if known is not None:
            return known
        value = compute()
        with self._locked():
            self.computed += 1
        return self.put(key, value, owner)

    def find(self, key: Hashable, owner: str = "") -> Value | None:
        """The value of a key, if it is known."""
        with self._locked():
            if (owner, key) in self._kept:
                self._kept.move_to_end((owner, key))
                return self._kept[owner, key]
            place = self._places.get((owner, key))
            if place is None:
                return None
            value = self._read(place)
            self._keep((owner, key), value)
            return value

    def put(self, key: Hashable, value: Value, owner: str = "") -> Value:
        """Keep a value, and give it back as it is kept."""
        if self.dtype is not None:
            value = cast(Any, value).to(self.dtype)
        with self._locked():
            self._places.pop((owner, key), None)
            self._keep((owner, key), value)
        return value

    def drop(self, owner: str) -> None:
        """Forget everything of one owner at once."""
        with self._locked():
            for key in [key for key in self._kept if key[0] == owner]:
                self.nbytes -= cast(Any, self._kept.pop(key)).nbytes
            for key in [key for key in self._places if key[0] == owner]:
                del self._places[key]

    def _locked(self) -> threading.Lock:
        """The lock. A forked process begins anew: it must neither write into its parent's file nor wait for it."""
        if self._process != os.getpid():
            self._begin()
        return self._lock

    def _keep(self, key: tuple[str, Hashable], value: Value) -> None:
        if key in self._kept:
            self.nbytes -= cast(Any, self._kept.pop(key)).nbytes
        self._kept[key] = value
        self.nbytes += cast(Any, value).nbytes
        while self.nbytes > self.memory_bytes and self._kept:
            oldest, pushed_out = self._kept.popitem(last=False)
            self.nbytes -= cast(Any, pushed_out).nbytes
            if self.disk and oldest not in self._places:
                self._places[oldest] = self._write(pushed_out)

    def _write(self, value: Value) -> _Stored:
        """Put the numbers of a value into the file, in the order in which they lie in memory."""
        tensors = value.levels if isinstance(value, Features) else (cast(Tensor, value),)
        places = []
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="chmnet-features-")  # noqa: SIM115 (see close)
            for tensor in tensors:
                axes = sorted(range(tensor.dim()), key=[-step for step in tensor.stride()].__getitem__)
                packed = tensor.detach().permute(axes).contiguous().cpu()
                places.append((self._file.seek(0, os.SEEK_END), packed.shape, axes))
                self._file.write(packed.view(torch.uint8).numpy().tobytes())
            self._file.flush()
        except OSError as error:
            raise InputError(
                f"cannot keep features in the temporary folder {tempfile.gettempdir()}: {error.strerror}; "
                "free space there, or allow more memory"
            ) from None
        shell = replace(value, levels=()) if isinstance(value, Features) else None
        return _Stored(shell, tensors[0].dtype, tensors[0].device, places)

    def _read(self, stored: _Stored) -> Value:
        assert self._file is not None, "a place without a file"
        tensors = []
        for place, shape, axes in stored.places:
            numbers = bytearray(os.pread(self._file.fileno(), shape.numel() * stored.dtype.itemsize, place))
            packed = torch.frombuffer(numbers, dtype=stored.dtype).view(shape).to(stored.device)
            tensors.append(packed.permute(sorted(range(len(axes)), key=axes.__getitem__)))
        return cast(Value, tensors[0] if stored.shell is None else replace(stored.shell, levels=tuple(tensors)))
