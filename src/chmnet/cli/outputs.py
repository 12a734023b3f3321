"""Outputs of a command, checked before its work begins."""

from collections.abc import Sequence
from pathlib import Path

from chmnet.atomic import check_writable
from chmnet.errors import InputError


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


def check_picture_format(path: Path) -> None:
    """Refuse a name of a picture that does not tell a format in which it can be written."""
    from PIL.Image import SAVE, registered_extensions

    if registered_extensions().get(path.suffix.lower()) not in SAVE:
        raise InputError(f"cannot tell the picture format from {path.name!r}; end the name in .png or .jpg")
