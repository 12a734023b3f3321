"""``chmnet experiment``: a table or figure of the paper, measured anew."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from chmnet.cli.io import parse_whole_numbers, track
from chmnet.errors import InputError

ROOT = "CHMNET_DATA"
"""Variable that names the data sets' folder for every command; a try does without, and minds it as little."""
NAMES = (
    "main",
    "cost",
    "kernels",
    "modules",
    "channels",
    "clutter",
    "scales",
    "learned-kernels",
    "multiple",
    "qualitative",
)


def experiment(
    name: Annotated[str, typer.Argument(help=f"{', '.join(NAMES)}; or all.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for tables, pictures and what they are made from.")
    ],
    root: Annotated[
        Path | None,
        typer.Option(envvar=ROOT, help="Folder that holds PF-PASCAL, PF-WILLOW and AnimalPose_VOC."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it on a small synthetic set: seconds, and meaningless numbers.")
    ] = False,
    resnet50: Annotated[
        str, typer.Option(help="File with ResNet-50's weights; without it, models on ResNet-50 are left out.")
    ] = "",
    examples: Annotated[Path, typer.Option(help="Folder of chmnet's example pictures.")] = Path("examples"),
    channels: Annotated[
        str, typer.Option(help="Numbers of channels to compare; the paper has 1,2,4,8,16.")
    ] = "1,4,16",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace tables that exist.")] = False,
) -> None:
    """Measure a table or figure of the paper: Markdown, CSV, JSON and PNG files.

    Models that are needed are trained first; all experiments with one output folder share them. Interrupted, the
    same command goes on where it stopped.

    Examples:

    `chmnet experiment kernels --quick -o try`

    `chmnet experiment kernels --root datasets -o results`
    """
    if name not in (*NAMES, "all"):
        raise InputError(f"there is no experiment {name!r}; there are {', '.join(NAMES)}, or all")
    everywhere = os.environ.get(ROOT)
    if quick and root is not None and (not everywhere or root != Path(everywhere)):
        raise InputError("--quick has a synthetic set of its own; leave out --root, or --quick")
    if not quick and root is None:
        raise InputError(f"where are the data sets? Name their folder with --root or {ROOT}, or try --quick")
    numbers = parse_whole_numbers(channels, "channels", "1,4")
    if min(numbers) < 1:
        raise InputError(f"a layer has at least one channel, got {channels!r}")
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; name a folder")
    if resnet50 and not Path(resnet50).is_file():
        raise InputError(f"there is no file {resnet50} with the weights of ResNet-50")
    from chmnet.experiments.experiment import run_experiment
    from chmnet.experiments.registry import EXPERIMENTS
    from chmnet.experiments.workshop import Setting, Workshop

    real = Setting.real(root) if root is not None and not quick else None  # before a folder is made in vain
    output.mkdir(parents=True, exist_ok=True)
    setting = real or Setting.synthetic(output)
    with Workshop(
        output,
        setting,
        resnet50,
        examples,
        sorted(set(numbers)),
        say=lambda text: typer.echo(text, err=True),
        track=lambda pairs: track(pairs, "pairs"),
    ) as workshop:
        for wanted in NAMES if name == "all" else (name,):
            if name == "all" and not overwrite and (output / f"{wanted}.json").exists():
                typer.echo(f"{output / wanted}.json is there already", err=True)
                continue
            where = ["--quick"] if quick else ["--root", "datasets"]
            weights = ["--resnet50", Path(resnet50).name] if resnet50 else []
            chosen = ["--channels", channels] if wanted == "channels" and channels != "1,4,16" else []
            folder = output.resolve().name
            command = shlex.join(["chmnet", "experiment", wanted, *where, *weights, *chosen, "-o", folder])
            for file in run_experiment(EXPERIMENTS[wanted], workshop, command, overwrite):
                typer.echo(f"wrote {file}")
