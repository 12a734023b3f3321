"""The keypoints of annotated pictures, found in many others; each picture's features are computed once."""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from chmnet import __version__
from chmnet.annotation.boxes import TargetBox, TargetBoxes, describe_boxes
from chmnet.annotation.choice import Guess, choose, make_guess
from chmnet.annotation.records import Moved, PartialFile, Propagated
from chmnet.annotation.targets import Skipped
from chmnet.data.coco import Category, Labels
from chmnet.data.making_pairs import Instance
from chmnet.errors import InputError
from chmnet.features import FeatureCache, Features
from chmnet.matcher import BOX_MARGIN, Matcher
from chmnet.nn.chmnet import CHMNet
from chmnet.pictures import Picture, View
from chmnet.poses import mirrored

Track = Callable[[list[Path]], Iterable[Path]]


class Outcome(NamedTuple):
    """What came of a run."""

    found: list[Propagated]
    """In the order of the targets."""
    skipped: list[Skipped]
    computed: int
    """How many pictures went through the backbone in this run."""


def propagate(
    labels: Labels,
    targets: list[Path],
    model: CHMNet,
    file: PartialFile,
    track: Track = iter,
    device: str = "auto",
    poses: str = "mirror",
    place: str = "whole",
    whole: bool = False,
    boxes: TargetBoxes | None = None,
) -> Outcome:
    """Find the keypoints of every labelled category in every target.

    Of several labelled objects of a category the one that matches a target best is taken, with those that agree
    with it; see :func:`chmnet.annotation.choice.choose`. In memory are the features of the labelled pictures (up
    to a limit, the rest on disk) and those of one target in its poses. Beside them are, for each labelled object
    in its better pose, the scores of its keypoints in that target: a number for each position of the grid.

    Args:
        labels: what is known.
        targets: picture files; what cannot be read is skipped.
        model: the network.
        file: keeps every result as it comes, started with :func:`describe_run`; targets that it has are not
            computed again.
        track: wraps the targets that remain, for a progress bar.
        device: where the network computes.
        poses: in which the targets are looked at; see :class:`chmnet.Matcher`. Where a category tells left from
            right, a target is matched mirrored and not, and the better one is taken.
        place: whether the thing is found in the targets first; see :class:`chmnet.Matcher`.
        whole: match the whole labelled pictures, even where the labels say where the thing is.
        boxes: the objects to label in some of the targets, each matched inside its box and a margin; see
            :func:`chmnet.annotation.boxes.load_target_boxes`.

    Raises:
        InputError: a labelled picture cannot be read, or there are no such poses or place.
    """
    known = {path: result for path in targets if (result := file.get(path)) is not None}
    remaining = [path for path in targets if path not in known]
    skipped: list[Skipped] = []
    with (
        file.alone(),
        FeatureCache[Features]() as of_sources,
        FeatureCache[Features](disk=False) as of_target,
    ):
        sources = Matcher(model, device, cache=of_sources)
        matcher = Matcher(model, device, cache=of_target, poses=poses, place=place)
        seen = {instance: labelled_view(instance, whole) for instance in labels.instances}
        for view in seen.values() if remaining else ():
            sources.extract(view)  # what is wrong with these is no target's fault

        def guess(instance: Instance, category: Category, target: Features) -> list[Guess]:
            return _guess(instance, category.counterparts(), matcher, sources.extract(seen[instance]), target)

        def find(picture: Picture, where: TargetBox | None) -> list[Moved]:
            category, box = (None, None) if where is None else (where.category, where.box)
            view = View(picture) if box is None else View.around(picture, box, BOX_MARGIN)
            target = matcher.extract(view, "target")
            wanted = [one for one in labels.categories if category in (None, one.name)]
            found = (choose(one.name, (guess(each, one, target) for each in labels.of(one))) for one in wanted)
            return [moved._replace(box=box) for moved in found]

        for path in track(remaining):
            try:
                picture = Picture.of(path)
                objects = [moved for where in (boxes or {}).get(path, [None]) for moved in find(picture, where)]
                known[path] = file.add(path, picture.size, objects)
            except InputError as error:
                skipped.append(Skipped(path, str(error)))
            of_target.close()
        computed = of_sources.computed + of_target.computed
    # A path may be another way to one that is known: it stays as it was named.
    found = [replace(known[path], path=path) for path in targets if path in known]
    return Outcome(found, skipped, computed)


def _guess(
    instance: Instance, counterparts: list[int | None], matcher: Matcher, source: Features, target: Features
) -> list[Guess]:
    """Where the keypoints of an example lie in a target, in both poses where left and right can be exchanged."""
    result = matcher.match(source, target)
    guesses = [make_guess(result, instance.keypoints, counterparts)]
    if result.other_pose_probability is not None and any(other != row for row, other in enumerate(counterparts)):
        again = source if result.source == source.view else result.source
        mirror = matcher.match(again, mirrored(result.target), poses="upright", place="whole")
        guesses.append(make_guess(mirror, instance.keypoints, counterparts, result.other_pose_probability))
    return guesses


def labelled_view(instance: Instance, whole: bool = False) -> View:
    """What is seen of a labelled picture: the box of the object, with all its keypoints and a margin.

    Args:
        instance: the object.
        whole: see all of the picture; so it is where the object has no box.
    """
    view = View.of(instance.path)
    if whole or instance.box is None:
        return view
    (left, top), (right, bottom) = np.nanmin(instance.keypoints, axis=0), np.nanmax(instance.keypoints, axis=0)
    box = instance.box
    around = (
        float(min(box[0], left)),
        float(min(box[1], top)),
        float(max(box[2], right)),
        float(max(box[3], bottom)),
    )
    return View.around(view.picture, around, BOX_MARGIN)


def describe_run(
    labels: Labels,
    model: dict[str, Any],
    device: str,
    poses: str = "mirror",
    place: str = "whole",
    whole: bool = False,
    boxes: TargetBoxes | None = None,
) -> dict[str, Any]:
    """All that predictions depend on, beside the targets.

    Args:
        labels: what is known; the labelled pictures' content counts too.
        model: see :func:`chmnet.evaluation.predict.describe_model`.
        device: where the network computes; another one rounds differently.
        poses: in which the targets are looked at.
        place: whether the thing is found in them first.
        whole: whether whole labelled pictures are matched.
        boxes: the objects to label in some of the targets.
    """
    digest = hashlib.sha256()
    for category in labels.categories:
        digest.update(repr(category).encode("utf-8", "backslashreplace"))
    for instance in labels.instances:
        digest.update(repr((instance.category, str(instance.path))).encode("utf-8", "backslashreplace"))
        digest.update(hashlib.sha256(instance.path.read_bytes()).digest())
        digest.update(np.ascontiguousarray(instance.keypoints, dtype="<f8").tobytes())
        digest.update(repr(instance.box).encode())
    return {
        "labels": digest.hexdigest(),
        "model": model,
        "device": device,
        "poses": poses,
        "place": place,
        "whole": whole,
        "target_boxes": hashlib.sha256(json.dumps(describe_boxes(boxes or {})).encode()).hexdigest(),
        "chmnet_version": __version__,
    }
