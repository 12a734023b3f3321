"""``chmnet calibrate``: let a model's confidence say how often its matches are right."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chmnet.cli.io import BackboneWeights, check_outputs, track, write_json
from chmnet.config import parse_changes
from chmnet.errors import InputError

if TYPE_CHECKING:
    from chmnet.data import Pair
    from chmnet.metrics import Reliability


def calibrate(
    model: Annotated[str, typer.Argument(help="Name from `chmnet models`, or a model file.")],
    dataset: Annotated[str, typer.Option(help="pf-willow, pf-pascal, spair-71k, animal-pose or coco.")],
    root: Annotated[Path, typer.Option(help="Folder that holds PF-WILLOW, PF-PASCAL …")],
    split: Annotated[str, typer.Option(help="train, val or test.")] = "val",
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Option of the data set, such as maximum_pairs=200.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the calibrated model file here. Default: only measure and print."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw how often matches are right over their confidence here (.png).")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here as JSON.")] = None,
    backbone_weights: BackboneWeights = "",
    overwrite: Annotated[bool, typer.Option(help="Replace a file that exists.")] = False,
) -> None:
    """Fit a model's confidence to annotated pairs, or measure how far it keeps its word.

    A confidence of 0.8 then means: of ten such matches eight lie within a tenth of the picture. Calibrate on pairs
    that the model was not trained on. Of PF-PASCAL's validation pairs those of its training list are left out.

    Examples:

    `chmnet calibrate mine.safetensors --dataset pf-pascal --root datasets -o calibrated.safetensors`

    `chmnet calibrate chmnet-lite --dataset pf-willow --root datasets --split test`
    """
    check_outputs([Path(model)], [output, plot, json_file], overwrite)
    if plot is not None and plot.suffix.lower() != ".png":
        raise InputError(f"a plot must end in .png, got {plot.name!r}")
    for name in () if output is None else (model, str(output)):
        if Path(name).suffix != ".safetensors":
            raise InputError(f"a calibration is kept in a model file (.safetensors); {name!r} is none")
    from chmnet.evaluation.calibrate import collect_evidence, fit_calibration, recalibrated
    from chmnet.metrics import reliability
    from chmnet.weights import load_model, save_calibrated

    network = load_model(model, backbone_weights=backbone_weights)
    pairs = _pairs(dataset, root, split, option or [])
    found = collect_evidence(pairs, network, lambda items: track(items, "pairs"))
    now = reliability(found.confidence, found.correct)
    _print(f"confidence of {model}, {len(pairs)} pairs", now)
    calibration = fit_calibration(found.evidence, found.correct)
    new = reliability(recalibrated(found, calibration), found.correct)
    _print("calibrated anew, on the same pairs", new)
    typer.echo(f"calibration: {', '.join(f'{number:.3f}' for number in calibration)}")
    if output is not None:
        save_calibrated(model, calibration, output, f"{dataset}, {split}: {len(pairs)} pairs", overwrite)
        typer.echo(f"the calibrated model is in {output}")
    if json_file is not None:
        figures = {"now": asdict(now), "calibrated_anew": asdict(new), "calibration": calibration}
        write_json({"model": Path(model).name, "pairs": len(pairs), **figures}, json_file, overwrite)
    if plot is not None:
        _draw({Path(model).stem: now, "calibrated anew": new}, plot, overwrite)


def _draw(curves: "dict[str, Reliability]", path: Path, overwrite: bool) -> None:
    from chmnet.files import atomic_path
    from chmnet.viz import plot_reliability

    points = {name: [(mean, share) for _, _, mean, share in found.bins] for name, found in curves.items()}
    with atomic_path(path, overwrite) as temporary:
        plot_reliability(points).savefig(temporary, format="png", dpi=150)


def _pairs(dataset: str, root: Path, split: str, option: list[str]) -> "list[Pair]":
    from chmnet.data import deduplicate, load_pairs, training_pairs

    pairs = load_pairs(dataset, root, split, **parse_changes(option))
    return deduplicate(pairs, training_pairs(root)) if (dataset, split) == ("pf-pascal", "val") else pairs


def _print(title: str, found: "Reliability") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(escape(title), "matches", "mean confidence", "correct", box=None)
    for low, count, mean, share in found.bins:
        table.add_row(f"{low:.1f} – {low + 0.1:.1f}", str(count), f"{mean:.2f}", f"{share:.2f}")
    console = Console()
    console.print(table)
    console.print(
        f"calibration error {found.calibration_error:.3f}; AUROC {found.auroc:.3f}; "
        f"{found.correct:.1%} of all matches are correct\n",
        highlight=False,
        soft_wrap=True,
    )
