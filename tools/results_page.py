"""Fill the tables and pictures of docs/results.md from the records of experiments.

``make docs``, or ``python tools/results_page.py docs/results.md results``.
"""

import json
import re
import sys
from pathlib import Path

from PIL import Image

from chmnet.errors import InputError
from chmnet.experiments import MODULES
from chmnet.experiments.runner import find_experiment, tables_of
from chmnet.outputs import atomic_path

BLOCK = re.compile(r"(<!-- tables of ([a-z-]+)\.json -->\n).*?(<!-- end of tables -->)", re.DOTALL)

PICTURE = re.compile(r"images/results-([a-z0-9-]+)\.(png|jpg)")
_LARGEST = (1400, 2000)
_PLOT_COLOURS = 96


def fill_tables(text: str, folder: Path) -> str:
    """The text with every block of tables written from its record.

    A block stands between ``<!-- tables of NAME.json -->`` and ``<!-- end of tables -->``.

    Raises:
        InputError: a record is missing, or no experiment has its name.
    """

    def filled(block: re.Match[str]) -> str:
        name = block[2]
        file = folder / f"{name}.json"
        if name not in MODULES or not file.is_file():
            raise InputError(f"there is no record {file} of an experiment; run `chmnet experiment {name}` first")
        record = json.loads(file.read_text(encoding="utf-8"))
        seeds = ", ".join(map(str, record["seeds"]))
        facts = f"`{record['command']}`; seeds {seeds}; chmnet {record['chmnet']}."
        return f"{block[1]}{tables_of(find_experiment(name), record)}\n\n{facts}\n{block[3]}"

    return BLOCK.sub(filled, text)


def copy_pictures(document: Path, folder: Path) -> list[Path]:
    """Copy the pictures that a document shows, reduced, from those that experiments drew.

    ``images/results-NAME.png`` beside the document comes from ``NAME.png``; those that end in ``.jpg`` show
    photographs. Pictures without a drawing in ``folder`` stay as they are.

    Returns:
        The pictures that were written.
    """
    written = []
    for name, ending in PICTURE.findall(document.read_text(encoding="utf-8")):
        drawn, shown = folder / f"{name}.png", document.parent / "images" / f"results-{name}.{ending}"
        if not drawn.is_file():
            continue
        with Image.open(drawn) as opened, atomic_path(shown) as temporary:
            picture = opened.convert("RGB")
            picture.thumbnail(_LARGEST)
            if ending == "png":
                picture.quantize(_PLOT_COLOURS).save(temporary, format="PNG", optimize=True)
            else:
                picture.save(temporary, format="JPEG", quality=82, optimize=True)
        written.append(shown)
    return written


if __name__ == "__main__":
    document, records = Path(sys.argv[1]), Path(sys.argv[2])
    copy_pictures(document, records)
    made = fill_tables(document.read_text(encoding="utf-8"), records)
    with atomic_path(document) as temporary:
        temporary.write_text(made, encoding="utf-8")
