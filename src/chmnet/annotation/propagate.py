"""The keypoints of annotated pictures, found in many others; each picture's features are computed once."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from chmnet import __version__
from chmnet.annotation.records import Moved, PartialFile, Propagated
from chmnet.annotation.targets import Skipped
from chmnet.annotation.vote import BANDWIDTH, join_votes
from chmnet.data.coco import Labels
from chmnet.data.making_pairs import Instance
from chmnet.errors import InputError
from chmnet.features import FeatureCache, Features
from chmnet.matcher import Matcher
from chmnet.nn.chmnet import CHMNet
from chmnet.result import MatchResult

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
) -> Outcome:
    """Find the keypoints of every labelled category in every target.

    A category with several labelled objects takes a vote, see :func:`chmnet.annotation.join_votes`. In memory are
    the features of the labelled pictures (up to a limit, the rest on disk) and those of one target.

    Args:
        labels: what is known.
        targets: picture files; what cannot be read is skipped.
        model: the network.
        file: keeps every result as it comes, started with :func:`describe_run`; targets that it has are not
            computed again.
        track: wraps the targets that remain, for a progress bar.
        device: where the network computes.
    """
    known = {path: result for path in targets if (result := file.get(path)) is not None}
    remaining = [path for path in targets if path not in known]
    skipped: list[Skipped] = []
    computed = 0
    with FeatureCache[Features]() as cache:
        matcher = Matcher(model, device, poses="upright")
        sources = Matcher(model, device, cache=cache, poses="upright")
        for instance in labels.instances if remaining else ():
            sources.extract(instance.path)  # what is wrong with these is no target's fault
        for path in track(remaining):
            try:
                target = matcher.extract(path, "target")
                computed += 1
                objects = [_move(one.name, labels.of(one), sources, target) for one in labels.categories]
                known[path] = file.add(path, target.view.size, objects)
            except InputError as error:
                skipped.append(Skipped(path, str(error)))
        computed += cache.computed
    # A path may be another way to one that is known: it stays as it was named.
    found = [replace(known[path], path=path) for path in targets if path in known]
    return Outcome(found, skipped, computed)


def _move(category: str, instances: list[Instance], sources: Matcher, target: Features) -> Moved:
    """All objects of a category together find their keypoints in one target."""
    count = len(instances[0].keypoint_names)
    points = np.full((len(instances), count, 2), np.nan)
    confidence = np.zeros((len(instances), count))
    result: MatchResult | None = None
    last: Path | None = None
    for row, instance in enumerate(instances):
        if result is None or instance.path != last:  # objects of one picture share its matches
            result, last = sources.match(instance.path, target), instance.path
        seen = ~np.isnan(instance.keypoints).any(axis=1)
        matches = result.transfer(instance.keypoints[seen])
        points[row, seen], confidence[row, seen] = matches.target, matches.confidence
    return Moved(category, *join_votes(points, confidence, target.view.size))


def describe_run(labels: Labels, model: dict[str, Any], device: str) -> dict[str, Any]:
    """All that predictions depend on, beside the targets.

    Args:
        labels: what is known; the labelled pictures' content counts too.
        model: see :func:`chmnet.evaluation.predict.describe_model`.
        device: where the network computes; another one rounds differently.
    """
    digest = hashlib.sha256()
    for category in labels.categories:
        digest.update(repr(category).encode("utf-8", "backslashreplace"))
    for instance in labels.instances:
        digest.update(repr((instance.category, str(instance.path))).encode("utf-8", "backslashreplace"))
        digest.update(hashlib.sha256(instance.path.read_bytes()).digest())
        digest.update(np.ascontiguousarray(instance.keypoints, dtype="<f8").tobytes())
    return {
        "labels": digest.hexdigest(),
        "model": model,
        "device": device,
        "bandwidth": BANDWIDTH,
        "chmnet_version": __version__,
    }
