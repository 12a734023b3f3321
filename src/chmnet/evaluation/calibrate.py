"""Fit the probabilities of a model to annotated pairs: a match is right, there is one, two kinds are the same."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from chmnet.config import CalibrationConfig
from chmnet.data.pairs import AnnotatedImage, Pair, kind_of
from chmnet.errors import InputError
from chmnet.features import FeatureCache, Features
from chmnet.matcher import Matcher
from chmnet.metrics import hits
from chmnet.nn.chmnet import CHMNet
from chmnet.ops.evidence import calibrated
from chmnet.pictures import Picture, View
from chmnet.result import MatchResult

ALPHA = 0.1
"""A match is correct if it lies within this share of the longer side of the target's thing."""
LEAST_KEYPOINTS = 50
"""A calibration needs at least this many annotated keypoints, and of points without a match."""
LEAST_PAIRS = 20
"""To tell kinds apart at least this many pairs of the same kind, and of different kinds."""
MIRRORED_WEIGHT = 0.2
"""How much a pair with its target mirrored counts, against the pair as it is: opposed poses are the exception."""
MATCHED_WEIGHT = 6.0
"""How much points that have a match count, against hidden ones, those of other things, and the background."""
BACKGROUND_POINTS = 4
"""Points that are drawn outside of the source's box, for each pair that has one."""
BACKGROUND_MARGIN = 0.05
"""How far outside they lie at least, as a share of the box's longer side."""

BOTH, HIDDEN, OTHER, BACKGROUND = range(4)
"""A point that both pictures show; one that the target does not show; one that is matched with another kind of
thing; one on the background."""

