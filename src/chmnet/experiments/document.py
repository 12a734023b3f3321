"""Tables of ``docs/results.md``, filled in from the records under ``results``.

python -m chmnet.experiments.document docs/results.md results
"""

import json
import re
import sys
from pathlib import Path

from chmnet.atomic import atomic_path
from chmnet.errors import InputError
from chmnet.experiments.experiment import tables_of
from chmnet.experiments.registry import EXPERIMENTS

BLOCK = re.compile(r"(<!-- tables of ([a-z-]+)\.json -->\n).*?(<!-- end of tables -->)", re.DOTALL)


def fill_tables(text: str, folder: Path) -> str:
    """The text with every block of tables made anew from its record.

    A block stands between ``<!-- tables of NAME.json -->`` and ``<!-- end of tables -->``.

    Raises:
        InputError: a record does not exist, or is of no experiment.
    """

    def filled(block: re.Match[str]) -> str:
        name = block[2]
        file = folder / f"{name}.json"
        if name not in EXPERIMENTS or not file.is_file():
            raise InputError(f"there is no record {file} of an experiment; run `chmnet experiment {name}` first")
        record = json.loads(file.read_text(encoding="utf-8"))
        seeds = ", ".join(map(str, record["seeds"]))
        facts = f"`{record['command']}`; seeds {seeds}."
        return f"{block[1]}{tables_of(EXPERIMENTS[name], record)}\n\n{facts}\n{block[3]}"

    return BLOCK.sub(filled, text)


if __name__ == "__main__":
    document, records = Path(sys.argv[1]), Path(sys.argv[2])
    made = fill_tables(document.read_text(encoding="utf-8"), records)
    with atomic_path(document) as temporary:
        temporary.write_text(made, encoding="utf-8")
