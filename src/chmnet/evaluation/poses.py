"""Fit the choice of a pose to annotated pairs: when is the mirrored target the better one."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float64

from chmnet.data.pairs import Pair
from chmnet.evaluation.calibrate import thing_side
from chmnet.features import FeatureCache, Features
from chmnet.matcher import Matcher
from chmnet.metrics import hits
from chmnet.nn.chmnet import CHMNet
from chmnet.pictures import View
from chmnet.poses import mirror_evidence, mirrored

ALPHAS = (0.05, 0.1)
COPIES = 0.3
"""What a pair with its target mirrored counts, against 1 as it is: photographs are rarely mirrored."""
MOST_LOST = 0.0015
"""Share of correct keypoints that no set of pairs may lose against upright targets."""
MARGIN = 0.1
"""None may lose so much either with a limit lower by this: other pairs may lie closer to it."""
SYMMETRIC = 0.2
"""Things whose sides lie in one order by this much are not mirrored: nobody sees that they were."""
_ALONG, _LIKENESS = (0, 0.3, 0.5, 0.8, 1.2, 1.8, 2.5), (0, 0.15, 0.3, 0.45, 0.6, 0.8, 1, 1.5, 2, 3)
_LIMITS = np.arange(-0.2, 1.01, 0.02)
"""Slopes of the other evidence that are tried, if that of the fronts is 1, and limits of the sum."""
_MIRRORED = np.array([-1.0, 1.0, -1.0])
"""Evidence of a pair whose target picture is mirrored: what was the mirror image is the picture."""


@dataclass(frozen=True, eq=False)
class PoseEvidence:
    """What the pairs of one set show."""

    evidence: Float64[np.ndarray, "n 3"]
    """See :func:`chmnet.poses.mirror_evidence`."""
    gain: Float64[np.ndarray, " n"]
    """Share of keypoints that are correct in the mirrored target, less that in the target as it is."""


def collect_poses(
    pairs: Sequence[Pair],
    model: CHMNet,
    track: Callable[[Sequence[Pair]], Iterable[Pair]] = iter,
    device: str = "auto",
) -> PoseEvidence:
    """Match annotated pairs in both poses."""
    evidence, gains = [], []
    with FeatureCache[Features]() as cache:
        matcher = Matcher(model, device, cache=cache, poses="upright")
        for pair in track(pairs):
            view = View.of(pair.target.path)
            source = matcher.extract(pair.source.path, "source")
            sides = [matcher.extract(each, "target") for each in (view, mirrored(view))]
            evidence.append(mirror_evidence(source, *sides))
            shares = [
                correct_share(pair, matcher.match(source, side).locate(pair.source.keypoints)) for side in sides
            ]
            gains.append(shares[1] - shares[0])
    return PoseEvidence(np.array(evidence), np.array(gains))


def correct_share(pair: Pair, found: np.ndarray) -> float:
    """Share of keypoints within a twentieth and a tenth of the thing, on average."""
    distances = np.linalg.norm(found - pair.target.keypoints, axis=1)
    return float(np.mean([hits(distances, alpha * thing_side(pair.target)).mean() for alpha in ALPHAS]))


def fit_poses(sets: Sequence[PoseEvidence]) -> tuple[float, float, float, float]:
    """``calibration.pose``: a logistic function of the evidence for a mirrored target.

    Of a few slopes and limits those are taken that gain most keypoints. Every set counts the same, and pairs with
    their target mirrored a little (:data:`COPIES`). None are taken that make a set of pairs as they are lose
    (:data:`MOST_LOST`): upright wins unless the evidence is clear. Then how fast the probability rises is fitted.

    Example:
        >>> opposite = np.tile([[0.9, 0.0, 0.0], [-0.9, 0.0, 0.0]], (20, 1))
        >>> found = PoseEvidence(opposite, opposite[:, 0] * 0.5)
        >>> first, across, along, likeness = fit_poses([found])
        >>> across > 2, along, likeness
        (True, 0.0, 0.0)
    """
    from scipy.optimize import minimize_scalar  # takes a second to import, and few need it

    choices = product(_ALONG, _LIKENESS, _LIMITS)

    def worth(choice: tuple[float, float, float]) -> tuple[float, float]:
        return round(_worth(sets, np.array([1.0, *choice[:2]]), choice[2]), 9), choice[2]  # else the higher limit

    along, likeness, limit = max(choices, key=worth)
    slopes = np.array([1.0, along, likeness])
    sums = np.concatenate([each.evidence @ slopes - limit for each in sets])
    gains = np.concatenate([each.gain / max(1e-9, np.abs(each.gain).sum()) for each in sets])

    def error(log_rate: float) -> float:
        return float((np.abs(gains) * np.logaddexp(0, -np.sign(gains) * math.exp(log_rate) * sums)).sum())

    rate = math.exp(minimize_scalar(error, bounds=(0, math.log(20)), method="bounded").x)
    return float(-rate * limit), rate, float(rate * along), float(rate * likeness)


def _worth(sets: Sequence[PoseEvidence], slopes: Float64[np.ndarray, "3"], limit: float) -> float:
    """What choosing the mirrored target above a limit gains; −∞ where a set of pairs as they are loses."""
    worth = 0.0
    for each in sets:
        sums = each.evidence @ slopes
        gain = float(((sums > limit) * each.gain).mean())
        if min(gain, float(((sums > limit - MARGIN) * each.gain).mean())) < -MOST_LOST:
            return -math.inf
        told = np.abs(each.evidence[:, 1]) < SYMMETRIC
        copies = ((_MIRRORED * each.evidence) @ slopes > limit) & told
        worth += gain - COPIES * float((copies * each.gain).mean())
    return worth
