"""Fit the confidence of a model to annotated pairs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64

from chmnet.data.pairs import Pair
from chmnet.errors import InputError
from chmnet.features import FeatureCache, Features
from chmnet.matcher import Matcher
from chmnet.metrics import hits
from chmnet.nn.chmnet import CHMNet
from chmnet.ops.transfer import calibrated
from chmnet.result import MatchResult

ALPHA = 0.1
"""A match is correct if it lies within this share of the target picture's longer side."""
LEAST_KEYPOINTS = 50
"""A calibration needs at least this many annotated keypoints."""
_RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Evidence:
    """What matching found at the annotated keypoints of some pairs."""

    evidence: Float64[np.ndarray, "n 3"]
    """Evidence against each match; see :func:`chmnet.ops.transfer.match_evidence`."""
    border: Float64[np.ndarray, " n"]
    """Factor of the confidence for where the match lies; see :func:`chmnet.ops.transfer.border_trust`."""
    confidence: Float64[np.ndarray, " n"]
    """Of the model as it is."""
    correct: Bool[np.ndarray, " n"]
    """Whether the match lies within a tenth of the picture's longer side."""


def collect_evidence(
    pairs: Sequence[Pair],
    model: CHMNet,
    track: Callable[[Sequence[Pair]], Iterable[Pair]] = iter,
    device: str = "auto",
) -> Evidence:
    """Match annotated pairs, and note at each keypoint what the scores show and whether the match is correct.

    ``track`` wraps the pairs, for a progress bar; ``device`` is where the network computes.

    Raises:
        InputError: there are too few keypoints.
    """
    with FeatureCache[Features]() as cache:
        matcher = Matcher(model, device, cache=cache, poses="upright")
        found = [_at_keypoints(pair, matcher.match(pair.source.path, pair.target.path)) for pair in track(pairs)]
    total = sum(len(correct) for *_, correct in found)
    if total < LEAST_KEYPOINTS:
        raise InputError(f"the pairs have {total} keypoints; a calibration needs at least {LEAST_KEYPOINTS}")
    return Evidence(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _at_keypoints(pair: Pair, result: MatchResult) -> tuple[np.ndarray, ...]:
    """The fields of :class:`Evidence` for one pair."""
    evidence, border = result.evidence_at(pair.source.keypoints)
    matches = result.transfer(pair.source.keypoints)
    distances = np.linalg.norm(matches.target - pair.target.keypoints, axis=1)
    return evidence, border, matches.confidence, hits(distances, ALPHA * max(result.target_size))


def fit_calibration(
    evidence: Float64[np.ndarray, "n 3"], correct: Bool[np.ndarray, " n"]
) -> tuple[float, float, float, float]:
    """Fit a logistic function to the share of correct matches: maximum likelihood with a small ridge.

    Returns:
        The logit without evidence, and what each kind of evidence takes away from it. The latter are never
        negative: evidence against a match must not raise its confidence.

    Raises:
        InputError: all matches are correct, or all are wrong.

    Example:
        >>> against = np.zeros((400, 3))
        >>> against[200:, 0] = 1
        >>> correct = np.arange(400) % 10 < np.where(np.arange(400) < 200, 9, 5)  # nine of ten, then five of ten
        >>> [round(number, 1) for number in fit_calibration(against, correct)]
        [2.2, 2.1, 0.0, 0.0]
    """
    from scipy.optimize import minimize  # takes a second to import, and few need it

    if correct.all() or not correct.any():
        kinds = "correct and wrong matches, these are all of one kind"
        raise InputError(f"a calibration needs {kinds}; use other or more pairs")
    columns = np.column_stack([np.ones(len(evidence)), -evidence])
    ridge = np.array([0.0] + [_RIDGE] * evidence.shape[1])

    def loss_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = columns @ weights
        loss = np.mean(np.logaddexp(0, logits) - correct * logits) + ridge @ weights**2 / 2
        probability = np.exp(-np.logaddexp(0, -logits))
        return float(loss), columns.T @ (probability - correct) / len(correct) + ridge * weights

    # Not L-BFGS-B: near a bound it may stop after a step of no length, far from the optimum.
    found = minimize(
        loss_and_gradient,
        np.zeros(columns.shape[1]),
        jac=True,
        method="SLSQP",
        bounds=[(None, None)] + [(0, None)] * evidence.shape[1],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    first, *slopes = found.x.tolist()
    return first, *(max(0.0, slope) for slope in slopes)


def recalibrated(found: Evidence, calibration: tuple[float, ...]) -> Float64[np.ndarray, " n"]:
    """The confidences that the model would give with another calibration, lowered at the border as always."""
    return calibrated(torch.from_numpy(found.evidence), calibration).numpy() * found.border
