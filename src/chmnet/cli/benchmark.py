"""``chmnet benchmark``: time and memory of a model, against the authors' implementation in the same run."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli import io
from chmnet.cli.changes import describe_changes, parse_changes
from chmnet.config import PRESETS, BackboneConfig, ModelConfig
from chmnet.errors import InputError

if TYPE_CHECKING:
    from chmnet.nn.chmnet import CHMNet

DEFAULT = "paper"
TITLES = {
    "model": "model",
    "baseline": "authors' way",
    "appendix-b": "appendix-B votes",
    "resnet101-baseline": "authors', ResNet-101",
}
"""What the tables call the candidates of a report."""
COMPARED = ("", "ms", "model is faster", "peak MB")
TableRows = tuple[list[str], list[list[str]]]
"""The headings of a table and its rows."""


def benchmark(
    model: Annotated[
        str, io.option("MODEL", "paper, reference, a name from `chmnet models`, or a model file. Default: paper.")
    ] = "",
    config: Annotated[
        Path | None, io.option("FILE", "Configuration (.toml) to measure instead of a model.")
    ] = None,
    backbone: Annotated[str, io.option("NAME", "Another backbone, with random weights.")] = "",
    change: Annotated[
        list[str] | None,
        io.option("KEY=VALUE", "Change the configuration, such as correlation.scales=[1.0]; repeatable.", "--set"),
    ] = None,
    size: Annotated[
        int, io.option("NUMBER", "Height and width of the images. Default: the model's own.", show_default=False)
    ] = 0,
    sizes: Annotated[str, io.option("NUMBERS", "Image sizes for the part growth.")] = "120,240,360,480",
    threads: Annotated[
        int, io.option("NUMBER", "Threads. Default: as many as torch chooses.", show_default=False)
    ] = 0,
    device: io.Device = "cpu",
    repeats: Annotated[int, io.option("NUMBER", "Runs of each measurement, after one warm-up run.")] = 9,
    only: Annotated[str, io.option("NAMES", "Some of convolution,head,training,pair,growth. Default: all.")] = "",
    json_file: io.JsonOutput = None,
    plot: Annotated[Path | None, io.option("FILE", "Draw stages and growth here (.png).")] = None,
    overwrite: io.Overwrite = False,
) -> None:
    """Measure the time and memory of a model.

    Prints its parameters and multiply-adds, the time of a pair and of each stage, and peak memory.
    The authors' implementation (appendix-B convolutions, one backbone run for each image) and a plain matrix
    product run in turns with it. Weights are random unless a model file is named: time does not depend on them.

    \b
    Examples:
      chmnet benchmark --json cost.json --plot cost.png
      chmnet benchmark --backbone efficientnet-lite0 --only pair --threads 2
    """
    io.check_outputs([config], [plot], overwrite, json_file)
    io.check_ending(plot, "a plot", ".png")
    sides = io.parse_whole_numbers(sizes, "sizes", "120,240")
    for name, number in (("size", size), ("threads", threads)):
        if number < 0:
            raise InputError(f"{name} must be at least 1, got {number}")
    if threads > (most := 4 * (os.cpu_count() or 1)):
        raise InputError(f"threads must be at most {most}, four for each processor here, got {threads}")
    parts = [part.strip() for part in only.split(",") if part.strip()]
    if plot is not None and parts and not {"pair", "growth"} & set(parts):
        raise InputError("a plot shows pair and growth; measure one of them, or leave --plot out")
    title, network = _network(model, config, backbone, parse_changes(change or []))
    import torch

    from chmnet.benchmark import PARTS, Plan, run

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads or before)
        image_size = (size, size) if size else (network.config.image_size[0], network.config.image_size[1])
        plan = Plan(network, title, image_size, tuple(parts) or PARTS, sides, repeats=repeats, device=device)
        report = run(plan, lambda steps: io.track(steps, "measurements"))
    finally:
        torch.set_num_threads(before)
    if json_file is not None:
        io.write_json(report, json_file, overwrite)
    if plot is not None:
        from chmnet.viz import plot_cost

        io.save_figure(plot_cost(report), plot, overwrite)
    _print_report(report)


def _network(model: str, config: Path | None, backbone: str, changes: dict[str, Any]) -> "tuple[str, CHMNet]":
    """The model to measure and what to call it; random weights unless it comes from a file."""
    if model and config is not None:
        raise InputError("name a model or a configuration, not both")
    import torch

    from chmnet.nn.chmnet import CHMNet
    from chmnet.weights import MODELS, load_model

    name = config.name if config is not None else model or DEFAULT
    if config is not None:
        chosen = ModelConfig.from_toml(config)
    elif name in PRESETS:
        chosen = ModelConfig.preset(name)
    elif name in MODELS:
        chosen = MODELS[name].config
    else:  # a file, which has its own configuration; or nothing that exists
        return Path(name).name, load_model(name, backbone, changes=changes)
    chosen = chosen.replace(**changes)
    if backbone:
        chosen = chosen.replace(backbone=BackboneConfig.from_dict({"name": backbone}, where="the backbone"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return describe_changes(name, backbone, changes), CHMNet(chosen).eval()


def _print_report(report: dict[str, Any]) -> None:
    """Print a report of :func:`chmnet.benchmark.run`."""
    machine, parameters = report["machine"], report["parameters"]
    height, width = report["model"]["image_size"]
    rate = giga(machine["matrix_product_multiply_adds_per_second"])
    for line in (
        f"{report['model']['name']}, images of {height} × {width}",
        f"torch {machine['torch']}, {machine['device']}, {machine['simd']}, {machine['threads']} threads; "
        f"a matrix product does {rate} G multiply-adds a second",
        f"{parameters['total']:,} parameters: {parameters['backbone']:,} of the backbone, "
        f"{parameters['projections']:,} of the projections, {parameters['votes']:,} of the votes",
        f"{giga(report['multiply_adds']['total'])} G multiply-adds a pair",
        f"{report['repeats']} runs after one to warm up; median (quartiles)",
    ):
        typer.echo(line)
    tables = {"convolution": _convolutions, "head": _head, "training": _training, "pair": _pair, "growth": _growth}
    for part in [name for name in tables if name in report]:
        for headings, rows in tables[part](report[part]):
            typer.echo()
            io.print_table(headings, rows)


def _convolutions(part: dict[str, Any]) -> Iterator[TableRows]:
    for direction in ("forward", "forward_and_backward"):
        rows = []
        for case, entry in part.items():
            for name, row in entry[direction].items():
                faster, share = f"{row['faster_than_appendix_b']:.2f}×", f"{row['share_of_matrix_product']:.0%}"
                rate = giga(row["multiply_adds_per_second"])
                rows.append([case, name, _milliseconds(row), faster, rate, share, _megabytes(row)])
        yield [direction.replace("_", " "), "", "ms", "faster", "G a second", "of product", "peak MB"], rows


def _head(part: dict[str, Any]) -> Iterator[TableRows]:
    forward, both = (_candidates(key.replace("_", " "), part[key]) for key in ("forward", "forward_and_backward"))
    yield [f"head, {part['in_channels']} channels", *COMPARED], forward + both


def _training(part: dict[str, Any]) -> Iterator[TableRows]:
    rows = _candidates(f"a step, {part['batch']} pairs", part["step"])
    yield [f"training, {part['in_channels']} cached channels", *COMPARED], rows


def _pair(part: dict[str, Any]) -> Iterator[TableRows]:
    yield ["pair", *COMPARED], _candidates("a pair", part["whole"])
    rows = []
    for stage, entry in part["stages"].items():
        model, baseline = entry["model"], entry["baseline"]
        count = giga(entry["multiply_adds"]) if entry["multiply_adds"] else "–"
        rate = giga(model["multiply_adds_per_second"]) if "multiply_adds_per_second" in model else "–"
        ours, theirs = (f"{one['share']:.0%}" for one in (model, baseline))
        rows.append([stage, count, _milliseconds(model), ours, rate, _milliseconds(baseline), theirs])
    yield ["stage", "G", "ms", "share", "G a second", TITLES["baseline"], "share"], rows


def _growth(part: dict[str, Any]) -> Iterator[TableRows]:
    rows = []
    for side, entry in part["image_size"].items():
        rows += _candidates(f"{side} × {side}", {name: entry[name] for name in ("model", "baseline")})
    yield ["images of", *COMPARED], rows
    cached = part["pairs_on_cached_features"].items()
    yield (
        ["pairs on cached features", "ms", "ms a pair"],
        [[count, _milliseconds(row), f"{row['pair_ms']:.1f}"] for count, row in cached],
    )


def _candidates(label: str, rows: dict[str, Any]) -> list[list[str]]:
    faster = {name: f"{row['model_is_faster']:.2f}×" for name, row in rows.items()} | {"model": ""}
    return [[label, TITLES[name], _milliseconds(row), faster[name], _megabytes(row)] for name, row in rows.items()]


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
