"""Files in and out: JSON lines that a run adds to, TOML, tensors, the cache folder.

PyTorch and safetensors are imported when tensors are read or written: ``chmnet --help`` uses this file.
"""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from chmnet.errors import ConfigError, InputError, WeightsError
from chmnet.outputs import atomic_path, lock

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from torch import Tensor, nn


DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a line that was not written here may raise."""


class Journal:
    """JSON lines on disk, for runs that stop and resume: a first line of what the run is, then its results.

    Args:
        path: the file; :meth:`start` makes it.
        format_name: what the first line says that the file is, such as ``"chmnet-predictions-1"``.
        what: what it holds, for messages, such as ``"predictions"``.

    Raises:
        InputError: the path is a folder.

    Example:
        >>> import tempfile
        >>> journal = Journal(Path(tempfile.mkdtemp()) / "run.jsonl", "example-1", "results")
        >>> journal.start({"seed": 3})
        >>> journal.add({"answer": 42})
        >>> journal.read(lambda number, record: print(number, record))
        0 {'seed': 3}
        1 {'answer': 42}
    """

    def __init__(self, path: str | Path, format_name: str, what: str) -> None:
        self.path = Path(path)
        self.format_name = format_name
        self.what = what
        self._on_disk = 0  # bytes of the file as we know it
        self._whole = 0  # bytes of its whole lines
        self._handle: int | None = None
        if self.path.is_dir():
            raise InputError(f"{path} is a folder; name a file for the {what}")

    def read(self, take: Callable[[int, dict[str, Any]], None]) -> None:
        """Hand every line to ``take`` with its number, the header's being 0; a last line cut short is left out.

        Raises:
            InputError: a line is something else, or ``take`` cannot use it (any error of ``DAMAGED``).
        """
        if not self.path.exists():
            return
        check_ordinary(self.path, f"the {self.what}")
        whole = 0
        with self.path.open("rb") as file:
            self._on_disk = os.fstat(file.fileno()).st_size
            for number, line in enumerate(file):
                if not line.endswith(b"\n"):  # cut short
                    if number == 0 and not line.startswith(self._beginning[: len(line)]):
                        self._refuse(1)
                    break
                try:
                    record = json.loads(line)
                    if number == 0 and record.pop("format") != self.format_name:
                        self._refuse(1)
                    take(number, record)
                except InputError:
                    raise
                except DAMAGED:
                    self._refuse(number + 1)
                whole += len(line)
        self._whole = whole

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the file, so that no other process adds to it; what an interruption cut short is dropped.

        Raises:
            InputError: another process has it, or has changed it since it was read; or it cannot be written.
        """
        if self._handle is not None:
            yield
            return
        try:
            handle = os.open(self.path, os.O_RDWR | (0 if self._on_disk else os.O_CREAT), 0o666)
        except OSError as error:
            raise InputError(f"cannot write the {self.what} to {self.path}: {error.strerror}") from None
        try:
            if not lock(handle):
                raise InputError(f"another process is writing {self.path}; wait for it, or name another file")
            if os.fstat(handle).st_size != self._on_disk:
                raise InputError(f"another process has changed {self.path}; repeat the command to resume")
            self._handle = handle
            self._cut(self._whole)
            yield
        finally:
            self._handle = None
            os.close(handle)

    def start(self, header: dict[str, Any]) -> None:
        """Begin the file anew.

        Raises:
            InputError: it cannot be written, or another process has it.
        """
        with self.alone():
            self._cut(0)
            self.add({"format": self.format_name, **header})

    def add(self, record: dict[str, Any]) -> None:
        """Append one result: it is out of our hands when this returns, whatever happens to the process.

        Raises:
            InputError: as :meth:`alone`, or the disk is full.
        """
        with self.alone():
            assert self._handle is not None
            line = (json.dumps(record) + "\n").encode()
            try:
                os.lseek(self._handle, 0, os.SEEK_END)
                with os.fdopen(self._handle, "wb", closefd=False) as file:
                    file.write(line)
            except OSError as error:
                raise InputError(f"cannot write the {self.what} to {self.path}: {error.strerror}") from None
            self._whole += len(line)
            self._on_disk = self._whole

    def _cut(self, length: int) -> None:
        assert self._handle is not None
        os.truncate(self._handle, length)
        self._whole = self._on_disk = length

    @property
    def _beginning(self) -> bytes:
        return f'{{"format": "{self.format_name}"'.encode()

    def _refuse(self, line: int) -> NoReturn:
        raise InputError(
            f"{self.path}, line {line}, is not a file of {self.what}; name another file, or delete it"
        ) from None


