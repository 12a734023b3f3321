"""Predict the keypoints of every pair with a model; each picture's features are computed once."""

import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from chmnet.data.pairs import AnnotatedImage, Pair, open_mask
from chmnet.errors import InputError
from chmnet.evaluation.predictions import GRID_SIDE, GridMatches, Header, PredictionFile
from chmnet.features import FeatureCache, Features, hash_weights
from chmnet.geometry import Size, grid_points, normalised_to_pixels
from chmnet.matcher import Matcher
from chmnet.metrics import Prediction, Protocol, inside
from chmnet.nn.chmnet import CHMNet
from chmnet.result import MatchResult

_open_mask = lru_cache(maxsize=64)(open_mask)  # an image is in many pairs


def predict(
    pairs: list[Pair],
    model: CHMNet,
    file: PredictionFile,
    header: Header,
    track: Callable[[list[Pair]], Iterable[Pair]] = iter,
    device: str = "auto",
) -> int:
    """Fill a file of predictions; pairs that it has already are left out.

    Args:
        pairs: all pairs of the run.
        model: the network.
        file: where predictions go, one by one.
        header: what the run is; see :meth:`PredictionFile.start`. Its ``search`` says in which poses the target is
            tried (upright only, unless it names others), and at which place: the whole pictures, annotated boxes
            (where ``boxes`` is true), or the thing that is found.
        track: wraps the list of pairs that remain, for a progress bar.
        device: where the network computes.

    Returns:
        How many pictures went through the backbone.
    """
    file.start(header)
    remaining = [pair for pair in pairs if pair.name not in file.predictions]
    with file.alone(), FeatureCache[Features]() as cache:
        asked = {"poses": "upright", "place": "whole", **header.search}
        matcher = Matcher(model, device, cache=cache, poses=asked["poses"], place=asked["place"])
        for pair in track(remaining):
            start = time.perf_counter()
            boxes = (pair.source.box, pair.target.box) if asked.get("boxes") else (None, None)
            result = matcher.match(pair.source.path, pair.target.path, boxes=boxes)
            found = result.locate(pair.source.keypoints)
            prediction = Prediction(pair.name, found, result.source_size, result.target_size)
            grid = _grid_matches(pair, result) if file.header is not None and file.header.clutter else None
            file.add(prediction, grid, time.perf_counter() - start)
        return cache.computed


def _grid_matches(pair: Pair, result: MatchResult) -> GridMatches:
    """Best match of each point of a regular grid by the model's own transfer, and its score."""
    grid = grid_points((GRID_SIDE, GRID_SIDE), like=torch.zeros(1, dtype=torch.float64)).flatten(0, 1)
    source = normalised_to_pixels(grid.numpy(), result.source_size)
    target = result.locate(source)
    source_inside = _inside_object(source, pair.source, result.source_size)
    target_inside = _inside_object(target, pair.target, result.target_size)
    return GridMatches(result.scores_at(source, target), source_inside, target_inside)


def _inside_object(points: np.ndarray, side: AnnotatedImage, size: Size) -> np.ndarray:
    if side.mask is not None:
        mask = _open_mask(side.mask)
        if mask.shape != size:
            raise InputError(f"{side.mask} has {mask.shape} pixels, its image {size}; they must be equal")
        return inside(points, mask)
    assert side.box is not None, "check_pairs was not called"
    return inside(points, side.box)


def check_pairs(pairs: list[Pair], protocol: Protocol, clutter: bool) -> None:
    """Check, before anything is predicted, that every pair has what will be measured.

    Raises:
        InputError: a pair lacks the box or mask that is needed.
    """
    for pair in pairs:
        if protocol.threshold == "bbox" and pair.target.box is None:
            raise InputError(f"{pair.name} has no box: the threshold bbox needs one; use img or bbox-kp")
        if clutter and any(side.mask is None and side.box is None for side in (pair.source, pair.target)):
            raise InputError(f"{pair.name} has neither a mask nor a box: the clutter measure needs one")


def describe_model(name: str, model: CHMNet) -> dict[str, Any]:
    """What identifies a model: its name, configuration, number of parameters and a hash of its weights."""
    return {
        "name": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "weights_sha256": hash_weights(model),
        "config": model.config.to_dict(),
    }
