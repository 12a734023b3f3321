"""What several labelled examples say about one picture: the best of them, with those that agree with it.

Single points of examples that contradict each other are never mixed: an example is taken as a whole, in one pose,
or not at all.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64

from chmnet.annotation.joining import ScoreMaps, join_maps, score_maps
from chmnet.annotation.records import UPRIGHT, Moved, Pose
from chmnet.nn.foreground import on_thing
from chmnet.result import MatchResult

OVERALL, DEFORMATION, POSE = 4.0, 1.5, 0.3
"""What counts beside the log-odds of the keypoints' confidences: the logarithms of the mean confidence of all that
is seen of the example, of the deformation of its keypoints, and of the probability of the pose."""
LEAST_DEFORMATION, USUAL_DEFORMATION = 0.05, 0.5
"""Deformations below the first are alike; the second stands for what fewer than three points cannot tell."""
BANDWIDTH = 0.2
"""How near two places of one keypoint must be to support each other, as a share of the thing's longer side."""
AGREEMENT = 0.2
"""How far an example must agree with the best one to be joined with it, 0 … 1. Below, it shows another pose or
another thing; where it only misses some keypoints, its scores still help."""
CONFIDENT = 0.7
"""Mean confidence that both must have instead where they have no keypoint in common."""
QUALITY_SCALE = 2.0
"""An example whose quality is lower by this counts less by a factor of e."""
WITHOUT_COUNTERPART = 0.5
"""What is left of the confidence of a keypoint whose side cannot be exchanged: a person should review it."""

_LEAST, _MOST = 0.01, 0.99
"""Confidences beyond these are alike."""


class Guess(NamedTuple):
    """Where the keypoints of one example lie in a target."""

    points: np.ndarray
    """``n`` rows (x, y) in pixels of the target; NaN where the example does not show the keypoint."""
    confidence: np.ndarray
    """``n`` numbers, 0 … 1."""
    quality: float
    """How well the example matches; see :func:`match_quality`."""
    pose: Pose = UPRIGHT
    unmatched: np.ndarray | None = None
    """The probability that each keypoint has no place in the target, 1 where the example does not show it;
    ``None``: not known."""
    foreground: np.ndarray | None = None
    """The probability that each place lies on a thing, 0 where there is no place; ``None``: not known."""
    maps: ScoreMaps | None = None
    """What the places were read from; ``None``: not known, and then it is not joined with others."""


def make_guess(
    result: MatchResult,
    keypoints: Float[np.ndarray, "n 2"],
    counterparts: Sequence[int | None],
    probability: float | None = None,
) -> Guess:
    """The keypoints of an example in the target; where the mirrored target was matched, left and right exchanged.

    Args:
        result: example and target, matched.
        keypoints: of the example; NaN where it does not show one.
        counterparts: of each keypoint its row in a mirror, see :func:`exchange_sides`; empty: none is exchanged.
        probability: of the pose; ``None``: as the result says.
    """
    seen = ~np.isnan(keypoints).any(axis=1)
    points, confidence = np.full(keypoints.shape, np.nan), np.zeros(len(keypoints))
    matches = result.transfer(keypoints[seen])
    points[seen], confidence[seen] = matches.target, matches.confidence
    chance = result.pose_probability if probability is None else probability
    pose = Pose(result.target.mirrored, float(result.target.turn), chance)
    overall = float(result.confidence.mean())
    quality = match_quality(keypoints[seen], matches.target, matches.confidence, overall, pose)
    unmatched = _spread(result.unmatched_at(keypoints[seen]), seen, 1.0)
    foreground = _spread(_foreground_at(result, matches.target), seen, 0.0)
    maps = score_maps(result, keypoints)
    if pose.mirrored and counterparts:
        order = mirror_order(counterparts)
        unmatched, foreground = (None if values is None else values[order] for values in (unmatched, foreground))
        points, confidence = exchange_sides(points, confidence, counterparts)
        maps = maps.of(order)
    return Guess(points, confidence, quality, pose, unmatched, foreground, maps)


