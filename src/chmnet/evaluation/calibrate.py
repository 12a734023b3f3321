"""What a confidence is worth: fit it to annotated pairs, and measure how far it keeps its word."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64

from chmnet.data.pairs import Pair
from chmnet.errors import InputError
from chmnet.features import FeatureStore
from chmnet.geometry import normalised_to_pixels, pixels_to_normalised
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.confidence import border_trust, calibrated, match_evidence
from chmnet.nn.inference import for_inference
from chmnet.nn.transfer import sample_grid
from chmnet.result import MatchResult

ALPHA = 0.1
"""A match is right if it lies within this share of the target picture's longer side."""
LEAST_KEYPOINTS = 50
"""Fewer annotated keypoints say too little."""
_RIDGE = 1e-3
_STEPS = 50


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was found at the annotated keypoints of some pairs."""

    evidence: Float64[np.ndarray, "n 3"]
    """What speaks against each match; see :func:`chmnet.nn.match_evidence`."""
    border: Float64[np.ndarray, " n"]
    """What is left of a confidence for where the match lies; see :func:`chmnet.nn.border_trust`."""
    confidence: Float64[np.ndarray, " n"]
    """What the model says now."""
    right: Bool[np.ndarray, " n"]
    """Whether the match lies within a tenth of the picture."""


@dataclass(frozen=True)
class Reliability:
    """How far a confidence keeps its word."""

    rows: tuple[tuple[float, int, float, float], ...]
    """For each tenth of confidence that occurs: where it begins, how many matches, their mean confidence, and the
    share of them that is right."""
    error: float
    """Expected calibration error: the mean over matches of |confidence − share right| of their tenth."""
    ranking: float
    """Chance that a right match has a higher confidence than a wrong one (area under the ROC curve)."""
    right: float
    """Share of all matches that is right."""


def collect_evidence(
    pairs: Sequence[Pair], model: CHMNet, track: Callable[[Sequence[Pair]], Iterable[Pair]] = iter
) -> Evidence:
    """Match annotated pairs, and note at each keypoint what the scores show and whether the match is right.

    Args:
        pairs: with keypoints.
        model: the network.
        track: wraps the pairs, for a progress bar.

    Raises:
        InputError: there are too few keypoints.
    """
    model = for_inference(model)
    found: list[tuple[np.ndarray, ...]] = []
    with FeatureStore(model) as store, torch.inference_mode():
        for pair in track(pairs):
            pyramids = store.pyramid(pair.source.path, "source"), store.pyramid(pair.target.path, "target")
            sizes = store.size(pair.source.path), store.size(pair.target.path)
            result = MatchResult(model.head.match(*pyramids).cpu(), *sizes, model.config.transfer)
            found.append(_at_keypoints(pair, result))
    total = sum(len(right) for *_, right in found)
    if total < LEAST_KEYPOINTS:
        raise InputError(f"the pairs have {total} keypoints; a calibration needs at least {LEAST_KEYPOINTS}")
    return Evidence(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _at_keypoints(pair: Pair, result: MatchResult) -> tuple[np.ndarray, ...]:
    """The fields of :class:`Evidence` for one pair."""
    points = pixels_to_normalised(torch.from_numpy(pair.source.keypoints), result.source_size)[None].float()
    there, back = result.positions, result.back_positions
    evidence = match_evidence(result.correlation, result.config, there, back)
    border = border_trust(there, (back.shape[1], back.shape[2]))[..., None]
    moved = normalised_to_pixels(sample_grid(there, points, result.config)[0].double().numpy(), result.target_size)
    errors = np.linalg.norm(moved - pair.target.keypoints, axis=1)
    return (
        sample_grid(evidence, points, result.config)[0].double().numpy(),
        sample_grid(border, points, result.config)[0, :, 0].double().numpy(),
        result.transfer(pair.source.keypoints).confidence,
        errors <= ALPHA * max(result.target_size),
    )


def fit_calibration(
    evidence: Float64[np.ndarray, "n 3"], right: Bool[np.ndarray, " n"]
) -> tuple[float, float, float, float]:
    """The logistic function that gives the share of right matches best: maximum likelihood, by Newton's method.

    Returns:
        The logit without evidence, and what each kind of evidence takes away from it; never negative, so that
        evidence against a match never speaks for it.

    Raises:
        InputError: all matches are right, or all are wrong.

    Example:
        >>> against = np.zeros((400, 3))
        >>> against[200:, 0] = 1
        >>> right = np.arange(400) % 10 < np.where(np.arange(400) < 200, 9, 5)  # nine of ten, then five of ten
        >>> [round(number, 1) for number in fit_calibration(against, right)]
        [2.2, 2.1, 0.0, 0.0]
    """
    if right.all() or not right.any():
        raise InputError("a calibration needs right matches and wrong ones; use pairs that are neither all easy")
    used = list(range(evidence.shape[1]))
    while True:
        weights = _logistic(-evidence[:, used], right)
        negative = [number for number, weight in zip(used, weights[1:], strict=True) if weight < 0]
        if not negative:
            break
        used = [number for number in used if number not in negative]
    slopes = [0.0] * evidence.shape[1]
    for number, weight in zip(used, weights[1:], strict=True):
        slopes[number] = float(weight)
    return float(weights[0]), slopes[0], slopes[1], slopes[2]


def _logistic(inputs: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Weights of a constant and of each column of the inputs."""
    columns = np.column_stack([np.ones(len(inputs)), inputs])
    ridge = _RIDGE * np.diag([0.0] + [1.0] * inputs.shape[1])
    weights = np.zeros(columns.shape[1])
    for _ in range(_STEPS):
        probability = 1 / (1 + np.exp(-np.clip(columns @ weights, -30, 30)))
        gradient = columns.T @ (probability - right) / len(right) + ridge @ weights
        curvature = (columns * (probability * (1 - probability))[:, None]).T @ columns / len(right) + ridge
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def recalibrated(found: Evidence, calibration: tuple[float, ...]) -> Float64[np.ndarray, " n"]:
    """What the model would say with another calibration, doubt at the border included."""
    return calibrated(torch.from_numpy(found.evidence), calibration).numpy() * found.border


def reliability(confidence: Float64[np.ndarray, " n"], right: Bool[np.ndarray, " n"]) -> Reliability:
    """Compare confidences with how often their matches are right.

    Example:
        >>> found = reliability(np.array([0.9, 0.9, 0.2, 0.2]), np.array([True, True, False, True]))
        >>> found.rows
        ((0.2, 2, 0.2, 0.5), (0.9, 2, 0.9, 1.0))
        >>> round(found.error, 3), found.right
        (0.2, 0.75)
    """
    bins = np.clip((confidence * 10 + 1e-9).astype(int), 0, 9)
    rows, error = [], 0.0
    for number in np.unique(bins):
        here = bins == number
        mean, share = float(confidence[here].mean()), float(right[here].mean())
        rows.append((int(number) / 10, int(here.sum()), mean, share))
        error += abs(mean - share) * here.mean()
    return Reliability(tuple(rows), float(error), _ranking(confidence, right), float(right.mean()))


def _ranking(confidence: np.ndarray, right: np.ndarray) -> float:
    """Area under the ROC curve; equal confidences count half. One half where nothing is to be told apart."""
    good, poor = confidence[right], confidence[~right]
    if not len(good) or not len(poor):
        return 0.5
    order = np.sort(poor)
    below = np.searchsorted(order, good, side="left")
    equal = np.searchsorted(order, good, side="right") - below
    return float((below + equal / 2).mean() / len(poor))
