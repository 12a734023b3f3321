"""Measure what a second labelled example, which faces the other way, is worth to ``chmnet propagate``.

``python tools/propagation.py --root FOLDER``, the folder being that of Animal-Pose. For every category it draws
pairs of labelled photographs and, for each pair, photographs to find their keypoints in. The second example faces
the other way than the first one; where it does not by itself, it is mirrored, its left and right keypoints
exchanged. Each photograph is labelled three times: from the first example, from the second, and from both. Counted
are the keypoints that all three have placed, right within a tenth of the box of the animal. The exit code is 1
where two examples are worse than the better of the two.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import typer
from PIL import ImageOps

from chmnet.annotation import Moved, PartialFile, TargetBox, propagate
from chmnet.data.animal_pose import CATEGORIES, load_instances
from chmnet.data.coco import load_labels
from chmnet.data.making_pairs import Instance
from chmnet.data.pairs import mirrored_rows
from chmnet.metrics import hits
from chmnet.nn.chmnet import CHMNet
from chmnet.pictures import to_picture
from chmnet.weights import load_model

ALPHA = 0.1
MAY_LOSE = 2.0
"""Points of PCK that a photograph may lose against the better of its two examples."""
FEWEST_LABELLED, FEWEST_SEEN, FEWEST_COUNTED = 10, 6, 3
"""Keypoints that an example shows, that a photograph shows, and that are counted in a photograph, at least."""
CLEAR = 0.3
"""How far the head of an example is beside its rump, as a share of the box, at least."""


@dataclass(frozen=True)
class Trial:
    """Two examples that face opposite ways, and photographs to label."""

    examples: tuple[Instance, Instance]
    targets: list[Instance]


@dataclass(frozen=True)
class Row:
    """PCK of one photograph: from the first example, from the second, from both."""

    category: str
    name: str
    counted: int
    pck: tuple[float, float, float]

    @property
    def lost(self) -> float:
        """Points that both examples are worse than the better of them."""
        return max(self.pck[:2]) - self.pck[2]


def draw_trials(
    root: Path, folder: Path, split: str, trials: int, targets: int, seed: int, same: bool = False
) -> Iterator[Trial]:
    """Trials of every category; mirrored photographs are written to the folder."""
    instances = load_instances(root, split, lambda problem: None)
    alone = [one for one in instances if sum(one.path == other.path for other in instances) == 1]
    generator = np.random.default_rng(seed)
    for category in sorted(CATEGORIES):
        members = [one for one in alone if one.category == category and seen(one).sum() >= FEWEST_SEEN]
        able = [one for one in members if seen(one).sum() >= FEWEST_LABELLED and abs(facing(one)) > CLEAR]
        for _ in range(trials):
            first, second = (able[number] for number in generator.permutation(len(able))[:2])
            others = [one for one in members if one not in (first, second)]
            chosen = [others[number] for number in generator.permutation(len(others))[:targets]]
            second = first if same else second
            if facing(first) * facing(second) > 0:
                second = mirror(second, folder)
            yield Trial((first, second), chosen)


def seen(instance: Instance) -> np.ndarray:
    """Which keypoints have a place."""
    return ~np.isnan(instance.keypoints).any(axis=1)


def facing(instance: Instance) -> float:
    """How far the head lies to the right of the rump, as a share of the box; 0 where one of them is hidden."""
    places = dict(zip(instance.keypoint_names, instance.keypoints[:, 0].tolist(), strict=True))
    head = [x for name in ("nose", "left_eye", "right_eye") if not np.isnan(x := places[name])]
    rump = places["tailbase"]
    if not head or np.isnan(rump) or instance.box is None:
        return 0.0
    return float((np.mean(head) - rump) / (instance.box[2] - instance.box[0]))


def mirror(instance: Instance, folder: Path) -> Instance:
    """The same example as a mirror shows it."""
    assert instance.box is not None
    picture = to_picture(instance.path)
    path = folder / f"mirrored-{instance.path.stem}.png"
    ImageOps.mirror(picture).save(path)
    rows = [row for row in mirrored_rows(instance.keypoint_names) if row is not None]
    keypoints = instance.keypoints[rows] * (-1, 1) + (picture.width, 0)
    left, top, right, bottom = instance.box
    box = picture.width - right, top, picture.width - left, bottom
    return replace(instance, path=path, keypoints=keypoints, box=box)


def write_examples(examples: Sequence[Instance], file: Path) -> Path:
    """COCO keypoints of examples."""
    images, annotations = [], []
    for number, one in enumerate(examples, start=1):
        assert one.box is not None
        left, top, right, bottom = one.box
        images.append({"id": number, "file_name": str(one.path.resolve())})
        rows = [(x, y, 2) if shown else (0, 0, 0) for (x, y), shown in zip(one.keypoints, seen(one), strict=True)]
        keypoints = [float(value) for row in rows for value in row]
        place = {
            "id": number,
            "image_id": number,
            "category_id": 1,
            "bbox": [left, top, right - left, bottom - top],
        }
        annotations.append(place | {"keypoints": keypoints})
    category = {"id": 1, "name": examples[0].category, "keypoints": list(examples[0].keypoint_names)}
    document = {"images": images, "annotations": annotations, "categories": [category]}
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def label(
    examples: Sequence[Instance], targets: Sequence[Instance], model: CHMNet, folder: Path, boxed: bool = False
) -> list[Moved]:
    """What ``chmnet propagate`` finds in each target; ``boxed``: it is told where the animal is."""
    labels = load_labels(write_examples(examples, folder / "labels.json"), images_root="/")
    file = PartialFile(folder / "partial")
    file.start({}, restart=True)
    boxes = {one.path: [TargetBox(one.box)] for one in targets if boxed and one.box is not None}
    outcome = propagate(labels, [one.path for one in targets], model, file, boxes=boxes)
    file.remove()
    return [found.objects[0] for found in outcome.found]


def measure(trial: Trial, model: CHMNet, folder: Path, boxed: bool = False) -> Iterator[Row]:
    """The figures of every photograph of a trial that shows enough."""
    first, second = trial.examples
    together = [first], [second], [first, second]
    runs = [label(examples, trial.targets, model, folder, boxed) for examples in together]
    for target, *found in zip(trial.targets, *runs, strict=True):
        assert target.box is not None
        rows = seen(target) & np.all([~np.isnan(one.points).any(axis=1) for one in found], axis=0)
        if rows.sum() < FEWEST_COUNTED:
            continue
        limit = ALPHA * max(target.box[2] - target.box[0], target.box[3] - target.box[1])
        right = [hits(np.linalg.norm(one.points - target.keypoints, axis=1)[rows], limit) for one in found]
        pck = tuple(100 * float(one.mean()) for one in right)
        yield Row(target.category, target.name, int(rows.sum()), (pck[0], pck[1], pck[2]))


def report(rows: Sequence[Row]) -> bool:
    """Print the figures; whether two examples are never worse than the better one, and better in the mean."""
    typer.echo(f"{'':9}{'photos':>7}{'first':>8}{'second':>8}{'better':>8}{'both':>8}{'lose':>6}{'gain':>6}")
    for category in (*sorted({row.category for row in rows}), "all"):
        of = [row for row in rows if category in (row.category, "all")]
        first, second, both = np.mean([row.pck for row in of], axis=0)
        better = np.mean([max(row.pck[:2]) for row in of])
        lose, gain = (sum(sign * row.lost > MAY_LOSE for row in of) for sign in (1, -1))
        typer.echo(f"{category:9}{len(of):7}{first:8.1f}{second:8.1f}{better:8.1f}{both:8.1f}{lose:6}{gain:6}")
    losers = [row for row in rows if row.lost > MAY_LOSE]
    mean = np.mean([row.lost for row in losers]) if losers else 0.0
    typer.echo(
        f"better: the better example of each photograph. {len(losers)} of {len(rows)} lose, {mean:.1f} in the mean"
    )
    means = np.mean([row.pck for row in rows], axis=0)
    return not losers and bool(means[2] > means[:2].max())


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="folder of Animal-Pose")
    parser.add_argument("--split", default="val")
    parser.add_argument("--model", default="")
    parser.add_argument("--trials", type=int, default=4, help="pairs of examples of each category")
    parser.add_argument("--targets", type=int, default=10, help="photographs of each trial")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--same", action="store_true", help="the second example is the first one, mirrored")
    parser.add_argument("--boxes", action="store_true", help="give the boxes of the animals to label")
    given = parser.parse_args()
    model = load_model(given.model) if given.model else load_model()
    with TemporaryDirectory() as name:
        folder = Path(name)
        trials = draw_trials(given.root, folder, given.split, given.trials, given.targets, given.seed, given.same)
        rows = [row for trial in trials for row in measure(trial, model, folder, given.boxes)]
    return 0 if report(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
