"""What an experiment is, where it is found, and the files it writes: tables, numbers, pictures, provenance."""

import csv
import io
import json
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image

from chmnet import __version__
from chmnet.benchmark.run import describe_machine
from chmnet.evaluation.report import Table
from chmnet.experiments import MODULES
from chmnet.experiments.store import Store
from chmnet.outputs import atomic_path, check_writable

Figures = dict[str, Any]
"""All numbers of an experiment, ready for JSON."""
Drawing = Image.Image | Figure

__all__ = [
    "Drawing",
    "Experiment",
    "Figures",
    "Table",
    "find_experiment",
    "run_experiment",
    "tables_of",
    "to_table",
]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper: what to measure, and how to show it."""

    name: str
    title: str
    paper: str
    """Where the paper has it."""
    measure: Callable[[Store], Figures]
    tables: Callable[[Figures], list[Table]]
    """From the numbers alone."""
    draw: Callable[[Store, Figures], Mapping[str, Drawing]]
    """Pictures by the ending of their names; the one without an ending shows no photograph of a data set."""
    seeds: int = 1
    """How often each model is trained."""


def to_table(rows: Sequence[Mapping[str, str]]) -> Table:
    """A table of rows that each have the headings of their cells as keys."""
    return Table(list(rows[0]), [list(row.values()) for row in rows])


def find_experiment(name: str) -> Experiment:
    """The experiment of that name; see :data:`chmnet.experiments.MODULES`."""
    experiment: Experiment = import_module(f"chmnet.experiments.{MODULES[name]}").EXPERIMENT
    return experiment


def run_experiment(experiment: Experiment, store: Store, command: str, overwrite: bool = False) -> list[Path]:
    """Measure, and write Markdown, CSV, JSON and PNG files named after the experiment.

    Args:
        experiment: what to do.
        store: data and models; the files go to its folder.
        command: that repeats it, for the record.
        overwrite: whether existing files may be replaced.

    Returns:
        The files.

    Raises:
        InputError: a file exists, or something required is missing.
    """
    folder = store.folder
    texts = [folder / f"{experiment.name}{ending}" for ending in (".json", ".md", ".csv")]
    for path in [*texts, folder / f"{experiment.name}.png"]:
        check_writable(path, overwrite)
    figures = experiment.measure(store)
    drawings = {
        folder / f"{experiment.name}{ending}.png": drawing
        for ending, drawing in experiment.draw(store, figures).items()
    }
    record = {
        "experiment": experiment.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "command": command,
        "chmnet": __version__,
        "seeds": list(store.setting.seeds(experiment.seeds)),
        "data": _describe_data(store, figures.get("benchmarks", store.benchmarks)),
        "training": _without_paths(store.setting.recipe),
        "machine": describe_machine(),
        "figures": figures,
    }
    contents = [
        json.dumps(record, indent=1, ensure_ascii=False) + "\n",
        _markdown(record, experiment, list(drawings)),
        _comma_separated(experiment.tables(figures)),
    ]
    with ExitStack() as stack:
        for path, text in zip(texts, contents, strict=True):
            stack.enter_context(atomic_path(path, overwrite)).write_text(text, encoding="utf-8")
        for path, drawing in drawings.items():
            _save(drawing, stack.enter_context(atomic_path(path, overwrite)))
    return [*texts, *drawings]


def tables_of(experiment: Experiment, record: Mapping[str, Any]) -> str:
    """The tables of a record in Markdown, each from the numbers in it."""
    return "\n\n".join(table.markdown() for table in experiment.tables(record["figures"]))


def _describe_data(store: Store, names: Container[str]) -> dict[str, Any]:
    return {
        benchmark.label: {
            "pairs": len(store.pairs(name)),
            "split": "test",
            "protocol": benchmark.protocol.describe(),
        }
        for name, benchmark in store.benchmarks.items()
        if name in names
    }


def _without_paths(recipe: dict[str, Any]) -> dict[str, Any]:
    sources = [{key: value for key, value in source.items() if key != "path"} for source in recipe["data"]]
    return {**recipe, "data": sources}


def _markdown(record: Mapping[str, Any], experiment: Experiment, drawings: list[Path]) -> str:
    data = [
        f"{label}, {facts['pairs']} {facts['split']} pairs: {facts['protocol']}"
        for label, facts in record["data"].items()
    ]
    machine = record["machine"]
    facts = [
        f"Command: `{record['command']}`, chmnet {record['chmnet']}",
        f"Seeds: {', '.join(map(str, record['seeds']))}",
        *(f"Data: {line}" for line in data),
        f"Training: `{json.dumps(record['training'], ensure_ascii=False)}`",
        f"Machine: {machine['threads']} threads, {machine['simd']}, PyTorch {machine['torch']}",
    ]
    parts = [
        f"# {experiment.title}",
        f"In the paper: {experiment.paper}.",
        tables_of(experiment, record),
        *(f"![{path.stem}]({path.name})" for path in drawings),
        "## How it was measured",
        "\n".join(f"- {fact}" for fact in facts),
    ]
    return "\n\n".join(parts) + "\n"


def _comma_separated(tables: list[Table]) -> str:
    """All tables, separated by empty lines."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, table in enumerate(tables):
        if number:
            text.write("\n")
        writer.writerows([table.headings, *table.rows])
    return text.getvalue()


def _save(drawing: Drawing, path: Path) -> None:
    if isinstance(drawing, Figure):
        drawing.savefig(path, format="png", dpi=150, metadata={"Software": None})
    else:
        drawing.save(path, format="PNG")
