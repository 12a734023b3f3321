"""A real server in a process of its own, for the slow tests."""

import json
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from .conftest import EXAMPLES


class RunningServer:
    """A server process and its address."""

    def __init__(self, process: "subprocess.Popen[str]", address: str, errors: IO[str]) -> None:
        self.process = process
        self.address = address
        self._errors = errors

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def ask(
        self,
        path: str,
        data: bytes | None = None,
        method: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes, dict[str, str]]:
        """One request; errors are answers too."""
        request = urllib.request.Request(self.address + path, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read(), dict(answer.headers.items())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), dict(error.headers.items())

    def json(self, path: str) -> Any:
        return json.loads(self.ask(path)[1])

    def log(self) -> str:
        """All that the server wrote to its log."""
        self._errors.seek(0)
        return self._errors.read()

    def own_mb(self) -> float:
        """Memory that the server itself holds now."""
        import psutil

        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20

    def resident_mb(self) -> float:
        """Memory that the server and its decoder hold now."""
        import psutil

        process = psutil.Process(self.process.pid)
        return sum(each.memory_info().rss for each in (process, *process.children())) / 2**20


@contextmanager
def running_server(*arguments: str, port: int = 0) -> Iterator[RunningServer]:
    """Start ``chmnet serve`` and wait until it answers."""
    command = [
        sys.executable,
        "-m",
        "chmnet",
        "serve",
        "--examples",
        str(EXAMPLES),
        "--port",
        str(port),
        "--no-browser",
        *arguments,
    ]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert found, "the server did not start"
            server = RunningServer(process, found.group(), errors)
            yield server
        finally:
            process.terminate()
            process.wait(timeout=20)
