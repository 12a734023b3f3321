"""The example pictures that come with the project, in pairs; in a try, views of the synthetic set."""

from typing import NamedTuple

from PIL import Image

from chmnet.errors import InputError
from chmnet.experiments.workshop import Workshop
from chmnet.pictures import to_picture

PAIRS = (
    ("donkey", "zebra"),
    ("european-bear", "black-bear"),
    ("sedan", "sportscar"),
    ("pairs/young-gnu", "pairs/gnu"),
    ("pairs/camel", "pairs/dromedary"),
    ("pairs/horse", "pairs/cow"),
    ("pairs/crow", "pairs/pigeon"),
)


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
    for name in (name for pair in PAIRS for name in pair):
        if not (workshop.examples / f"{name}.png").is_file():
            raise InputError(
                f"there is no {workshop.examples / name}.png; name the folder of chmnet's example pictures "
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
            " and ".join(name.removeprefix("pairs/").replace("-", " ") for name in pair),
            *(to_picture(workshop.examples / f"{name}.png") for name in pair),
        )
        for pair in PAIRS
    ]
