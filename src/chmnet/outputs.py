"""Files that are written whole or not at all, by one process at a time.

An output is written under a temporary name beside it, ``.NAME.chmnet-part.ENDING``, which the process holds.
So a second process with the same output is refused before it works, and what a killed process left is taken over
by the next. The lock is advisory; on systems without ``flock`` there is none.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chmnet.errors import InputError

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

PART = ".chmnet-part"
STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_MOST_LINKS = 40


@contextmanager
def atomic_path(path: str | Path, overwrite: bool = True) -> Iterator[Path]:
    """Give a temporary path beside ``path``; it takes that name only if the block ends well.

    A link stays: the file that it names is written.

    Args:
        path: the file to write.
        overwrite: whether an existing file may be replaced.

    Raises:
        InputError: the file exists and may not be replaced, the folder cannot be written to, or another process
            writes the same file.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with atomic_path(folder / "numbers.txt") as temporary:
        ...     _ = temporary.write_text("1 2 3")
        >>> [file.name for file in folder.iterdir()]
        ['numbers.txt']
    """
    path = Path(path)
    try:
        check_writable(path, overwrite)
        real = Path(os.path.realpath(path))
        temporary = real.with_name(f".{real.stem}{PART}{real.suffix}")
        handle = _open_alone(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write to the folder {path.parent}: {error.strerror}") from None
    renamed = False
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        if overwrite:
            temporary.replace(real)
            renamed = True
        else:
            _name_anew(temporary, real, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if not renamed:  # afterwards the name may be another's
            temporary.unlink(missing_ok=True)
        os.close(handle)


def _name_anew(temporary: Path, real: Path, path: Path) -> None:
    """Give a file a second name that no other has, in one step where the file system can."""
    try:
        os.link(temporary, real)
    except FileExistsError:
        check_writable(path, overwrite=False)
    except OSError:
        temporary.replace(real)


def _open_alone(temporary: Path, path: Path) -> int:
    """Open a temporary file, empty and locked.

    Raises:
        InputError: another process has it.
    """
    while True:
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if not lock(handle):
            os.close(handle)
            raise InputError(f"another process is writing {path}; wait for it, or name another file")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), temporary.stat()):
                os.truncate(handle, 0)
                return handle
        os.close(handle)  # the other process ended between our two calls; what we opened is its output


def lock(handle: int) -> bool:
    """Lock an open file for this process until it is closed; whether nobody else has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold a file or folder that exists, so that no other process uses it in the same way at the same time.

    Args:
        path: the file or folder.
        what: what another process would be doing with it, for the message.

    Raises:
        InputError: another process holds it.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        if not lock(handle):
            raise InputError(f"another process is {what} {path}; wait for it, or name another")
        yield
    finally:
        os.close(handle)


def is_standard_output(path: str | Path | None) -> bool:
    """Whether a name means standard output: ``-``, ``/dev/stdout``, or a link to it.

    Example:
        >>> is_standard_output("-"), is_standard_output("matches.json")
        (True, False)
    """
    if path is None:
        return False
    path = Path(path)
    for _ in range(_MOST_LINKS):
        if str(path) in STANDARD_OUTPUT or (path.parent.name, path.name) == ("fd", "1"):
            return True
        if not path.is_symlink():
            return False
        path = Path(os.path.normpath(path.parent / path.readlink()))
    return False


def check_writable(path: str | Path, overwrite: bool) -> None:
    """Refuse what cannot be written, or exists and may not be replaced: better before long work than after it.

    Devices and pipes are refused always: a file that takes the name of ``/dev/null`` breaks the machine. So are
    links to what does not exist: nobody meant to write there.
    """
    path = Path(path)
    if is_standard_output(path):
        raise InputError(f"{path} is standard output, which takes JSON only; name a file to write")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is a device or a pipe, which cannot be replaced; name a file to write")
    if path.is_symlink() and not path.exists():
        raise InputError(f"{path} is a link to {path.readlink()}, which does not exist; name the file itself")
    if path.exists() and not overwrite:
        how = "(--overwrite, or overwrite=True in Python)"
        raise InputError(f"{path} exists already; choose another name, or allow overwriting {how}")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise InputError(f"cannot write to the folder {path.parent}: there is no such folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to the folder {folder}: permission denied")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
