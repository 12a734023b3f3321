"""``chmnet benchmark``: what a model costs, against the authors' way in the same run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli.io import check_outputs, parse_whole_numbers, track
from chmnet.config import PRESETS, BackboneConfig, ModelConfig, parse_changes
from chmnet.errors import InputError
from chmnet.files import atomic_path

if TYPE_CHECKING:
    from chmnet.nn.chmnet import CHMNet

DEFAULT = "paper"


def benchmark(
    model: Annotated[
        str, typer.Option(help="paper, reference, a name from `chmnet models`, or a model file. Default: paper.")
    ] = "",
    config: Annotated[Path | None, typer.Option(help="A configuration (.toml) instead of a model.")] = None,
    backbone: Annotated[str, typer.Option(help="Another backbone, with random weights.")] = "",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change the configuration: dimensions=4d-4d.")
    ] = None,
    size: Annotated[
        int, typer.Option(show_default=False, help="Height and width of the images. Default: the model's own.")
    ] = 0,
    sizes: Annotated[str, typer.Option(help="Sizes whose growth is measured.")] = "120,240,360,480",
    threads: Annotated[
        int, typer.Option(show_default=False, help="Threads to use. Default: as many as torch chooses.")
    ] = 0,
    repeats: Annotated[int, typer.Option(help="Runs of each measurement, after one to warm up.")] = 9,
    only: Annotated[str, typer.Option(help="Some of convolution,head,training,pair,growth. Default: all.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all numbers here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw stages and growth here (.png).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
) -> None:
    """Measure a model: parameters, multiply-adds, time of a pair and of each stage, peak memory.

    The authors' way (appendix-B convolutions, a backbone for each image) and a plain matrix product run in turns
    with it. Weights are random unless a model file is named: time does not depend on them.

    Examples:

    `chmnet benchmark --json cost.json --plot cost.png`

    `chmnet benchmark --backbone efficientnet-lite0 --set dimensions=4d-4d --only pair --threads 2`
    """
    check_outputs([config], [json_file, plot], overwrite)
    if plot is not None and plot.suffix.lower() != ".png":
        raise InputError(f"a plot must end in .png, got {plot.name!r}")
    sides = parse_whole_numbers(sizes, "sizes", "120,240")
    for name, number in (("size", size), ("threads", threads)):
        if number < 0:
            raise InputError(f"{name} must be at least 1, got {number}")
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
        plan = Plan(network, title, image_size, tuple(parts) or PARTS, sides, repeats=repeats)
        report = run(plan, lambda steps: track(steps, "measurements"))
    finally:
        torch.set_num_threads(before)
    if json_file is not None:
        with atomic_path(json_file, overwrite) as temporary:
            temporary.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if plot is not None:
        _draw(report, plot, overwrite)
    from chmnet.cli.cost_tables import print_report

    print_report(report)


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
    details = [backbone] * bool(backbone) + [f"{key}={value}" for key, value in changes.items()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return f"{name} ({', '.join(details)})" if details else name, CHMNet(chosen).eval()


def _draw(report: dict[str, Any], path: Path, overwrite: bool) -> None:
    from chmnet.viz import plot_cost

    with atomic_path(path, overwrite) as temporary:
        plot_cost(report).savefig(temporary, format="png", dpi=150)
