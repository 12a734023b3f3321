"""Several animals in one photograph: are they told apart, and how many keypoints are right on each?

``python tools/instances.py --root FOLDER``, the folder being that of Animal-Pose. An example is a photograph of
one animal. It is matched with photographs of several animals of its kind, and with photographs of one.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from scipy.optimize import linear_sum_assignment

from chmnet import Matcher, MatchResult
from chmnet.data.animal_pose import load_instances
from chmnet.data.making_pairs import Instance
from chmnet.metrics import hits
from chmnet.pictures import Box

ALPHA = 0.1
MOST = 4
"""Animals of a photograph, at most, and groups that are asked for."""
LARGE, COUNTED = 0.5, 0.3
"""Longer side of an animal, as a share of the photograph's: of an example, and of one whose keypoints count."""
FEWEST_LABELLED, FEWEST_COMMON = 8, 3
"""Keypoints of an example, and those that an animal has in common with it, at least."""
ON_IT = 0.3
"""A group lies on an animal if the box around its matches and the animal's share so much of their union."""


def side(animal: Instance) -> float:
    """Longer side of its box."""
    assert animal.box is not None
    left, top, right, bottom = animal.box
    return max(right - left, bottom - top)


def large(animal: Instance, share: float) -> bool:
    """Whether it takes so much of the photograph."""
    assert animal.size is not None
    return side(animal) >= share * max(animal.size)


def common(example: Instance, animal: Instance) -> np.ndarray:
    """Which keypoints both show."""
    return np.isfinite(example.keypoints).all(1) & np.isfinite(animal.keypoints).all(1)


def overlap(points: np.ndarray, box: Box) -> float:
    """Intersection over union of the box around most of the points, and another one."""
    low, high = np.percentile(points, (5, 95), axis=0)
    first, last = np.array(box[:2]), np.array(box[2:])
    shared = float(np.prod((np.minimum(high, last) - np.maximum(low, first)).clip(0)))
    return shared / max(1e-9, float(np.prod(high - low) + np.prod(last - first)) - shared)


def pck(result: MatchResult, example: Instance, animal: Instance) -> float:
    """Share of the common keypoints that are right within a tenth of the animal."""
    both = common(example, animal)
    distances = np.linalg.norm(result.locate(example.keypoints[both]) - animal.keypoints[both], axis=1)
    return float(hits(distances, ALPHA * side(animal)).mean())


def measure(result: MatchResult, example: Instance, animals: Sequence[Instance]) -> tuple[list[bool], list[float]]:
    """Of each group, whether it is on an animal of its own; and PCK of the animals, without and with groups."""
    groups = result.instances(MOST)
    targets = [group.matches(200).target for group in groups]
    table = np.array([[overlap(each, animal.box or (0, 0, 0, 0)) for animal in animals] for each in targets])
    rows, columns = linear_sum_assignment(-table)
    whose = dict(zip(columns.tolist(), rows.tolist(), strict=True))
    counted = [
        number
        for number, animal in enumerate(animals)
        if large(animal, COUNTED) and common(example, animal).sum() >= FEWEST_COMMON
    ]
    plain = np.mean([pck(result, example, animals[number]) for number in counted])
    told = np.mean([pck(groups[whose.get(number, 0)], example, animals[number]) for number in counted])
    own = [
        row in rows and bool(table[row, columns[rows.tolist().index(row)]] >= ON_IT) for row in range(len(groups))
    ]
    return own, [float(plain), float(told)]


def main(
    root: Annotated[Path, typer.Option(help="Folder that holds AnimalPose_VOC.")],
    split: Annotated[str, typer.Option(help="Of Animal-Pose.")] = "val",
    examples: Annotated[int, typer.Option(help="For each photograph of several animals.")] = 3,
    alone: Annotated[int, typer.Option(help="Photographs of one animal.")] = 60,
    seed: Annotated[int, typer.Option(help="Of the choice.")] = 0,
) -> None:
    """Print the figures."""
    torch.set_num_threads(1)
    photographs: dict[Path, list[Instance]] = defaultdict(list)
    for animal in load_instances(root, split, lambda problem: None):
        photographs[animal.path].append(animal)
    generator = np.random.default_rng(seed)
    ones = [animals[0] for animals in photographs.values() if len(animals) == 1]
    able = [one for one in ones if large(one, LARGE) and common(one, one).sum() >= FEWEST_LABELLED]
    herds = [
        animals
        for animals in photographs.values()
        if 2 <= len(animals) <= MOST
        and len({animal.category for animal in animals}) == 1
        and sum(large(animal, COUNTED) for animal in animals) >= 2
    ]
    matcher = Matcher()
    counts, own, shares = [], [], []
    for herd in herds:
        shown = [animal for animal in herd if large(animal, COUNTED)]
        fitting = [one for one in able if one.category == herd[0].category]
        fitting = [one for one in fitting if all(common(one, animal).sum() >= FEWEST_COMMON for animal in shown)]
        for number in generator.permutation(len(fitting))[:examples]:
            example = fitting[number]
            found, pair = measure(matcher.match(example.path, herd[0].path), example, herd)
            counts.append((len(herd), len(found)))
            own += found
            shares.append(pair)
    single = []
    for number in generator.permutation(len(ones))[:alone]:
        fitting = [one for one in able if one.category == ones[number].category and one.path != ones[number].path]
        example = fitting[generator.integers(len(fitting))]
        single.append(len(matcher.match(example.path, ones[number].path).instances(MOST)))
    plain, told = 100 * np.mean(shares, axis=0)
    typer.echo(f"Animal-Pose {split}: {len(counts)} pairs with {len(herds)} photographs of several animals")
    typer.echo(f"several groups: {100 * np.mean([found > 1 for _, found in counts]):.0f} %")
    typer.echo(f"as many groups as animals: {100 * np.mean([known == found for known, found in counts]):.0f} %")
    typer.echo(f"groups on an animal of their own: {100 * np.mean(own):.0f} % of {len(own)}")
    typer.echo(f"PCK@0.1, mean of the animals: {plain:.1f} without groups, {told:.1f} with")
    typer.echo(
        f"{len(single)} photographs of one animal: one group in {100 * np.mean(np.array(single) == 1):.0f} %"
    )


if __name__ == "__main__":
    typer.run(main)
