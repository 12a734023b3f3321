"""``chmnet calibrate``: make a model's confidence the share of its matches that are correct."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chmnet.cli import io
from chmnet.cli.changes import parse_changes
from chmnet.errors import InputError

if TYPE_CHECKING:
    from chmnet.metrics import Reliability


def calibrate(
    model: Annotated[str, io.argument("MODEL", "Name from `chmnet models`, or a model file.")],
    dataset: io.Dataset,
    root: io.DataRoot,
    split: io.Split = "val",
    data_option: io.DataOptions = None,
    output: Annotated[
        Path | None,
        io.option("FILE", "Write the calibrated model here. Default: measure and print.", "--output", "-o"),
    ] = None,
    plot: Annotated[Path | None, io.option("FILE", "Draw accuracy against confidence here (.png).")] = None,
    json_file: Annotated[Path | None, io.option("FILE", "Write the figures here as JSON.", "--json")] = None,
    backbone_weights: io.BackboneWeights = "",
    device: io.Device = "auto",
    overwrite: io.Overwrite = False,
) -> None:
    """Measure or fit a model's confidence.

    After calibration, eight of ten matches with confidence 0.8 lie within a tenth of the picture's longer side.
    Calibrate on pairs that the model was not trained on. PF-PASCAL's validation pairs that are also in its
    training list are left out.

    \b
    Examples:
      chmnet calibrate chmnet-lite --dataset pf-willow --root data --split test
      chmnet calibrate a.safetensors --dataset coco --root cats -o b.safetensors
    """
    io.check_outputs([Path(model)], [output, plot, json_file], overwrite)
    io.check_ending(plot, "a plot", ".png")
    for name in () if output is None else (model, str(output)):
        if Path(name).suffix != ".safetensors":
            raise InputError(f"a calibration is stored in a model file (.safetensors), got {name!r}")
    from chmnet import data
    from chmnet.config import CalibrationConfig
    from chmnet.evaluation.calibrate import collect_evidence, fit_calibration, recalibrated
    from chmnet.metrics import reliability
    from chmnet.weights import load_model, save_calibrated

    network = load_model(model, backbone_weights=backbone_weights)
    pairs = data.load_pairs(dataset, root, split, **parse_changes(data_option or []))
    if (dataset, split) == ("pf-pascal", "val"):
        pairs = data.deduplicate(pairs, data.training_pairs(root))
    found = collect_evidence(pairs, network, lambda items: io.track(items, "pairs"), device)
    now = reliability(found.confidence, found.correct)
    _print(f"confidence of {model}, {len(pairs)} pairs", now)
    calibration = fit_calibration(found.evidence, found.correct)
    new = reliability(recalibrated(found, calibration), found.correct)
    _print("after calibration on the same pairs", new)
    typer.echo(f"calibration: {', '.join(f'{number:.3f}' for number in calibration)}")
    if output is not None:
        origin = f"{dataset}, {split}: {len(pairs)} pairs"
        save_calibrated(model, CalibrationConfig(match=calibration), output, origin, overwrite)
        typer.echo(f"wrote the calibrated model to {output}")
    if json_file is not None:
        figures = {"now": asdict(now), "calibrated_anew": asdict(new), "calibration": calibration}
        io.write_json({"model": Path(model).name, "pairs": len(pairs), **figures}, json_file, overwrite)
    if plot is not None:
        from chmnet.viz import plot_reliability

        curves = {Path(model).stem: now.bins, "after calibration": new.bins}
        points = {name: [(mean, share) for _, _, mean, share in bins] for name, bins in curves.items()}
        io.save_figure(plot_reliability(points), plot, overwrite)


def _print(title: str, found: "Reliability") -> None:
    io.print_table(
        [title, "matches", "mean confidence", "correct"],
        [
            [f"{low:.1f} – {low + 0.1:.1f}", str(count), f"{mean:.2f}", f"{share:.2f}"]
            for low, count, mean, share in found.bins
        ],
    )
    typer.echo(
        f"calibration error {found.calibration_error:.3f}; AUROC {found.auroc:.3f}; "
        f"{found.correct:.1%} of all matches are correct\n"
    )