def _foreground_at(result: MatchResult, points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"] | None:
    """The probability that points of the target lie on a thing, if the model can tell."""
    if result.foreground[1] is None:
        return None
    places = torch.from_numpy(result.target.from_picture(points))[None]
    return on_thing(result.foreground[1].cpu(), places)[0][0].double().numpy()


def _spread(values: np.ndarray | None, seen: np.ndarray, otherwise: float) -> np.ndarray | None:
    """Values of the keypoints that are seen, for all keypoints."""
    if values is None:
        return None
    spread = np.full(len(seen), otherwise)
    spread[seen] = values
    return spread


def mirror_order(counterparts: Sequence[int | None]) -> Int64[np.ndarray, " n"]:
    """Of each keypoint the row whose place it takes in a mirror: its counterpart's, else its own."""
    pairs = enumerate(counterparts)
    return np.array([row if o is None or counterparts[o] != row else o for row, o in pairs], dtype=np.int64)


def exchange_sides(
    points: Float[np.ndarray, "n 2"], confidence: Float[np.ndarray, " n"], counterparts: Sequence[int | None]
) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, " n"]]:
    """Give each place the name that it has in a mirror: where ``left_eye`` was found, ``right_eye`` is.

    Keypoints without a side are their own counterparts. A side whose counterpart is missing (``None``) stays, but
    is trusted less.

    Args:
        points: of each keypoint.
        confidence: likewise.
        counterparts: of each keypoint the row of its counterpart; see :func:`chmnet.data.pairs.mirrored_rows`.

    Example:
        >>> from chmnet.data.pairs import mirrored_rows
        >>> places = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]])
        >>> names = ["L_Eye", "R_Eye", "Nose", "Left ear"]
        >>> points, confidence = exchange_sides(places, np.full(4, 0.8), mirrored_rows(names))
        >>> points[:, 0].tolist(), confidence.tolist()
        ([2.0, 1.0, 3.0, 4.0], [0.8, 0.8, 0.8, 0.4])
    """
    order = mirror_order(counterparts)
    alone = [o is None or counterparts[o] != row for row, o in enumerate(counterparts)]
    return points[order], np.where(alone, WITHOUT_COUNTERPART * confidence, confidence[order])


def match_quality(
    source: Float[np.ndarray, "n 2"],
    target: Float[np.ndarray, "n 2"],
    confidence: Float[np.ndarray, " n"],
    overall: float,
    pose: Pose = UPRIGHT,
) -> float:
    """How well an example matches in a pose: by its confidences, less where its keypoints are deformed much.

    ``mean(log(c / (1 − c))) + 4 log o − 1.5 log d + 0.3 log p``: c are the confidences of the keypoints, o is the
    mean confidence of all that is seen of the example, d the :func:`deformation` of the keypoints, p the
    probability of the pose. Chosen on validation photographs of Animal-Pose, see ``tools/propagation.py``.

    Args:
        source: keypoints of the example, in pixels.
        target: where they lie in the target.
        confidence: of each of them.
        overall: mean confidence of all that is seen of the example.
        pose: in which the target was matched.
    """
    sure = confidence.clip(_LEAST, _MOST)
    deformed = max(deformation(source, target, sure, pose), LEAST_DEFORMATION)
    likely = 1.0 if pose.probability is None else pose.probability
    logs = np.log([max(overall, _LEAST), deformed, max(likely, _LEAST)])
    return float(np.log(sure / (1 - sure)).mean() + logs @ (OVERALL, -DEFORMATION, POSE))


def deformation(
    source: Float[np.ndarray, "n 2"],
    target: Float[np.ndarray, "n 2"],
    weights: Float[np.ndarray, " n"],
    pose: Pose = UPRIGHT,
) -> float:
    """Which share of the spread of the points in the target is no shift, turn or change of size of the source's.

    Example:
        >>> corners = np.array([[0.0, 0.0], [9.0, 0.0], [9.0, 5.0], [0.0, 5.0]])
        >>> round(deformation(corners, 2 * corners + 7, np.ones(4)), 3)
        0.0
        >>> round(deformation(corners, corners[:, ::-1], np.ones(4)), 2)  # mirrored
        0.85
    """
    if len(source) < 3:
        return USUAL_DEFORMATION
    share = weights / weights.sum()
    here, there = (points - share @ points for points in (source, target))
    # As complex numbers: a turn and a change of size are one factor.
    before, after = here @ (-1 if pose.mirrored else 1, 1j), there @ (1, 1j)
    spread = float(share @ np.abs(after) ** 2)
    scale = float(share @ np.abs(before) ** 2)
    if not spread or not scale:  # all in one place
        return 1.0
    factor = (share * before.conj()) @ after / scale
    return float(np.sqrt(share @ np.abs(after - factor * before) ** 2 / spread))


def agreement(first: Guess, second: Guess) -> float:
    """How far two guesses put their common keypoints into the same places, 0 … 1; NaN where they have none.

    It is ``Σ √(c c') exp(−d² / 2) / Σ √(c c')``; d is the distance between the two places of a keypoint in units
    of the thing's longer side times :data:`BANDWIDTH`.
    """
    common = ~np.isnan(first.points + second.points).any(axis=1)
    if not common.any():
        return np.nan
    weights = np.sqrt(first.confidence * second.confidence)[common].clip(_LEAST)
    near = _nearness(first.points[common] - second.points[common], (_extent(first) + _extent(second)) / 2)
    return float(weights @ near / weights.sum())


