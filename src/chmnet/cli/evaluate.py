"""``chmnet evaluate``: the PCK of a model on a data set, and the protocol by which it was measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chmnet.cli import io
from chmnet.cli.changes import describe_changes, parse_changes
from chmnet.errors import InputError

if TYPE_CHECKING:
    from chmnet.data import Pair
    from chmnet.evaluation import PredictionFile


def evaluate(
    dataset: io.Dataset,
    root: io.DataRoot,
    split: io.Split = "test",
    data_option: io.DataOptions = None,
    pair_list: Annotated[
        Path | None, io.option("FILE", "Only the pairs of a list from `chmnet data list`.", "--pairs")
    ] = None,
    keypoints: Annotated[
        Path | None,
        io.option("FILE", "Only the keypoints that a TOML file names, `category = [names]`.", "--only-keypoints"),
    ] = None,
    left_out: Annotated[
        Path | None, io.option("FILE", "All keypoints but those that a TOML file names.", "--without-keypoints")
    ] = None,
    model: io.ModelName = "",
    backbone: Annotated[str, io.option("NAME", "Another backbone for a model without training.")] = "",
    backbone_weights: Annotated[str, io.option("FILE", "Its weights: a file, `package` or `published`.")] = "",
    change: Annotated[
        list[str] | None,
        io.option(
            "KEY=VALUE", "Change a model without training, such as output.mutual_filter=true; repeatable.", "--set"
        ),
    ] = None,
    poses: io.PoseSearch = io.Poses.upright,
    place: io.PlaceSearch = io.Place.whole,
    boxes: Annotated[
        bool, typer.Option("--boxes", help="Match inside of the annotated boxes, where a picture has one.")
    ] = False,
    space: Annotated[str, io.option("NAME", "Pixels of pictures: resized or original.")] = "",
    threshold: Annotated[str, io.option("NAME", "img, bbox, bbox-kp or bbox-legacy.")] = "",
    average: Annotated[str, io.option("NAME", "Mean over pair, keypoint or class.")] = "",
    alpha: Annotated[list[float] | None, io.option("NUMBER", "Tolerance; repeatable.")] = None,
    deduplicate: Annotated[
        bool, typer.Option("--deduplicate", help="Leave out PF-PASCAL pairs that are also in its training list.")
    ] = False,
    clutter: Annotated[
        bool, typer.Option("--clutter", help="Measure robustness to clutter; needs boxes or masks.")
    ] = False,
    json_file: io.JsonOutput = None,
    predictions: Annotated[
        Path | None, io.option("FILE", "Keep predictions here; a complete file is scored without the model.")
    ] = None,
    report: Annotated[Path | None, io.option("FILE", "Write a report here (.html, .md).")] = None,
    device: io.Device = "auto",
    overwrite: io.Overwrite = False,
) -> None:
    """Measure the PCK of a model on a data set.

    The default protocol is that of the literature, which matches whole pictures as they are; the output says which
    one was used. After an interruption, the same command resumes where it stopped.

    \b
    Examples:
      chmnet evaluate --dataset pf-willow --root data --model hough-prior
      chmnet evaluate --dataset pf-pascal --root data --threshold bbox --alpha 0.1
      chmnet evaluate --dataset pf-willow --root data --poses mirror
    """
    io.check_outputs([predictions, pair_list, keypoints, left_out], [report], overwrite, json_file)
    if keypoints and left_out:
        raise InputError("give one of --only-keypoints and --without-keypoints, not both")
    io.check_ending(report, "a report", ".html", ".md")
    if deduplicate and dataset != "pf-pascal":
        raise InputError(f"only pf-pascal has a training list to compare with, got {dataset}")
    from chmnet import data
    from chmnet.evaluation import check_pairs, write_report
    from chmnet.evaluation import evaluate as score_predictions
    from chmnet.metrics import DEFAULT_PROTOCOLS

    load_instances = data.find_dataset(dataset, root, split).load_instances
    asked = {"space": space, "threshold": threshold, "average": average, "alphas": alpha}
    protocol = DEFAULT_PROTOCOLS[dataset].replace(**{key: value for key, value in asked.items() if value})
    options = parse_changes(data_option or [])
    pairs = data.read_list(pair_list, root) if pair_list else data.load_pairs(dataset, root, split, **options)
    pairs = [pair for pair in pairs if not pair.flags.get("flip")]  # copies that only training uses
    if chosen := keypoints or left_out:
        names = data.held_out.read_held_out(chosen)
        objects = load_instances(root, split) if load_instances and not pair_list else pairs
        data.held_out.check_names(objects, names)
        pairs = [data.held_out.choose_keypoints(pair, names, held_out=chosen is keypoints) for pair in pairs]
        pairs = [pair for pair in pairs if pair.keypoint_names]
        if not pairs:
            raise InputError(f"{dataset} has no pairs with the keypoints that {chosen} leaves")
    check_pairs(pairs, protocol, clutter)
    changes = parse_changes(change or [])
    search: dict[str, Any] = {} if poses is io.Poses.upright else {"poses": poses.value}
    search |= {} if place is io.Place.whole else {"place": place.value}
    search |= {"boxes": True} if boxes else {}
    file = _predictions(
        pairs, dataset, split, model, backbone, backbone_weights, changes, clutter, device, predictions, search
    )
    scored = data.deduplicate(pairs, data.training_pairs(root)) if deduplicate else pairs
    result = score_predictions(scored, file, protocol)
    result["deduplicated"] = deduplicate
    if options:
        result["dataset_options"] = options
    if pair_list is not None:
        result["pair_list"] = pair_list.name
    if chosen:
        result["chosen_keypoints"] = f"{'only' if keypoints else 'without'} those of {chosen.name}"
    if json_file is not None:
        io.write_json(result, json_file, overwrite)
    if report is not None:
        write_report(report, result, scored, file, protocol, overwrite)
    _print(result)
    if predictions is None:
        file.path.unlink(missing_ok=True)


def _predictions(
    pairs: "list[Pair]",
    dataset: str,
    split: str,
    model: str,
    backbone: str,
    backbone_weights: str,
    changes: dict[str, Any],
    clutter: bool,
    device: str,
    path: Path | None,
    search: dict[str, Any],
) -> "PredictionFile":
    """A complete file of predictions: one that is there, or made (or finished) now."""
    from chmnet.evaluation.predict import describe_model, predict
    from chmnet.evaluation.predictions import Header, open_finished, open_predictions

    if path is not None and not (model or backbone or backbone_weights or changes or search):
        finished = open_finished(path, dataset, split, pairs, clutter)
        if finished is not None:
            return finished
    from chmnet.weights import DEFAULT_MODEL, load_model

    name = model or DEFAULT_MODEL
    network = load_model(name, backbone, backbone_weights, changes)
    title = describe_changes(name, backbone, changes)
    header = Header.of(dataset, split, pairs, describe_model(title, network), clutter, search)
    file = open_predictions(header, path)
    done = f", {len(file.predictions)} of them done before" if file.predictions else ""
    typer.echo(f"{len(pairs)} pairs with the model {title}{done}", err=True)
    predict(pairs, network, file, header, lambda remaining: io.track(remaining, "pairs"), device)
    return file


def _print(result: dict[str, Any]) -> None:
    left_out = ", pairs of the training list left out" if result["deduplicated"] else ""
    listed = f" of {result['pair_list']}" if "pair_list" in result else ""
    typer.echo(f"{result['dataset']} {result['split']}, {result['pairs']} pairs{listed}{left_out}")
    typer.echo(f"model: {result['model']['name']}")
    if "chosen_keypoints" in result:
        typer.echo(f"keypoints: {result['chosen_keypoints']}")
    typer.echo(result["protocol"]["description"])
    if "search" in result:
        asked = {"poses": "upright", "place": "whole", **result["search"]}
        annotated = ", inside of the annotated boxes" if asked.get("boxes") else ""
        typer.echo(f"poses: {asked['poses']}, place: {asked['place']}{annotated}")
    io.print_table(
        ["class", *(f"PCK@{alpha}" for alpha in result["pck"])],
        [
            [name, *(f"{value:.1f}" for value in values.values())]
            for name, values in [*result["per_class"].items(), ("all", result["pck"])]
        ],
    )
    for flag, levels in result.get("difficulty", {}).items():
        for level, entry in levels.items():
            figures = " / ".join(f"{value:.1f}" for value in entry["pck"].values())
            typer.echo(f"{flag} {level}: {figures} ({entry['pairs']} pairs)")
    if "pairs_without_keypoints" in result:
        typer.echo(f"{result['pairs_without_keypoints']} pairs without keypoints were left out")
    if "clutter" in result:
        area, candidates = result["clutter"]["area"], result["clutter"]["description"]
        typer.echo(f"clutter: area under precision-recall {area:.3f} ({candidates})")
