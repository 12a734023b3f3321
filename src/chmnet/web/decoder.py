"""Pictures are decoded in a process of their own (:mod:`chmnet.web.child`), which is ended when it takes too long.

A file of a few kilobytes can keep a decoder busy for minutes or ask for gigabytes; a thread could not be
stopped. The parent never sees a whole large picture: only what it asked for, the picture at the size of a
network's input or within a given side.
"""

import contextlib
import json
import logging
import subprocess
import sys
import threading
from typing import Any

from PIL import Image

from chmnet.geometry import Size
from chmnet.web.child import Decoded
from chmnet.web.errors import WebError

logger = logging.getLogger(__name__)


class Decoder:
    """The parent's side: one child, started again after it had to be ended.

    Args:
        seconds: time limit of one picture.
        pixels: most pixels of a picture.
    """

    def __init__(self, seconds: float, pixels: int) -> None:
        self.seconds = seconds
        self.pixels = pixels
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the child ahead of the first picture: loading its libraries takes a second."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def decode(self, data: bytes, size: Size | None = None, side: int = 0) -> Decoded:
        """Decode a picture file.

        Args:
            data: the file.
            size: (height, width) to resize to, as for a network.
            side: without ``size``, the picture keeps its shape and is made to fit a square of this side.

        Raises:
            WebError: not a picture of an accepted type, broken, too large, or too slow.
        """
        order = {"length": len(data), "size": size, "side": side, "pixels": self.pixels}
        with self._lock:
            child = self._running()
            late = threading.Event()
            timer = threading.Timer(self.seconds, _end_late, (child, late))
            timer.daemon = True
            timer.start()
            try:
                answer, pixels = _ask(child, order, data)
            except (OSError, ValueError, EOFError):
                self._end()
                if late.is_set():
                    logger.warning("a picture of %d bytes took longer than %g s", len(data), self.seconds)
                    sentence = f"the picture takes longer than {self.seconds:g} seconds to decode"
                else:
                    logger.warning("the decoder ended at a picture of %d bytes", len(data))
                    sentence = "the picture cannot be decoded"
                raise WebError(422, sentence, "save it again as PNG or JPEG, or make it smaller") from None
            finally:
                timer.cancel()
                if late.is_set():  # also when its answer came at the last moment: the next picture needs another
                    self._end()
        if "error" in answer:
            raise WebError(answer["status"], answer["error"], answer["what_to_do"])
        height, width = answer["shape"]
        return Decoded((answer["size"][0], answer["size"][1]), Image.frombytes("RGB", (width, height), pixels))

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            self._end()
            command = [sys.executable, "-m", "chmnet.web.child"]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what could not be written is lost anyway
                        pipe.close()
            self._child = None


def _ask(child: "subprocess.Popen[bytes]", order: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(order).encode() + b"\n" + data)
    child.stdin.flush()
    line = child.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    answer = json.loads(line)
    pixels = child.stdout.read(answer.get("length", 0))
    if len(pixels) < answer.get("length", 0):
        raise EOFError
    return answer, pixels


def _end_late(child: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    late.set()
    child.kill()
