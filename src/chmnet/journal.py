"""A file of JSON lines that grows while a long run goes on, so that the run can stop at any moment and go on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from chmnet.errors import InputError

DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a line that was not written here may raise."""


class Journal:
    """JSON lines on disk: the first says what the run is, each other holds one result.

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
        if self.path.is_dir():
            raise InputError(f"{path} is a folder; name a file for the {what}")

    def read(self, take: Callable[[int, dict[str, Any]], None]) -> None:
        """Hand every line to ``take`` with its number, the header's being 0; a last line cut short is dropped.

        Raises:
            InputError: a line is something else, or ``take`` cannot use it (any error of ``DAMAGED``).
        """
        if not self.path.exists():
            return
        whole = 0
        with self.path.open("rb") as file:
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
        if whole < self.path.stat().st_size:
            with self.path.open("r+b") as file:
                file.truncate(whole)

    def start(self, header: dict[str, Any]) -> None:
        """Begin the file anew.

        Raises:
            InputError: it cannot be written.
        """
        try:
            self.path.write_text(json.dumps({"format": self.format_name, **header}) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write the {self.what} to {self.path}: {error.strerror}") from None

    def add(self, record: dict[str, Any]) -> None:
        """Append one result: it is out of our hands when this returns, whatever happens to the process."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @property
    def _beginning(self) -> bytes:
        return f'{{"format": "{self.format_name}"'.encode()

    def _refuse(self, line: int) -> NoReturn:
        raise InputError(
            f"{self.path}, line {line}, is not a file of {self.what}; name another file, or delete it"
        ) from None