def check_ordinary(path: str | Path, what: str) -> None:
    """Refuse a file that reading would never end: a device, a pipe, or a link that leads to itself.

    Args:
        path: the file; it may not exist.
        what: what it should hold, for the message.

    Raises:
        InputError: it is one.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot read {what} {path}: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise InputError(f"{path} is {kind}; name a file for {what}")


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: it cannot be read, or is no TOML.
    """
    try:
        check_ordinary(path, "the configuration")
        text = Path(path).read_text(encoding="utf-8")
    except InputError as error:
        raise ConfigError(str(error)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from None
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: too many digits, too deep
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def cache_folder() -> Path:
    """Where downloads are kept: ``$CHMNET_CACHE``, else ``~/.cache/chmnet``."""
    return Path(os.environ.get("CHMNET_CACHE") or Path.home() / ".cache" / "chmnet")


def read_tensors(path: str | Path) -> tuple[dict[str, "Tensor"], dict[str, str]]:
    """All tensors of a safetensors file, and its metadata.

    Raises:
        WeightsError: there is no such file, or it is damaged.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    try:
        if not path.is_file():
            raise WeightsError(f"there is no file {path}")
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is not a whole safetensors file: {error}") from None
    return tensors, metadata


def read_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a safetensors file, without its tensors.

    Raises:
        WeightsError: there is no such file, or it is damaged.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"there is no file {path}")
    try:
        with safe_open(path, framework="np") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is not a whole safetensors file: {error}") from None


def load_exactly(module: "nn.Module", tensors: dict[str, "Tensor"], origin: str | Path) -> None:
    """Give a module its tensors; every name and shape must fit, every number must be finite."""
    expected = module.state_dict()
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    for names, what in ((missing, "lacks"), (unknown, "has unknown")):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise WeightsError(f"{origin} {what} {', '.join(names[:3])}{more}; it belongs to another model")
    loaded = {}
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise WeightsError(
                f"{origin}: {name} has shape {list(tensor.shape)}, expected {list(expected[name].shape)}; "
                "it belongs to another model"
            )
        if expected[name].is_floating_point() != tensor.is_floating_point():
            kind = str(expected[name].dtype).removeprefix("torch.")
            raise WeightsError(f"{origin}: {name} is of type {tensor.dtype}, expected numbers like {kind}")
        device = "cpu" if expected[name].is_meta else expected[name].device
        try:
            loaded[name] = tensor.to(device, expected[name].dtype)
        except (RuntimeError, NotImplementedError):
            raise WeightsError(f"{origin}: {name} is of type {tensor.dtype}, which cannot be converted") from None
        if not loaded[name].isfinite().all():
            raise WeightsError(f"{origin}: {name} holds values that are not finite; the file is damaged")
    trainable = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
    module.load_state_dict(loaded, assign=True)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(trainable[name])


def write_tensors(
    path: str | Path, tensors: dict[str, "Tensor"], metadata: dict[str, str], overwrite: bool = True
) -> None:
    """Write a safetensors file, whole or not at all.

    Raises:
        InputError: the file exists and may not be replaced, or it cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with atomic_path(path, overwrite) as temporary:
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            save_file(plain, temporary, metadata)
        except SafetensorError as error:  # how safetensors reports a full disk
            raise InputError(f"cannot write {path}: {error}") from None
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # a power failure leaves the earlier file, not half of this one
