"""``chmnet experiment``: measures a table or figure of the paper again."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from chmnet.cli.io import Device, Overwrite, argument, option, parse_whole_numbers, track
from chmnet.errors import InputError
from chmnet.experiments import MODULES

ROOT = "CHMNET_DATA"
"""Variable that names the folder of the data sets for every command; quick mode ignores it."""
NAMES = tuple(MODULES)
CHANNELS = "1,2,4,8,16"
"""The paper's numbers of channels."""


def experiment(
    name: Annotated[str, argument("NAME", f"{', '.join(NAMES)}; or all.")],
    output: Annotated[
        Path, option("FOLDER", "Folder for tables, pictures, trained models and predictions.", "--output", "-o")
    ],
    root: Annotated[
        Path | None, option("FOLDER", "Folder with PF-PASCAL, PF-WILLOW and AnimalPose_VOC.", envvar=ROOT)
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Quick mode: seconds on a small synthetic set; the numbers mean nothing."),
    ] = False,
    resnet50: Annotated[
        str, option("FILE", "Weights of ResNet-50; without them, models on ResNet-50 are left out.")
    ] = "",
    examples: Annotated[Path, option("FOLDER", "Example pictures.")] = Path("examples"),
    channels: Annotated[str, option("NUMBERS", "Numbers of channels to compare.")] = CHANNELS,
    device: Device = "auto",
    overwrite: Overwrite = False,
) -> None:
    """Measure a table or figure of the paper.

    Writes Markdown, CSV, JSON and PNG files. Trains the models that are needed first; all experiments with one
    output folder share them. After an interruption, the same command resumes where it stopped.

    \b
    Examples:
      chmnet experiment kernels --quick -o quick-results
      chmnet experiment kernels --root datasets -o results
    """
    if name not in (*NAMES, "all"):
        raise InputError(f"there is no experiment {name!r}; there are {', '.join(NAMES)}, or all")
    everywhere = os.environ.get(ROOT)
    if quick and root is not None and (not everywhere or root != Path(everywhere)):
        raise InputError("--quick has a synthetic set of its own; leave out --root, or --quick")
    if not quick and root is None:
        raise InputError(f"where are the data sets? Name their folder with --root or {ROOT}, or use --quick")
    numbers = parse_whole_numbers(channels, "channels", "1,4")
    if min(numbers) < 1:
        raise InputError(f"a layer has at least one channel, got {channels!r}")
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; name a folder")
    if resnet50 and not Path(resnet50).is_file():
        raise InputError(f"there is no file {resnet50} with the weights of ResNet-50")
    from chmnet.experiments.runner import find_experiment, run_experiment
    from chmnet.experiments.store import Setting, Store

    real = Setting.real(root) if root is not None and not quick else None  # before a folder is made in vain
    output.mkdir(parents=True, exist_ok=True)
    setting = real or Setting.synthetic(output)
    with Store(
        output,
        setting,
        resnet50,
        examples,
        sorted(set(numbers)),
        say=lambda text: typer.echo(text, err=True),
        track=lambda pairs: track(pairs, "pairs"),
        device=device,
    ) as store:
        for wanted in NAMES if name == "all" else (name,):
            if name == "all" and not overwrite and (output / f"{wanted}.json").exists():
                typer.echo(f"{output / wanted}.json is there already", err=True)
                continue
            where = ["--quick"] if quick else ["--root", "datasets"]
            weights = ["--resnet50", Path(resnet50).name] if resnet50 else []
            chosen = ["--channels", channels] if wanted == "channels" and channels != CHANNELS else []
            folder = Path(os.path.realpath(output)).name
            command = shlex.join(["chmnet", "experiment", wanted, *where, *weights, *chosen, "-o", folder])
            for file in run_experiment(find_experiment(wanted), store, command, overwrite):
                typer.echo(f"wrote {file}")
