"""Fit the choice of a pose to annotated pairs: when is the mirrored target the better one, how clear is a turn."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from chmnet.data.pairs import Pair
from chmnet.evaluation.calibrate import thing_side
from chmnet.features import FeatureCache, Features
from chmnet.matcher import Matcher
from chmnet.metrics import hits
from chmnet.nn.chmnet import CHMNet
from chmnet.pictures import View
from chmnet.poses import SEARCH_SHARE, TURNS, mirror_evidence, mirrored, turned, vote_strength

ALPHAS = (0.05, 0.1)
COPIES = 0.4
"""What a pair with its target mirrored counts, against 1 as it is: photographs are rarely mirrored."""
MOST_LOST = 0.001
"""Share of correct keypoints that no set of pairs may lose against upright targets."""
TURNED_PAIRS = 60
"""Pairs of each set whose targets are turned."""
_RIDGE, _STEP = 1e-4, 0.05
_MIRRORED = np.array([-1.0, 1.0, -1.0])
"""Evidence of a pair whose target picture is mirrored: what was the mirror image is the picture."""


@dataclass(frozen=True, eq=False)
class PoseEvidence:
    """What the pairs of one set show."""

    evidence: Float64[np.ndarray, "n 3"]
    """See :func:`chmnet.poses.mirror_evidence`."""
    gain: Float64[np.ndarray, " n"]
    """Share of keypoints that are correct in the mirrored target, less that in the target as it is."""
    strengths: Float64[np.ndarray, "m turns"]
    """Votes of turned targets, in the order of :data:`chmnet.poses.TURNS`."""


def collect_poses(
    pairs: Sequence[Pair],
    model: CHMNet,
    track: Callable[[Sequence[Pair]], Iterable[Pair]] = iter,
    device: str = "auto",
) -> PoseEvidence:
    """Match annotated pairs in both poses, and some of them turned."""
    evidence, gains, strengths = [], [], []
    small = tuple(round(SEARCH_SHARE * side) for side in model.config.image_size)
    every = max(1, len(pairs) // TURNED_PAIRS)
    with FeatureCache[Features]() as cache, FeatureCache[Features]() as small_cache:
        matcher = Matcher(model, device, cache=cache, poses="upright")
        searcher = Matcher(model, device, cache=small_cache, image_size=(small[0], small[1]), poses="upright")
        for number, pair in enumerate(track(pairs)):
            view = View.of(pair.target.path)
            source = matcher.extract(pair.source.path, "source")
            sides = [matcher.extract(each, "target") for each in (view, mirrored(view))]
            votes = [vote_strength(matcher.votes(source, side)) for side in sides]
            facings = [each.facing for each in (source, *sides)]
            known = None if None in facings else tuple(facings)
            evidence.append(mirror_evidence(known, (votes[0], votes[1])))  # type: ignore[arg-type]
            shares = [_correct(pair, matcher.match(source, side).locate(pair.source.keypoints)) for side in sides]
            gains.append(shares[1] - shares[0])
            if number % every == 0:
                first = searcher.extract(pair.source.path, "source")
                others = [searcher.extract(turned(view, turn), "target") for turn in TURNS]
                strengths.append([vote_strength(searcher.votes(first, other)) for other in others])
    return PoseEvidence(np.array(evidence), np.array(gains), np.array(strengths))


def _correct(pair: Pair, found: np.ndarray) -> float:
    """Share of keypoints within a twentieth and a tenth of the thing, on average."""
    distances = np.linalg.norm(found - pair.target.keypoints, axis=1)
    return float(np.mean([hits(distances, alpha * thing_side(pair.target)).mean() for alpha in ALPHAS]))


def fit_poses(sets: Sequence[PoseEvidence]) -> tuple[float, float, float, float, float]:
    """``calibration.pose``: a logistic function of the evidence for a mirrored target, and how clear turns are.

    Every set counts the same, a pair as much as its poses differ, and every pair a second time with its target
    mirrored (:data:`COPIES`). Then the first number is lowered until no set of pairs as they are loses
    (:data:`MOST_LOST`): upright wins unless the evidence is clear.

    Example:
        >>> opposite = np.tile([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], (20, 1))
        >>> found = PoseEvidence(opposite, opposite[:, 0] * 0.5, np.tile([0.5] + [0.4] * 7, (4, 1)))
        >>> first, across, along, votes, sharpness = fit_poses([found])
        >>> across > 2, abs(along) < 1e-6, abs(votes) < 1e-6, sharpness > 10
        (True, True, True, True)
    """
    from scipy.optimize import minimize, minimize_scalar  # takes a second to import, and few need it

    evidence = np.concatenate([part for each in sets for part in (each.evidence, _MIRRORED * each.evidence)])
    better = np.concatenate([part > 0 for each in sets for part in (each.gain, -each.gain)])
    weights = [np.abs(each.gain) / max(1e-9, np.abs(each.gain).sum()) for each in sets]
    weight = np.concatenate([part for each in weights for part in (each, COPIES * each)])
    columns = np.column_stack([np.ones(len(evidence)), evidence])

    def loss(numbers: np.ndarray) -> float:
        logits = columns @ numbers
        errors = np.logaddexp(0, logits) - better * logits
        return float((weight * errors).sum() / weight.sum() + _RIDGE * np.square(numbers[1:]).sum())

    bounds = [(None, None), (0, None), (0, None), (0, None)]
    first, *slopes = minimize(loss, np.zeros(4), method="SLSQP", bounds=bounds).x
    while any(_lost(each, first, slopes) > MOST_LOST for each in sets):
        first -= _STEP
    turns = np.concatenate([each.strengths for each in sets])
    logs = np.log(turns.clip(min=1e-9))

    def surprise(log_sharpness: float) -> float:
        logits = math.exp(log_sharpness) * (logs - logs[:, :1])
        return float(np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)).mean() + logits.max(1).mean())

    sharpness = math.exp(minimize_scalar(surprise, bounds=(0, math.log(100)), method="bounded").x)
    across, along, votes = (float(slope) for slope in slopes)
    return float(first), across, along, votes, sharpness


def _lost(found: PoseEvidence, first: float, slopes: Sequence[float]) -> float:
    """What choosing loses against the targets as they are."""
    chosen = first + found.evidence @ np.array(slopes) > 0
    return -float((chosen * found.gain).mean())
