"""The tables of ``chmnet benchmark``."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

TITLES = {
    "model": "model",
    "baseline": "authors' way",
    "appendix-b": "appendix-B votes",
    "resnet101-baseline": "authors', ResNet-101",
}


def print_report(report: dict[str, Any]) -> None:
    """Print a report of :func:`chmnet.benchmark.run`."""
    console = Console()
    machine, parameters = report["machine"], report["parameters"]
    height, width = report["model"]["image_size"]
    rate = giga(machine["matrix_product_multiply_adds_per_second"])
    for line in (
        f"{report['model']['name']}, images of {height} × {width}",
        f"torch {machine['torch']}, {machine['simd']}, {machine['threads']} threads; "
        f"a matrix product does {rate} G multiply-adds a second",
        f"{parameters['total']:,} parameters: {parameters['backbone']:,} of the backbone, "
        f"{parameters['projections']:,} of the projections, {parameters['votes']:,} of the votes",
        f"{giga(report['multiply_adds']['total'])} G multiply-adds a pair",
        f"{report['repeats']} runs after one to warm up; median (quartiles)",
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    tables = [
        ("convolution", _convolutions),
        ("head", _head),
        ("training", _training),
        ("pair", _pair),
        ("growth", _growth),
    ]
    for part, make in tables:
        if part in report:
            for table in make(report):
                console.print()
                console.print(table)


def _convolutions(report: dict[str, Any]) -> list[Table]:
    tables = []
    for direction in ("forward", "forward_and_backward"):
        headings = (direction.replace("_", " "), "", "ms", "faster", "G a second", "of product", "peak MB")
        table = Table(*headings, box=None)
        for case, entry in report["convolution"].items():
            for name, row in entry[direction].items():
                table.add_row(
                    case,
                    escape(name),
                    _milliseconds(row),
                    f"{row['faster_than_appendix_b']:.2f}×",
                    giga(row["multiply_adds_per_second"]),
                    f"{row['share_of_matrix_product']:.0%}",
                    _megabytes(row),
                )
        tables.append(table)
    return tables


def _head(report: dict[str, Any]) -> list[Table]:
    head = report["head"]
    table = Table(f"head, {head['in_channels']} channels", "", "ms", "model is faster", "peak MB", box=None)
    for direction in ("forward", "forward_and_backward"):
        _add_candidates(table, direction.replace("_", " "), head[direction])
    return [table]


def _training(report: dict[str, Any]) -> list[Table]:
    training = report["training"]
    headings = (f"training, {training['in_channels']} cached channels", "", "ms", "model is faster", "peak MB")
    table = Table(*headings, box=None)
    _add_candidates(table, f"a step, {training['batch']} pairs", training["step"])
    return [table]


def _pair(report: dict[str, Any]) -> list[Table]:
    pair = report["pair"]
    whole = Table("pair", "", "ms", "model is faster", "peak MB", box=None)
    _add_candidates(whole, "a pair", pair["whole"])
    stages = Table("stage", "G", "ms", "share", "G a second", "authors' way", "share", box=None)
    for stage, entry in pair["stages"].items():
        model, baseline = entry["model"], entry["baseline"]
        stages.add_row(
            stage,
            giga(entry["multiply_adds"]) if entry["multiply_adds"] else "–",
            _milliseconds(model),
            f"{model['share']:.0%}",
            giga(model["multiply_adds_per_second"]) if "multiply_adds_per_second" in model else "–",
            _milliseconds(baseline),
            f"{baseline['share']:.0%}",
        )
    return [whole, stages]


def _growth(report: dict[str, Any]) -> list[Table]:
    sizes = Table("images of", "", "ms", "model is faster", "peak MB", box=None)
    for side, entry in report["growth"]["image_size"].items():
        _add_candidates(sizes, f"{side} × {side}", {name: entry[name] for name in ("model", "baseline")})
    cached = Table("pairs on cached features", "ms", "ms a pair", box=None)
    for count, row in report["growth"]["pairs_on_cached_features"].items():
        cached.add_row(count, _milliseconds(row), f"{row['pair_ms']:.1f}")
    return [sizes, cached]


def _add_candidates(table: Table, label: str, rows: dict[str, Any]) -> None:
    for name, row in rows.items():
        faster = "" if name == "model" else f"{row['model_is_faster']:.2f}×"
        table.add_row(label, TITLES[name], _milliseconds(row), faster, _megabytes(row))


def giga(number: float) -> str:
    """Billions.

    Example:
        >>> giga(1_550_390_625), giga(12_960_000)
        ('1.55', '0.013')
    """
    return f"{number / 1e9:.2f}" if number >= 1e8 else f"{number / 1e9:.3f}"


def _milliseconds(row: dict[str, Any]) -> str:
    digits = 0 if row["median_ms"] >= 100 else 1 if row["median_ms"] >= 10 else 2
    median, low, high = (f"{row[f'{name}_ms']:.{digits}f}" for name in ("median", "quartile_low", "quartile_high"))
    return f"{median} ({low}–{high})"


def _megabytes(row: dict[str, Any]) -> str:
    return "–" if row["peak_memory_mb"] is None else f"{row['peak_memory_mb']:.0f}"
