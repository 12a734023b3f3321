"""Options that several commands share: one meaning, one help text."""

from typing import Annotated

import typer

from chmnet.errors import InputError

ModelName = Annotated[str, typer.Option(help="Name from `chmnet models`, or a model file. Default: chmnet-lite.")]
BackboneWeights = Annotated[
    str, typer.Option(help="Backbone weights for a model without them: a file, or `published`.")
]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, mps.")]


def parse_whole_numbers(text: str, what: str, example: str) -> tuple[int, ...]:
    """Several numbers of one option.

    Args:
        text: as a person wrote it.
        what: what the numbers are, for messages.
        example: how to write them, for messages.

    Raises:
        InputError: there are none, or they are something else.

    Example:
        >>> parse_whole_numbers("120, 240", "sizes", "120,240")
        (120, 240)
    """
    try:
        numbers = tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise InputError(f'{what} must be whole numbers, written "{example}", got {text!r}') from None
    if not numbers:
        raise InputError(f'{what} must be one or more whole numbers, written "{example}", got none')
    return numbers
