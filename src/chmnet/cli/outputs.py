"""Outputs of a command: checked before its work begins, in place when all of it is done."""

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from chmnet.errors import InputError
from chmnet.files import atomic_path, check_writable

if TYPE_CHECKING:
    from PIL.Image import Image


def check_outputs(inputs: Sequence[Path | None], outputs: Sequence[Path | None], overwrite: bool) -> None:
    """Refuse outputs that cannot be written, that are an input, or that are named twice.

    Args:
        inputs: files that the command reads or keeps.
        outputs: files that it will write; ``None`` is not asked for.
        overwrite: whether existing outputs may be replaced.

    Raises:
        InputError: one sentence about the first output that is refused.
    """
    taken = {path.resolve(): "an input" for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise InputError(f"{path} is {taken[path.resolve()]} already; choose another name")
        taken[path.resolve()] = "another output"
        check_writable(path, overwrite)


@contextmanager
def whole_outputs(
    inputs: Sequence[Path | None], outputs: Sequence[Path | None], overwrite: bool
) -> Iterator[dict[Path, Path]]:
    """Check outputs and give a temporary file for each; all get their names if the block ends well, else none.

    Raises:
        InputError: as :func:`check_outputs`, or a folder cannot be written to.
    """
    check_outputs(inputs, outputs, overwrite)
    with ExitStack() as stack:
        yield {path: stack.enter_context(atomic_path(path, overwrite)) for path in outputs if path is not None}


def write_json(document: Any, path: Path, overwrite: bool) -> None:
    """Write a document to a file, or to standard output where the name is ``-``."""
    text = json.dumps(document, indent=2) + "\n"
    if str(path) == "-":
        typer.echo(text, nl=False)
        return
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_picture_name(path: Path | None) -> None:
    """Refuse a name whose ending is no picture format that can be written.

    Raises:
        InputError: it is not.
    """
    if path is None:
        return
    from PIL.Image import SAVE, registered_extensions

    if registered_extensions().get(path.suffix.lower()) not in SAVE:
        raise InputError(f"cannot tell the picture format from {path.name!r}; end the name in .png or .jpg")


def save_picture(picture: "Image", path: Path, name: Path, **options: Any) -> None:
    """Save a picture to ``path``, which will be called ``name``.

    Raises:
        InputError: the format cannot hold it, or the disk is full.
    """
    try:
        picture.save(path, **options)
    except (OSError, ValueError, KeyError, struct.error) as error:  # what Pillow's encoders raise
        raise InputError(f"cannot write the picture {name}: {error}; try another format, such as .png") from None
