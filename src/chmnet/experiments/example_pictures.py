"""The example pictures that come with the project, in pairs; in a try, views of the synthetic set."""

from pathlib import Path
from typing import NamedTuple

from PIL import Image

from chmnet.data.examples import PAIRS
from chmnet.errors import InputError
from chmnet.experiments.workshop import Workshop
from chmnet.pictures import to_picture


class ExamplePair(NamedTuple):
    """Two pictures of things of one kind."""

    title: str
    source: Image.Image
    target: Image.Image


def check_examples(workshop: Workshop) -> None:
    """Refuse a folder that lacks a picture: better before long work than after it.

    Raises:
        InputError: a picture is missing.
    """
    if workshop.setting.quick:
        return
    for name in (name for pair in PAIRS for name in (pair.source, pair.target)):
        if not (workshop.examples / name).is_file():
            raise InputError(
                f"there is no {workshop.examples / name}; name the folder of chmnet's example pictures "
                "with --examples"
            )


def example_pairs(workshop: Workshop) -> list[ExamplePair]:
    """All pairs.

    Raises:
        InputError: the folder of examples lacks a picture.
    """
    if workshop.setting.quick:
        name = next(iter(workshop.benchmarks))
        pairs = workshop.pairs(name)[:: len(workshop.pairs(name)) // 4 or 1][:4]
        return [
            ExamplePair(pair.category, to_picture(pair.source.path), to_picture(pair.target.path))
            for pair in pairs
        ]
    check_examples(workshop)
    return [
        ExamplePair(
            " and ".join(Path(name).stem.replace("-", " ") for name in (pair.source, pair.target)),
            to_picture(workshop.examples / pair.source),
            to_picture(workshop.examples / pair.target),
        )
        for pair in PAIRS
    ]
