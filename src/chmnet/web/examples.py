"""Example pictures that the page offers, read once at the start from a folder that the operator named."""

import logging
from pathlib import Path
from typing import NamedTuple

from chmnet.data.examples import PAIRS
from chmnet.errors import ChmnetError
from chmnet.geometry import Size
from chmnet.web.decoder import decode_here, media_type
from chmnet.web.sessions import StoredPicture, content_id
from chmnet.web.settings import Limits

logger = logging.getLogger(__name__)

MOST_EXAMPLES = 24


class Example(NamedTuple):
    """A picture and what to call it."""

    title: str
    picture: StoredPicture


def load_examples(folder: Path | None, size: Size, limits: Limits) -> dict[str, Example]:
    """The pictures of a folder by content; files that are none are skipped and the log is told."""
    found: dict[str, Example] = {}
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder is not None else []
    for path in files:
        if len(found) == MOST_EXAMPLES or path.stat().st_size > limits.upload_bytes:
            continue
        data = path.read_bytes()
        kind = media_type(data)
        if kind is None:
            continue
        try:
            decoded = decode_here(data, size, 0, limits.pixels)
        except ChmnetError as error:
            logger.warning("the example %s is left out: %s", path.name, error)
            continue
        picture = StoredPicture(content_id(data), data, kind, decoded.size, decoded.picture)
        found[picture.id] = Example(_title(path), picture)
    return found


def example_pairs(examples: dict[str, Example]) -> list[tuple[str, str]]:
    """Pairs to begin with: those that are known to go together, else each picture with the next."""
    by_title = {example.title: key for key, example in examples.items()}
    names = [(_title(Path(pair.source)), _title(Path(pair.target))) for pair in PAIRS]
    known = [(by_title[a], by_title[b]) for a, b in names if a in by_title and b in by_title]
    keys = list(examples)
    return known or list(zip(keys[::2], keys[1::2], strict=False))


def _title(path: Path) -> str:
    return path.stem.replace("-", " ").replace("_", " ")