LARGEST_SLOPE = 50.0
"""Evidence that hardly varies must not decide everything where it does."""
_RIDGE = 1e-3
Track = Callable[[Sequence[Pair]], Iterable[Pair]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What matching found at points of annotated pairs, and between the pictures."""

    evidence: Float64[np.ndarray, "n kinds"]
    """Evidence against each match; see :func:`chmnet.ops.evidence.match_evidence`."""
    confidence: Float64[np.ndarray, " n"]
    """Of the model as it is."""
    unmatched: Float64[np.ndarray, " n"]
    """The probability that the point has no match, by the model as it is; NaN: not fitted."""
    correct: Bool[np.ndarray, " n"]
    """Whether the match lies within a tenth of the longer side of the target's thing."""
    case: Int64[np.ndarray, " n"]
    """One of :data:`BOTH`, :data:`HIDDEN`, :data:`OTHER`, :data:`BACKGROUND`."""
    mirrored: Bool[np.ndarray, " n"]
    """Whether the target was mirrored."""
    group: Int64[np.ndarray, " n"]
    """Number of the data set."""
    pairs: Float64[np.ndarray, "m 2"]
    """Against the pictures showing the same kind of thing: the first two of
    :class:`chmnet.ops.evidence.PairEvidence`."""
    same_kind: Float64[np.ndarray, " m"]
    """By the model as it is; NaN: not fitted."""
    same: Bool[np.ndarray, " m"]
    """Whether they do."""
    pair_group: Int64[np.ndarray, " m"]

    @property
    def plain(self) -> Bool[np.ndarray, " n"]:
        """The keypoints that both pictures show, as they are: what is reported first."""
        return (self.case == BOTH) & ~self.mirrored


class _Rows(NamedTuple):
    """What one match of two pictures adds: the fields of :class:`Evidence`, those of pairs last."""

    points: tuple[np.ndarray, ...]
    pair: tuple[np.ndarray, ...]


def collect_evidence(
    sets: Sequence[Sequence[Pair]], model: CHMNet, track: Track = iter, device: str = "auto"
) -> Evidence:
    """Match annotated pairs, and note what the scores show and what is true.

    Each pair is matched as it is and with its target mirrored, which stands for things in opposed poses; the
    source of every second pair is also matched with a target of another category of its data set.

    Args:
        sets: the pairs of each data set.
        model: the network.
        track: wraps all pairs, for a progress bar.
        device: where the network computes.

    Raises:
        InputError: there are too few keypoints.
    """
    check_count(sets)
    groups = [(number, pair) for number, pairs in enumerate(sets) for pair in pairs]
    generator = np.random.default_rng(0)
    others = [partner for pairs in sets for partner in _other_kinds(pairs, generator)]
    found: list[_Rows] = []
    with FeatureCache[Features]() as cache:
        matcher = Matcher(model, device, cache=cache, poses="upright")
        for row, pair in enumerate(track([pair for _, pair in groups])):
            group, other = groups[row][0], others[row]
            found += [_examine(matcher, pair, pair.target, mirror, group, generator) for mirror in (False, True)]
            if other is not None and row % 2 == 0:
                found.append(_examine(matcher, pair, other, False, group, generator, same=False))
    points = [np.concatenate(parts) for parts in zip(*(rows.points for rows in found), strict=True)]
    pair_rows = [np.concatenate(parts) for parts in zip(*(rows.pair for rows in found), strict=True)]
    return Evidence(*points, *pair_rows)


def check_count(sets: Sequence[Sequence[Pair]]) -> None:
    """Refuse sets of pairs with fewer keypoints in all than :data:`LEAST_KEYPOINTS`.

    Raises:
        InputError: there are fewer.
    """
    total = sum(len(pair.source.keypoints) for pairs in sets for pair in pairs)
    if total < LEAST_KEYPOINTS:
        raise InputError(f"the pairs have {total} keypoints; a calibration needs at least {LEAST_KEYPOINTS}")


def spread(pairs: Sequence[Pair], most: int) -> Sequence[Pair]:
    """Some pairs, evenly from all of a set.

    Args:
        pairs: of one set.
        most: how many, at most.

    Raises:
        InputError: there are none.
    """
    if not pairs:
        raise InputError("a set of pairs is empty; leave it out of the calibration")
    return pairs[:: -(-len(pairs) // most)]


def _other_kinds(pairs: Sequence[Pair], generator: np.random.Generator) -> Iterator[AnnotatedImage | None]:
    """For each pair a target of another category, if there is one; ``car(S)`` and ``car(G)`` are one."""
    kinds = np.array([kind_of(pair.category) for pair in pairs])
    for kind in kinds:
        others = np.flatnonzero(kinds != kind)
        yield pairs[generator.choice(others)].target if len(others) else None


def _examine(
    matcher: Matcher,
    pair: Pair,
    target: AnnotatedImage,
    mirrored: bool,
    group: int,
    generator: np.random.Generator,
    same: bool = True,
) -> _Rows:
    """Match the source of a pair with a target, and look at its points."""
    result = matcher.match(pair.source.path, View(Picture(target.path), mirrored=mirrored))
    background = _background_points(pair.source, result, generator)
    known = [(pair.source.keypoints, BOTH if same else OTHER), (pair.unmatched, HIDDEN if same else OTHER)]
    parts = [*known, (background, BACKGROUND)]
    points = np.concatenate([rows for rows, _ in parts])
    case = np.concatenate([np.full(len(rows), case) for rows, case in parts])
    matches = result.transfer(points)
    correct = np.zeros(len(points), bool)
    if same:
        distances = np.linalg.norm(matches.target[case == BOTH] - pair.target.keypoints, axis=1)
        correct[case == BOTH] = hits(distances, ALPHA * thing_side(pair.target))
    unmatched, same_kind, clues = result.unmatched_at(points), result.same_kind, result.clues
    assert clues is not None, "a result that was just made has them"
    return _Rows(
        (
            result.evidence_at(points),
            matches.confidence,
            np.full(len(points), np.nan) if unmatched is None else unmatched,
            correct,
            case,
            np.full(len(points), mirrored),
            np.full(len(points), group),
        ),
        (
            np.array([clues.pair[:2]], dtype=np.float64),
            np.array([np.nan if same_kind is None else same_kind]),
            np.array([same]),
            np.array([group]),
        ),
    )


def thing_side(image: AnnotatedImage) -> float:
    """Longer side of the thing in pixels: that of its box, or of the box around its keypoints.

    Example:
        >>> from pathlib import Path
        >>> thing_side(AnnotatedImage(Path("duck.png"), np.array([[10.0, 10.0], [40.0, 30.0]])))
        30.0
    """
    if image.box is not None:
        left, top, right, bottom = image.box
        return float(max(right - left, bottom - top))
    return float(np.ptp(image.keypoints, axis=0).max())


def _background_points(source: AnnotatedImage, result: MatchResult, generator: np.random.Generator) -> np.ndarray:
    if source.box is None:
        return np.zeros((0, 2))
    left, top, right, bottom = source.box
    margin = BACKGROUND_MARGIN * max(right - left, bottom - top)
    height, width = result.source_size
    drawn = generator.uniform(size=(10 * BACKGROUND_POINTS, 2)) * (width, height)
    low, high = np.array([left - margin, top - margin]), np.array([right + margin, bottom + margin])
    return drawn[((drawn < low) | (drawn > high)).any(axis=1)][:BACKGROUND_POINTS]


def fit_calibration(found: Evidence, weights: Sequence[float], old: CalibrationConfig) -> CalibrationConfig:
    """Fit all that the data tell of; what they do not tell of stays as it was.

    Args:
        found: from :func:`collect_evidence`.
        weights: how much each data set counts, whatever its size.
        old: the model's calibration.

    Raises:
        InputError: all matches are correct, or all are wrong.
    """
    fitted = old
    both = found.case == BOTH
    shares = _shares(found.group, 2 * found.case + found.mirrored, weights)
    weight = shares * np.where(found.mirrored, MIRRORED_WEIGHT, 1.0)
    fitted = fitted.replace(match=fit_logistic(found.evidence[both], found.correct[both], weight[both]))
    plain = ~found.mirrored
    if min(np.sum(plain & both), np.sum(plain & ~both)) >= LEAST_KEYPOINTS:
        weight = shares * np.where(both, MATCHED_WEIGHT, 1.0)
        fitted = fitted.replace(unmatched=fit_logistic(found.evidence[plain], both[plain], weight[plain]))
    if min(found.same.sum(), (~found.same).sum()) >= LEAST_PAIRS:
        shares = _shares(found.pair_group, found.same.astype(int), weights)
        fitted = fitted.replace(same_kind=fit_logistic(found.pairs, found.same, shares))
    return fitted


def _shares(group: np.ndarray, part: np.ndarray, weights: Sequence[float]) -> Float64[np.ndarray, " n"]:
    """The weight of each data set shared out equally among its rows of each part."""
    shares = np.zeros(len(group))
    for number, weight in enumerate(weights):
        for value in np.unique(part):
            rows = (group == number) & (part == value)
            shares[rows] = weight / max(1, rows.sum())
    return shares


def fit_logistic(
    evidence: Float64[np.ndarray, "n kinds"],
    correct: Bool[np.ndarray, " n"],
    weights: Float64[np.ndarray, " n"] | None = None,
) -> tuple[float, ...]:
    """Fit a logistic function to the share of what is correct: maximum likelihood with a small ridge.

    Returns:
        The logit without evidence, and what each kind of evidence takes away from it. The latter are never
        negative: evidence against a match must not raise its confidence.

    Raises:
        InputError: all matches are correct, or all are wrong.

    Example:
        >>> against = np.zeros((400, 3))
        >>> against[200:, 0] = 1
        >>> correct = np.arange(400) % 10 < np.where(np.arange(400) < 200, 9, 5)  # nine of ten, then five of ten
        >>> [round(number, 1) for number in fit_logistic(against, correct)]
        [2.2, 2.2, 0.0, 0.0]
    """
    from scipy.optimize import minimize  # takes a second to import, and few need it

    if correct.all() or not correct.any():
        kinds = "correct and wrong matches, these are all of one kind"
        raise InputError(f"a calibration needs {kinds}; use other or more pairs")
    counts = np.ones(len(evidence)) if weights is None else weights
    counts = counts / counts.sum()
    spread = evidence.std(axis=0)
    spread[spread < 1e-6] = 1.0  # evidence that is always the same; its slope stays zero
    columns = np.column_stack([np.ones(len(evidence)), -evidence / spread])
    columns[:, 1:] *= evidence.std(axis=0) >= 1e-6
    ridge = np.array([0.0] + [_RIDGE] * evidence.shape[1])

    def loss_and_gradient(slopes: np.ndarray) -> tuple[float, np.ndarray]:
        logits = columns @ slopes
        loss = counts @ (np.logaddexp(0, logits) - correct * logits) + ridge @ slopes**2 / 2
        probability = np.exp(-np.logaddexp(0, -logits))
        return float(loss), columns.T @ (counts * (probability - correct)) + ridge * slopes

    # Not L-BFGS-B: near a bound it may stop after a step of no length, far from the optimum.
    found = minimize(
        loss_and_gradient,
        np.zeros(columns.shape[1]),
        jac=True,
        method="SLSQP",
        bounds=[(None, None), *((0.0, LARGEST_SLOPE * scale) for scale in spread)],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    first, *slopes = found.x.tolist()
    return first, *(
        slope / scale if slope > 1e-9 else 0.0 for slope, scale in zip(slopes, spread.tolist(), strict=True)
    )


def probabilities(
    evidence: Float64[np.ndarray, "n kinds"], numbers: tuple[float, ...]
) -> Float64[np.ndarray, " n"]:
    """What a calibration makes of evidence; NaN where it is empty."""
    if not numbers:
        return np.full(len(evidence), np.nan)
    return calibrated(torch.from_numpy(evidence), numbers).numpy()
