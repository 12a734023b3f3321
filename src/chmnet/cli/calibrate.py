"""``chmnet calibrate``: make a model's probabilities the shares of what is right."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from chmnet.cli import io
from chmnet.cli.changes import parse_changes
from chmnet.errors import InputError

if TYPE_CHECKING:
    from chmnet.data.pairs import Pair
    from chmnet.evaluation.calibrate import Evidence
    from chmnet.metrics import Reliability

Value = TypeVar("Value")
SURE = 0.8
"""Wrong matches above this confidence are counted where the target was mirrored."""


def calibrate(
    model: Annotated[str, io.argument("MODEL", "Name from `chmnet models`, or a model file.")],
    dataset: Annotated[list[str], io.option("NAME", f"{io.DATASETS}; repeatable.")],
    root: Annotated[
        list[Path], io.option("FOLDER", "Folder with the data set; one for all, or one for each data set.")
    ],
    split: Annotated[
        list[str] | None, io.option("NAME", "train, val or test; one for all, or one for each. Default: val.")
    ] = None,
    weight: Annotated[
        list[float] | None,
        io.option("NUMBER", "How much a data set counts in the fit; one for each. Default: all the same.", min=0),
    ] = None,
    data_option: io.DataOptions = None,
    poses: Annotated[
        bool,
        typer.Option(
            "--poses",
            help="Fit choices too: when the target is mirrored, when turned, and when a small thing is searched.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        io.option("FILE", "Write the calibrated model here. Default: measure and print.", "--output", "-o"),
    ] = None,
    plot: Annotated[Path | None, io.option("FILE", "Draw accuracy against confidence here (.png).")] = None,
    json_file: io.JsonOutput = None,
    backbone_weights: io.BackboneWeights = "",
    device: io.Device = "auto",
    overwrite: io.Overwrite = False,
) -> None:
    """Measure or fit a model's probabilities.

    After calibration, eight of ten matches with confidence 0.8 lie within a tenth of the longer side of the thing:
    its box, or the box around its keypoints. Two more probabilities are fitted where the pairs tell of them: that
    two pictures show the same kind of thing, from pairs of different categories; and that a point has no match,
    from these, from keypoints that only the source shows, and from the background.
    Calibrate on pairs that the model was not trained on. PF-PASCAL's validation pairs that are also in its
    training list are left out.

    \b
    Examples:
      chmnet calibrate chmnet-lite --dataset pf-willow --root data --split test
      chmnet calibrate a.safetensors --dataset coco --root cats -o b.safetensors
    """
    io.check_outputs([Path(model)], [output, plot], overwrite, json_file)
    io.check_ending(plot, "a plot", ".png")
    for name in () if output is None else (model, str(output)):
        if Path(name).suffix != ".safetensors":
            raise InputError(f"a calibration is stored in a model file (.safetensors), got {name!r}")
    roots, splits = _for_each("root", root, dataset), _for_each("split", split or ["val"], dataset)
    weights = _for_each("weight", weight or [1.0], dataset)
    from chmnet.evaluation.calibrate import check_count, collect_evidence, fit_calibration, probabilities
    from chmnet.metrics import reliability
    from chmnet.weights import load_model, save_calibrated

    network = load_model(model, backbone_weights=backbone_weights)
    sets = _load_pairs(dataset, roots, splits, parse_changes(data_option or []))
    check_count(sets)  # before the poses, which take long
    count = sum(map(len, sets))
    if poses:
        from chmnet.evaluation.places import collect_places, fit_place
        from chmnet.evaluation.poses import collect_poses, fit_poses
        from chmnet.evaluation.turns import collect_turns, fit_turns

        mirrored = [
            collect_poses(pairs, network, lambda items: io.track(items, "poses"), device) for pairs in sets
        ]
        turned = [collect_turns(pairs, network, lambda items: io.track(items, "turns"), device) for pairs in sets]
        reduced = [
            collect_places(pairs, network, lambda items: io.track(items, "places"), device) for pairs in sets
        ]
        choices = {"pose": fit_poses(mirrored), "turn": fit_turns(turned), "place": fit_place(reduced)}
        network.config = network.config.replace(calibration=choices)
    found = collect_evidence(sets, network, lambda items: io.track(items, "pairs"), device)
    calibration = fit_calibration(found, weights, network.config.calibration)
    confidence = probabilities(found.evidence, calibration.match)
    now = reliability(found.confidence[found.plain], found.correct[found.plain])
    new = reliability(confidence[found.plain], found.correct[found.plain])
    _print(f"confidence of {model}, {count} pairs", now)
    _print("after calibration on the same pairs", new)
    more_now = _more(found, found.confidence, found.unmatched, found.same_kind)
    unmatched = 1 - probabilities(found.evidence, calibration.unmatched)
    more_new = _more(found, confidence, unmatched, probabilities(found.pairs, calibration.same_kind))
    io.print_table(
        ["", "now", "after"], [[name, _number(more_now[name]), _number(more_new[name])] for name in more_now]
    )
    for name, numbers in calibration.to_dict().items():
        typer.echo(f"{name}: {', '.join(f'{number:.3f}' for number in numbers) or 'not fitted'}")
    if output is not None:
        origin = "; ".join(
            f"{name}, {part}: {len(pairs)} pairs, weight {each:g}"
            for name, part, pairs, each in zip(dataset, splits, sets, weights, strict=True)
        )
        save_calibrated(model, calibration, output, origin, overwrite)
        typer.echo(f"wrote the calibrated model to {output}")
    if json_file is not None:
        figures = {"now": asdict(now) | more_now, "calibrated_anew": asdict(new) | more_new}
        document = {"model": Path(model).name, "pairs": count, **figures, "calibration": calibration.to_dict()}
        io.write_json(document, json_file, overwrite)
    if plot is not None:
        from chmnet.viz import plot_reliability

        curves = {Path(model).stem: now.bins, "after calibration": new.bins}
        points = {name: [(mean, share) for _, _, mean, share in bins] for name, bins in curves.items()}
        io.save_figure(plot_reliability(points), plot, overwrite)


def _for_each(name: str, values: Sequence[Value], datasets: Sequence[str]) -> list[Value]:
    """One value for each data set; a single one is for all."""
    if len(values) not in (1, len(datasets)):
        raise InputError(f"give --{name} once, or once for each of {len(datasets)} data sets, got {len(values)}")
    return list(values) * (len(datasets) if len(values) == 1 else 1)


def _load_pairs(
    names: Sequence[str], roots: Sequence[Path], splits: Sequence[str], options: dict[str, Any]
) -> list[list["Pair"]]:
    """The pairs of each data set; options go to those that have them."""
    from chmnet import data

    sets = []
    for name, root, split in zip(names, roots, splits, strict=True):
        known = data.find_dataset(name, root, split).options
        own = {key: value for key, value in options.items() if len(names) == 1 or key in known}
        pairs = data.load_pairs(name, root, split, **own)
        if (name, split) == ("pf-pascal", "val"):
            pairs = data.deduplicate(pairs, data.training_pairs(root))
        sets.append(pairs)
    return sets


def _more(found: "Evidence", confidence: Any, unmatched: Any, same_kind: Any) -> dict[str, float | None]:
    """What else is worth knowing of probabilities; ``None`` where the pairs do not tell, or nothing was fitted."""
    import numpy as np

    from chmnet.evaluation.calibrate import BACKGROUND, BOTH, HIDDEN, OTHER
    from chmnet.metrics import reliability

    def tells(values: Any, truth: Any) -> float | None:
        if not len(values) or truth.all() or not truth.any() or np.isnan(values).any():
            return None
        return reliability(values, truth).auroc

    wrong = (found.case == BOTH) & found.mirrored & ~found.correct
    figures: dict[str, float | None] = {
        f"mirrored targets: share of wrong matches above {SURE}": float((confidence[wrong] > SURE).mean())
        if wrong.any()
        else None
    }
    cases = {HIDDEN: "hidden in the target", OTHER: "another kind of thing", BACKGROUND: "on the background"}
    for case, words in cases.items():
        rows = ((found.case == BOTH) | (found.case == case)) & ~found.mirrored
        figures[f"AUROC of no match: {words}"] = tells(unmatched[rows], found.case[rows] == case)
    figures["AUROC of the same kind of thing"] = tells(same_kind, found.same)
    return figures


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


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
