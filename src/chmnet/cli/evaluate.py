"""``chmnet evaluate``: PCK of a model on a data set, and what exactly was measured."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli.io import ModelName, check_outputs, track
from chmnet.config import parse_changes
from chmnet.errors import InputError
from chmnet.files import atomic_path

if TYPE_CHECKING:
    from chmnet.data import Pair
    from chmnet.evaluation import PredictionFile
    from chmnet.metrics import Protocol


def evaluate(
    dataset: Annotated[str, typer.Option(help="pf-willow, pf-pascal, spair-71k, animal-pose or coco.")],
    root: Annotated[Path, typer.Option(help="Folder that holds PF-WILLOW, PF-PASCAL and so on.")],
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the data set, such as layout=small or maximum_pairs=200.")
    ] = None,
    pair_list: Annotated[
        Path | None, typer.Option("--pairs", help="Only the pairs of a list from `chmnet data list`.")
    ] = None,
    model: ModelName = "",
    backbone: Annotated[str, typer.Option(help="Another backbone for a model without training.")] = "",
    backbone_weights: Annotated[str, typer.Option(help="Its weights: a file, package or published.")] = "",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a model without training: mutual_filter=true.")
    ] = None,
    space: Annotated[str, typer.Option(help="resized or original pixels.")] = "",
    threshold: Annotated[str, typer.Option(help="img, bbox, bbox-kp or bbox-legacy.")] = "",
    average: Annotated[str, typer.Option(help="pair, keypoint or class.")] = "",
    alpha: Annotated[list[float] | None, typer.Option(help="Tolerance; may be given several times.")] = None,
    deduplicate: Annotated[
        bool, typer.Option("--deduplicate", help="Leave out PF-PASCAL pairs that its training list has too.")
    ] = False,
    clutter: Annotated[
        bool, typer.Option("--clutter", help="Measure robustness to clutter (needs boxes or masks).")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result here.")] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Keep the predictions here; a finished file is scored without the model.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page (.html) or Markdown (.md) here.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace result files that exist.")] = False,
) -> None:
    """Measure a model on a data set: PCK, and what exactly was measured.

    Without options for the protocol, the literature's is used and printed. Interrupted, the same command goes on
    where it stopped.

    Examples:

    `chmnet evaluate --dataset pf-willow --root datasets --model nearest-neighbour`

    `chmnet evaluate --dataset pf-pascal --root datasets --predictions p.jsonl --threshold img --alpha 0.1`
    """
    check_outputs([predictions, pair_list], [json_file, report], overwrite)
    if report is not None and report.suffix.lower() not in (".html", ".md"):
        raise InputError(f"a report must end in .html or .md, got {report.name!r}")
    if deduplicate and dataset != "pf-pascal":
        raise InputError(f"only pf-pascal has a training list to compare with, got {dataset}")
    from chmnet import data
    from chmnet.evaluation import check_pairs, write_report
    from chmnet.evaluation import evaluate as score_predictions

    protocol = _protocol(dataset, root, split, space, threshold, average, alpha)
    options = parse_changes(option or [])
    pairs = data.read_list(pair_list, root) if pair_list else data.load_pairs(dataset, root, split, **options)
    pairs = [pair for pair in pairs if not pair.flags.get("flip")]  # copies that only training uses
    check_pairs(pairs, protocol, clutter)
    file = _predictions(
        pairs, dataset, split, model, backbone, backbone_weights, parse_changes(change or []), clutter, predictions
    )
    scored = data.deduplicate(pairs, data.training_pairs(root)) if deduplicate else pairs
    result = score_predictions(scored, file, protocol)
    result["deduplicated"] = deduplicate
    if options:
        result["dataset_options"] = options
    if pair_list is not None:
        result["pair_list"] = pair_list.name
    if json_file is not None:
        with atomic_path(json_file, overwrite) as temporary:
            temporary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if report is not None:
        write_report(report, result, scored, file, protocol, overwrite)
    _print(result)
    if predictions is None:
        file.path.unlink(missing_ok=True)


def _protocol(
    dataset: str,
    root: Path,
    split: str,
    space: str,
    threshold: str,
    average: str,
    alphas: list[float] | None,
) -> "Protocol":
    """The data set's protocol of the literature, with what was asked for changed."""
    from chmnet.data import find_dataset
    from chmnet.metrics import DEFAULT_PROTOCOLS

    find_dataset(dataset, root, split)
    asked = {"space": space, "threshold": threshold, "average": average, "alphas": alphas}
    return DEFAULT_PROTOCOLS[dataset].replace(**{key: value for key, value in asked.items() if value})


def _predictions(
    pairs: "list[Pair]",
    dataset: str,
    split: str,
    model: str,
    backbone: str,
    backbone_weights: str,
    changes: dict[str, Any],
    clutter: bool,
    path: Path | None,
) -> "PredictionFile":
    """A complete file of predictions: one that is there, or made (or finished) now."""
    from chmnet.evaluation.predict import describe_model, predict
    from chmnet.evaluation.predictions import Header, open_finished, open_predictions

    if path is not None and not (model or backbone or backbone_weights or changes):
        finished = open_finished(path, dataset, split, pairs, clutter)
        if finished is not None:
            return finished
    from chmnet.weights import DEFAULT_MODEL, load_model

    name = model or DEFAULT_MODEL
    network = load_model(name, backbone, backbone_weights, changes)
    details = [backbone] * bool(backbone) + [f"{key}={value}" for key, value in changes.items()]
    title = f"{name} ({', '.join(details)})" if details else name
    header = Header.of(dataset, split, pairs, describe_model(title, network), clutter)
    file = open_predictions(header, path)
    done = f", {len(file.predictions)} of them done before" if file.predictions else ""
    typer.echo(f"{len(pairs)} pairs with the model {title}{done}", err=True)
    predict(pairs, network, file, header, lambda remaining: track(remaining, "pairs"))
    return file


def _print(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    left_out = ", pairs of the training list left out" if result["deduplicated"] else ""
    listed = f" of {result['pair_list']}" if "pair_list" in result else ""
    heading = f"{result['dataset']} {result['split']}, {result['pairs']} pairs{listed}{left_out}"
    for line in (heading, f"model: {result['model']['name']}", result["protocol"]["description"]):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    table = Table("class", *(f"PCK@{alpha}" for alpha in result["pck"]), box=None)
    for name, values in result["per_class"].items():
        table.add_row(escape(name), *(f"{value:.1f}" for value in values.values()))
    table.add_row("all", *(f"{value:.1f}" for value in result["pck"].values()), style="bold")
    console.print(table)
    for flag, levels in result.get("difficulty", {}).items():
        for level, entry in levels.items():
            figures = " / ".join(f"{value:.1f}" for value in entry["pck"].values())
            console.print(f"{flag} {level}: {figures} ({entry['pairs']} pairs)", highlight=False)
    if "pairs_without_keypoints" in result:
        console.print(
            f"{result['pairs_without_keypoints']} pairs without keypoints were left out", highlight=False
        )
    if "clutter" in result:
        area, candidates = result["clutter"]["area"], result["clutter"]["description"]
        console.print(
            f"clutter: area under precision-recall {area:.3f} ({candidates})", highlight=False, soft_wrap=True
        )
