"""Fit the choice of a turn to annotated pairs: when turns are tried, and when a turned target is better."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from chmnet.data.pairs import Pair
from chmnet.errors import InputError
from chmnet.evaluation.calibrate import spread
from chmnet.evaluation.poses import correct_share
from chmnet.features import Features
from chmnet.matcher import Matcher
from chmnet.nn.chmnet import CHMNet
from chmnet.pictures import View
from chmnet.place import agree
from chmnet.turns import FINALISTS, SMALL_SHARE, STRAIGHT, TURNS, turn_evidence, turned, twist

PAIRS = 60
"""Pairs of each set that are looked at, at most."""
QUARTERS = (3, 6, 9)
"""Turns of the copies, as places in the list of turns: of these nothing is lost beside the frame."""
COPIES = 0.3
"""What a turned copy counts, against 1 of a pair as it is: most pictures are upright."""
MOST_MISSED = 0.01
"""Share of the correct keypoints of turned targets of a set that may be lost because nothing is tried."""
MOST_LOST = 0.01
"""Share of the correct keypoints of pairs as they are that may be lost, on average of the sets. Most of it is lost
where little is right at all."""


@dataclass(frozen=True, eq=False)
class TurnEvidence:
    """How well the targets of one set agree with their sources, in the order of :data:`chmnet.turns.TURNS`."""

    small: Float64[np.ndarray, "n turns"]
    """In small pictures."""
    large: Float64[np.ndarray, "n turns"]
    """At full size."""
    twist: Float64[np.ndarray, "n turns"]
    """See :func:`chmnet.turns.twist`."""
    correct: Float64[np.ndarray, " n"]
    """Share of keypoints that are correct in the target as it is."""


def collect_turns(
    pairs: Sequence[Pair],
    model: CHMNet,
    track: Callable[[Sequence[Pair]], Iterable[Pair]] = iter,
    device: str = "auto",
) -> TurnEvidence:
    """Compare the pictures of some pairs, with all turns of the target."""
    matcher = Matcher(model, device, poses="upright")
    height, width = matcher.image_size
    size = round(SMALL_SHARE * height), round(SMALL_SHARE * width)
    half = Matcher(model, device, poses="upright", image_size=size)
    agreements: list[list[list[float]]] = []
    twists, correct = [], []
    for pair in track(spread(pairs, PAIRS)):
        views = [turned(View.of(pair.target.path), turn) for turn in TURNS]
        large: list[Features] = [matcher.extract(view, "target") for view in views]
        source, small = matcher.extract(pair.source.path), half.extract(pair.source.path)
        agreements.append(
            [
                [agree(small, half.extract(view, "target"), half.votes) for view in views],
                [agree(source, side, matcher.votes) for side in large],
            ]
        )
        twists.append([twist(source, side) for side in large])
        correct.append(correct_share(pair, matcher.match(source, large[0]).locate(pair.source.keypoints)))
    found = np.array(agreements)
    return TurnEvidence(found[:, 0], found[:, 1], np.array(twists), np.array(correct))


def fit_turns(sets: Sequence[TurnEvidence]) -> tuple[float, float, float, float]:
    """``calibration.turn``: the agreement at which nothing is tried, and a logistic function of the evidence.

    Every set counts the same, a pair as much as is correct in it: where nothing can be matched, nothing is lost.
    First the lowest agreement is taken at which straight turned targets are rare (:data:`MOST_MISSED`). Then the
    function is fitted to pairs as they are and turned by quarters, and lowered until pairs as they are lose little
    (:data:`MOST_LOST`).

    Example:
        >>> clear = np.array([[0.6] + 11 * [0.1], [0.4] + 11 * [0.2]] * 9)
        >>> found = TurnEvidence(clear, clear, np.zeros((18, 12)), np.ones(18))
        >>> enough, first, gain, lead = fit_turns([found])
        >>> enough > 0.2, gain > 0
        (True, True)

    Raises:
        InputError: no keypoint is correct, or a picture agrees by no number.
    """
    from scipy.optimize import minimize  # takes a second to import, and few need it

    values = np.concatenate([each for one in sets for each in vars(one).values()], axis=None)
    if not np.isfinite(values).all() or not any(one.correct.any() for one in sets):
        raise InputError("turns cannot be fitted: no keypoint is correct, or pictures agree by no number")
    enough = max(_enough(each) for each in sets)
    cases = [_cases(each, enough) for each in sets]
    rows = np.concatenate([evidence for evidence, _, _ in cases])
    weights = np.concatenate([weight / len(sets) for _, weight, _ in cases])
    signs = np.concatenate([np.where(is_turned, 1.0, -1.0) for _, _, is_turned in cases])

    def error(numbers: Float64[np.ndarray, "3"]) -> float:
        logits = numbers[0] + rows @ numbers[1:]
        return float((weights * np.logaddexp(0, -signs * logits)).sum()) + 1e-4 * float((numbers**2).sum())

    first, *slopes = minimize(error, [-1.0, 5.0, 5.0], bounds=[(-50, 50), (0, 50), (0, 50)]).x
    logits = np.where(signs < 0, first + rows @ np.array(slopes), -np.inf)
    order = np.argsort(-logits)
    too_much = logits[order][np.cumsum(np.where(signs < 0, weights, 0)[order]) > MOST_LOST]
    first -= max(0.0, float(too_much[0]) + 1e-6) if len(too_much) else 0.0
    return float(enough), float(first), float(slopes[0]), float(slopes[1])


def _enough(found: TurnEvidence) -> float:
    """The lowest agreement that few straight turned targets reach, by the keypoints that are lost with them."""
    values = np.where(np.abs(found.twist) <= STRAIGHT, found.large, 0)[:, 1:]
    weights = np.repeat(found.correct[:, None], values.shape[1], 1)
    order = np.argsort(-values, axis=None)
    lost = np.cumsum(weights.ravel()[order]) > MOST_MISSED * weights.sum()
    return float(values.ravel()[order][lost.argmax()]) + 1e-6 if lost.any() else 0.0


def _cases(
    found: TurnEvidence, enough: float
) -> tuple[Float64[np.ndarray, "m 2"], Float64[np.ndarray, " m"], np.ndarray]:
    """Evidence, weight, and whether turning is right: of the pairs as they are, and turned by quarters.

    A copy whose best turn is a wrong one is left out: nothing is gained there.
    """
    evidence, weights, is_turned = [], [], []
    for small, large, angle, correct in zip(found.small, found.large, found.twist, found.correct, strict=True):
        for number in (0, *QUARTERS):
            coarse, full = np.roll(small, -number)[1:], np.roll(large, -number)
            finalists = np.argsort(-coarse)[:FINALISTS]
            best = int(finalists[full[1 + finalists].argmax()])
            away = (1 + best + number) % len(full)
            tried = full[0] < enough or abs(angle[number]) > STRAIGHT
            if number == 0 or (tried and min(away, len(full) - away) <= 1):
                evidence.append(turn_evidence(full[0], full[1 + best], list(coarse), best))
                weights.append(correct * (COPIES if number else 1.0) if tried else 0.0)
                is_turned.append(number > 0)
    share = np.array(weights) / max(1e-9, found.correct.sum())
    return np.array(evidence), share, np.array(is_turned)
