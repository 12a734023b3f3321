"""Files that are written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chmnet.errors import InputError


@contextmanager
def atomic_path(path: str | Path, overwrite: bool = True) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it takes that name only if the block ends well.

    Args:
        path: the file to write.
        overwrite: whether an existing file may be replaced.

    Raises:
        InputError: the file exists and may not be replaced, or the folder cannot be written to.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with atomic_path(folder / "numbers.txt") as temporary:
        ...     _ = temporary.write_text("1 2 3")
        >>> [file.name for file in folder.iterdir()]
        ['numbers.txt']
    """
    path = Path(path)
    try:
        check_writable(path, overwrite)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot write to the folder {path.parent}: {error.strerror}") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: str | Path, overwrite: bool) -> None:
    """Refuse a folder, or a file that exists and may not be replaced: better before long work than after it.

    Devices and pipes are refused always: a file that takes the name of ``/dev/null`` breaks the machine.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is a device or a pipe, which cannot be replaced; name a file to write")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another name, or allow overwriting (--overwrite)")
    if not path.parent.is_dir():
        raise InputError(f"cannot write to the folder {path.parent}: there is no such folder")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