def agrees(first: Guess, second: Guess) -> bool:
    """Whether two guesses may be joined.

    Where they have no keypoint in common nothing contradicts, but nothing confirms either: then both must be
    confident, and lie on or beside each other.
    """
    alike = agreement(first, second)
    if not np.isnan(alike):
        return alike >= AGREEMENT
    places = [guess.points[_shown(guess)] for guess in (first, second)]
    if not all(map(len, places)):
        return False
    (low, high), (lowest, highest) = ((each.min(axis=0), each.max(axis=0)) for each in places)
    gap = np.maximum(0, np.maximum(lowest - high, low - highest)).max()
    beside = bool(gap <= max(_extent(first), _extent(second)))
    return beside and all(bool(guess.confidence[_shown(guess)].mean() >= CONFIDENT) for guess in (first, second))


def choose(category: str, examples: Iterable[Sequence[Guess]]) -> Moved:
    """The guess of the highest quality, joined with the best ones of other examples, where they agree with it.

    Where several show a keypoint their scores are added, weighted by ``exp(quality / 2)``, and its place is read
    from the sum as from the scores of one. The new confidence is the largest ``c exp(−d² / 2)``: that of an
    example, less where the keypoint lies at a distance d from the example's own place. What one example alone
    shows keeps its place and confidence. What only examples show that do not agree with the best one has no place.

    Args:
        category: of the object.
        examples: of each example its guesses in one or more poses; at least one of each. Only the best pose of
            each is kept, so they may be made one by one.

    Example:
        >>> def guess(shift, quality):
        ...     points = np.array([[10.0 + shift, 10], [50 + shift, 10], [50 + shift, 40]])
        ...     return Guess(points, np.full(3, 0.9), quality)
        >>> found = choose("cat", [[guess(200, 0.5)], [guess(0, 1.0)], [guess(2, 0.8)]])  # two agree, one does not
        >>> found.points.round(1).tolist(), found.sources
        ([[10.0, 10.0], [50.0, 10.0], [50.0, 40.0]], (1, 2))
    """
    guesses = [max(each, key=lambda guess: guess.quality) for each in examples]
    first, *rest = sorted(range(len(guesses)), key=lambda number: -guesses[number].quality)
    best = guesses[first]
    sources = first, *(number for number in rest if agrees(best, guesses[number]))
    used = [guesses[number] for number in sources]
    points, confidence = np.stack([one.points for one in used]), np.stack([one.confidence for one in used])
    shown = np.stack([_shown(one) for one in used])
    joined = _join(used, points, shown)
    extent = float(np.mean([_extent(guess) for guess in used]))
    near = np.where(shown, _nearness(np.nan_to_num(points - joined), extent), -1.0)
    trust = (confidence * near).max(axis=0).clip(min=0)
    nearest = near.argmax(axis=0)  # of each keypoint the example that knows most of its place
    unmatched = _of_the_nearest(nearest, shown, [one.unmatched for one in used], 1.0)
    foreground = _of_the_nearest(nearest, shown, [one.foreground for one in used], 0.0)
    return Moved(category, joined, trust, sources, best.pose, unmatched, foreground=foreground)


def _join(
    used: Sequence[Guess], points: Float[np.ndarray, "k n 2"], shown: Bool[np.ndarray, "k n"]
) -> Float[np.ndarray, "n 2"]:
    """The places of all keypoints; of what cannot be joined that of the best example which shows it."""
    first = np.take_along_axis(points, shown.argmax(axis=0)[None, :, None], axis=0)[0]
    known = [
        (guess.maps, guess.quality, row) for guess, row in zip(used, shown, strict=True) if guess.maps is not None
    ]
    if len(known) < 2:
        return first
    maps, quality, rows = zip(*known, strict=True)
    weights = np.exp((np.array(quality) - max(quality)) / QUALITY_SCALE)[:, None] * np.stack(rows)
    several = np.stack(rows).sum(axis=0) > 1
    joined = join_maps(maps, weights / weights.sum(axis=0).clip(1e-9), several)
    return np.where(several[:, None], joined, first)


def _of_the_nearest(
    nearest: Int64[np.ndarray, " n"],
    shown: Bool[np.ndarray, "k n"],
    values: Sequence[np.ndarray | None],
    otherwise: float,
) -> np.ndarray | None:
    """Of each keypoint what the nearest guess says; ``None`` where one of them does not know."""
    known = [each for each in values if each is not None]
    if len(known) < len(values):
        return None
    return np.where(shown.any(axis=0), np.take_along_axis(np.stack(known), nearest[None], axis=0)[0], otherwise)


def _nearness(differences: np.ndarray, extent: float) -> np.ndarray:
    return np.asarray(np.exp(-np.square(differences / (BANDWIDTH * extent)).sum(axis=-1) / 2))


def _shown(guess: Guess) -> Bool[np.ndarray, " n"]:
    return ~np.isnan(guess.points).any(axis=1)


def _extent(guess: Guess) -> float:
    """The longer side of the box of a guess's points, at least one pixel."""
    points = guess.points[_shown(guess)]
    return max(1.0, float(np.ptp(points, axis=0).max())) if len(points) else 1.0
