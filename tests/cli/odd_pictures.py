"""Pictures as people and enemies send them, for every command that opens pictures."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image


def photograph(size: tuple[int, int] = (60, 40)) -> Image.Image:
    """Something with structure."""
    pixels = np.random.default_rng(0).integers(0, 255, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


def _turned(folder: Path) -> Path:
    exif = Image.Exif()
    exif[0x0112] = 6
    return _save(photograph(), folder / "turned.jpg", exif=exif)


def _moving(folder: Path) -> Path:
    frames = [photograph(), photograph().rotate(180)]
    return _save(frames[0], folder / "moving.gif", save_all=True, append_images=frames[1:])


def _deep(folder: Path) -> Path:
    values = np.asarray(photograph().convert("L")).astype(np.uint16) * 257
    return _save(Image.fromarray(values), folder / "deep.png")


def _save(picture: Image.Image, path: Path, **options: object) -> Path:
    picture.save(path, **options)
    return path


ODD: dict[str, Callable[[Path], Path]] = {
    "rotated by EXIF": _turned,
    "grey": lambda folder: _save(photograph().convert("L"), folder / "grey.png"),
    "16 bits": _deep,
    "palette": lambda folder: _save(photograph().quantize(16), folder / "palette.png"),
    "CMYK": lambda folder: _save(photograph().convert("CMYK"), folder / "cmyk.jpg"),
    "transparent": lambda folder: _save(Image.new("RGBA", (30, 20), (9, 9, 9, 0)), folder / "clear.png"),
    "animated": _moving,
    "one pixel": lambda folder: _save(Image.new("RGB", (1, 1), "green"), folder / "one.png"),
    "one column": lambda folder: _save(photograph((1, 5000)), folder / "column.png"),
    "Unicode name": lambda folder: _save(photograph(), folder / "zèbre 斑马 🦓.png"),
}
"""Pictures that work: each function writes one into a folder."""


def _truncated(folder: Path) -> Path:
    whole = _save(Image.effect_noise((200, 200), 50).convert("RGB"), folder / "whole.jpg").read_bytes()
    path = folder / "half.jpg"
    path.write_bytes(whole[: len(whole) // 2])
    return path


def _text(folder: Path) -> Path:
    path = folder / "notes.png"
    path.write_text("hello")
    return path


def _empty(folder: Path) -> Path:
    path = folder / "empty.png"
    path.touch()
    return path


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "truncated": (_truncated, "cannot be read as a picture"),
    "no picture": (_text, "not a picture"),
    "empty": (_empty, "not a picture"),
    "missing": (lambda folder: folder / "none.png", "there is no picture"),
    "folder": (lambda folder: folder, "is a folder"),
}
"""Pictures that do not: the function, and words of the one sentence about it."""
