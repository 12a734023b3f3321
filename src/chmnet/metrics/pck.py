"""Percentage of correct keypoints: predictions against annotated pairs, under an explicit protocol.

All percentages are 0 … 100. Pairs without keypoints have no PCK: they are left out and counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
from jaxtyping import Bool, Float

from chmnet.data.pairs import AnnotatedImage, Pair
from chmnet.errors import InputError
from chmnet.geometry import Size, rescale_points
from chmnet.metrics.protocol import Average, Protocol

SPAIR_FLAGS = ("viewpoint", "scale", "truncation", "occlusion")
"""SPair-71k's kinds of difficulty, in the order of its paper."""

LEGACY_PADDING_PX = -2.0
"""What the authors' code fills its tables of keypoints with, on both axes, before it takes their extent."""

# By the bytes of a number: a distance equal to its limit stays correct when both are rounded differently.
_ROUNDING = {4: 1e-6, 8: 1e-9}


@dataclass(frozen=True, eq=False)
class Prediction:
    """Where a model puts the source keypoints of one pair in the target image."""

    pair: str
    """:attr:`Pair.name`."""
    points: np.ndarray
    """``n`` rows (x, y), in pixels of the target's image file."""
    source_size: tuple[int, int]
    """(height, width) of the image file."""
    target_size: tuple[int, int]


@dataclass(frozen=True)
class Score:
    """PCK of a set of pairs, with the protocol it was computed by."""

    pck: dict[float, float]
    """Percent for each α."""
    per_class: dict[str, dict[float, float]]
    """Percent for each class and α: over the class's keypoints where the average is ``keypoint``, else over its
    pairs."""
    pairs: int
    """How many pairs the figures are of."""
    keypoints: int
    protocol: Protocol
    excluded: int = 0
    """How many further pairs have no keypoints."""


class LevelScore(TypedDict):
    """One cell of the difficulty table: how many pairs, and their PCK for each α."""

    pairs: int
    pck: dict[float, float]


# ---------------------------------------------------------------- one pair


def hits(distances: Any, limits: Any) -> Any:
    """Which predictions are correct: those at most ``limit`` away from the truth, the limit included.

    The only test of "correct": PCK, validation during training and calibration all use it.

    Args:
        distances: between predictions and truth; a NumPy array or tensor of float32 or float64.
        limits: in the same unit; a number, or an array (tensor) that broadcasts with the distances.

    Returns:
        Booleans, of the same library as the distances.

    Example:
        >>> hits(np.array([11.9, 12.0, 12.1]), 0.05 * 240).tolist()
        [True, True, False]
    """
    return distances <= limits * (1 + _ROUNDING[distances.dtype.itemsize])


def reference_length(pair: Pair, target_size: Size, protocol: Protocol) -> float:
    """The length that α is a share of, max(w, h), in pixels of the protocol's space.

    ``img``: of the image; ``bbox``: of the object's box; ``bbox-kp``: of the target keypoints' own box, 0 for a
    single keypoint; ``bbox-legacy``: of the box around the target keypoints and (−2, −2), so the largest
    coordinate + 2 for keypoints inside their image.

    ``target_size`` is (height, width) of the target's image file.

    Raises:
        InputError: the pair has no box or no keypoints to measure, or what it has is not usable.

    Example:
        >>> from pathlib import Path
        >>> image = AnnotatedImage(Path("duck.png"), np.array([[10.0, 20.0], [70.0, 100.0]]))
        >>> pair = Pair("duck-duck", "duck", image, image)
        >>> for threshold in ("img", "bbox-kp", "bbox-legacy"):
        ...     reference_length(pair, (200, 400), Protocol(space="original", threshold=threshold))
        400.0
        80.0
        102.0
    """
    if min(target_size) < 1:
        raise InputError(f"pair {pair.name}: the size of the target must be at least 1 px, got {target_size}")
    if protocol.threshold == "img":
        return float(max(protocol.image_size if protocol.space == "resized" else target_size))
    if protocol.threshold == "bbox":
        corners = _box_corners(pair.target, pair.name)
    else:
        corners = _rows(pair.target.keypoints, f"pair {pair.name}: the target's keypoints")
        if len(corners) == 0:
            raise InputError(f"pair {pair.name} has no keypoints: the threshold {protocol.threshold} needs them")
    corners = _to_space(corners, target_size, protocol)
    if protocol.threshold == "bbox-legacy":
        # The padding is never scaled: the authors' code adds it after it has resized the keypoints.
        corners = np.vstack([corners, [[LEGACY_PADDING_PX, LEGACY_PADDING_PX]]])
    return float((corners.max(axis=0) - corners.min(axis=0)).max())


def correct(pair: Pair, prediction: Prediction, protocol: Protocol) -> dict[float, Bool[np.ndarray, " n"]]:
    """Which keypoints are correct at each α (:func:`hits`): ‖k̂′ − k′‖ ≤ α · length.

    Prediction and truth are both taken to the protocol's space (``resized``: x · image width / file width, y
    likewise with the heights, no half-pixel shift), where the distance is Euclidean.

    Raises:
        InputError: the prediction is of another pair, has another number of points or points that are no numbers;
            or the pair lacks what the threshold needs.

    Example:
        >>> from pathlib import Path
        >>> image = AnnotatedImage(Path("duck.png"), np.array([[10.0, 20.0], [70.0, 100.0]]))
        >>> points = np.array([[10.0, 20.0], [90.0, 100.0]])  # 20 px to the right are 12 px of 240
        >>> prediction = Prediction("duck-duck", points, (200, 400), (200, 400))
        >>> found = correct(Pair("duck-duck", "duck", image, image), prediction, Protocol(alphas=(0.04, 0.05)))
        >>> {alpha: hit.tolist() for alpha, hit in found.items()}
        {0.04: [True, False], 0.05: [True, True]}
    """
    truth = _rows(pair.target.keypoints, f"pair {pair.name}: the target's keypoints")
    points = _predicted_points(pair, prediction)
    length = reference_length(pair, prediction.target_size, protocol)
    found, wanted = (_to_space(rows, prediction.target_size, protocol) for rows in (points, truth))
    distances = np.hypot(*(found - wanted).T)
    return {alpha: hits(distances, alpha * length) for alpha in protocol.alphas}


def _to_space(points: Float[np.ndarray, "n 2"], size: Size, protocol: Protocol) -> Float[np.ndarray, "n 2"]:
    return rescale_points(points, size, protocol.image_size) if protocol.space == "resized" else points


def _box_corners(target: AnnotatedImage, pair: str) -> Float[np.ndarray, "2 2"]:
    if target.box is None:
        raise InputError(f"pair {pair} has no box of the target's object; use threshold bbox-kp or img, not bbox")
    corners = np.array(target.box, dtype=np.float64).reshape(2, 2)
    sides = corners[1] - corners[0]
    if not (np.isfinite(sides).all() and sides.min() >= 0 and sides.max() > 0):
        expected = "left, top, right, bottom around something"
        raise InputError(f"pair {pair}: the target's box must be {expected}, got {target.box}")
    return corners


def _predicted_points(pair: Pair, prediction: Prediction) -> Float[np.ndarray, "n 2"]:
    if prediction.pair != pair.name:
        raise InputError(f"the prediction is of pair {prediction.pair}, not of pair {pair.name}")
    points = _rows(prediction.points, f"pair {pair.name}: the predicted points")
    count = len(pair.target.keypoints)
    if len(points) != count:
        raise InputError(f"pair {pair.name} has {count} keypoints, the prediction {len(points)} points")
    return points


def _rows(points: np.ndarray, what: str) -> Float[np.ndarray, "n 2"]:
    """The points as float64, if they are rows of two finite numbers."""
    if points.ndim != 2 or points.shape[1] != 2 or points.dtype.kind not in "iuf":
        raise InputError(f"{what} must be rows (x, y), got {points.dtype} of shape {list(points.shape)}")
    if not np.isfinite(points).all():
        raise InputError(f"{what} must be finite numbers, got NaN or infinity")
    return points.astype(np.float64)


# ---------------------------------------------------------------- a set of pairs


def score(pairs: Iterable[Pair], predictions: Iterable[Prediction], protocol: Protocol) -> Score:
    """PCK of a set of pairs, in percent, over all of them and for each class.

    With c_pm = 1 where keypoint m of pair p is correct and M_p keypoints in pair p, the average is

    * ``pair``: mean over p of (Σ_m c_pm) / M_p;
    * ``keypoint``: (Σ_p Σ_m c_pm) / Σ_p M_p;
    * ``class``: mean over classes of the ``pair`` average of the class's pairs.

    Args:
        pairs: the annotated pairs; those without keypoints are left out and counted.
        predictions: one for each pair with keypoints, in any order; those of other pairs are ignored.
        protocol: how to compute.

    Raises:
        InputError: a prediction is missing, doubled or unusable, a pair lacks what the protocol needs, two pairs
            have one name, or there is no pair with keypoints.

    Example:
        >>> from pathlib import Path
        >>> image = AnnotatedImage(Path("duck.png"), np.array([[10.0, 20.0], [70.0, 100.0]]))
        >>> prediction = Prediction("a", np.array([[10.0, 20.0], [0.0, 0.0]]), (200, 400), (200, 400))
        >>> score([Pair("a", "duck", image, image)], [prediction], Protocol()).pck
        {0.05: 50.0, 0.1: 50.0}
    """
    judged, excluded = _judge(pairs, predictions, protocol)
    return Score(
        pck=_average(judged, protocol),
        per_class={category: _average(group, protocol) for category, group in sorted(_by_class(judged).items())},
        pairs=len(judged),
        keypoints=sum(item.hits.shape[1] for item in judged),
        protocol=protocol,
        excluded=excluded,
    )


def difficulty_table(
    pairs: Iterable[Pair], predictions: Iterable[Prediction], protocol: Protocol
) -> dict[str, dict[int, LevelScore]]:
    """PCK by difficulty: for each flag (SPair-71k: viewpoint, scale, truncation, occlusion) and each level of it.

    A pair without a flag is in no row of that flag; without any flags the table is empty.

    Raises:
        InputError: as :func:`score`.

    Example:
        >>> from pathlib import Path
        >>> image = AnnotatedImage(Path("duck.png"), np.array([[10.0, 20.0]]))
        >>> prediction = Prediction("a", np.array([[10.0, 20.0]]), (200, 400), (200, 400))
        >>> pair = Pair("a", "duck", image, image, flags={"viewpoint": 2})
        >>> difficulty_table([pair], [prediction], Protocol(alphas=(0.1,)))
        {'viewpoint': {2: {'pairs': 1, 'pck': {0.1: 100.0}}}}
    """
    judged, _ = _judge(pairs, predictions, protocol)
    flags = dict.fromkeys(flag for item in judged for flag in item.pair.flags)
    known = [flag for flag in SPAIR_FLAGS if flag in flags]
    table: dict[str, dict[int, LevelScore]] = {}
    for flag in [*known, *(flag for flag in flags if flag not in known)]:
        flagged = [item for item in judged if flag in item.pair.flags]
        table[flag] = {}
        for level in sorted({item.pair.flags[flag] for item in flagged}):
            group = [item for item in flagged if item.pair.flags[flag] == level]
            table[flag][level] = {"pairs": len(group), "pck": _average(group, protocol)}
    return table


def curve(
    pairs: Iterable[Pair], predictions: Iterable[Prediction], protocol: Protocol, alphas: Iterable[float]
) -> list[tuple[float, float]]:
    """PCK over α: (α, percent) for each of ``alphas``, which take the place of the protocol's own.

    Raises:
        InputError: as :func:`score`.
        ConfigError: an α outside 0 … 1, or twice.

    Example:
        >>> from pathlib import Path
        >>> image = AnnotatedImage(Path("duck.png"), np.array([[10.0, 20.0]]))
        >>> prediction = Prediction("a", np.array([[50.0, 20.0]]), (200, 400), (200, 400))
        >>> curve([Pair("a", "duck", image, image)], [prediction], Protocol(), [0.05, 0.1])
        [(0.05, 0.0), (0.1, 100.0)]
    """
    changed = protocol.replace(alphas=tuple(map(float, alphas)))
    return list(_average(_judge(pairs, predictions, changed)[0], changed).items())


def per_pair(
    pairs: Iterable[Pair], predictions: Iterable[Prediction], protocol: Protocol
) -> dict[str, dict[float, float]]:
    """Percent of correct keypoints of each pair with keypoints, by name, for each α.

    Raises:
        InputError: as :func:`score`.

    Example:
        >>> from pathlib import Path
        >>> image = AnnotatedImage(Path("duck.png"), np.array([[10.0, 20.0]]))
        >>> prediction = Prediction("a", np.array([[50.0, 20.0]]), (200, 400), (200, 400))
        >>> per_pair([Pair("a", "duck", image, image)], [prediction], Protocol())
        {'a': {0.05: 0.0, 0.1: 100.0}}
    """
    judged, _ = _judge(pairs, predictions, protocol)
    return {item.pair.name: _percent(protocol, item.hits.mean(axis=1)) for item in judged}


class _Judged(NamedTuple):
    pair: Pair
    hits: np.ndarray
    """Booleans, a row for each α, a column for each keypoint."""


def _judge(
    pairs: Iterable[Pair], predictions: Iterable[Prediction], protocol: Protocol
) -> tuple[list[_Judged], int]:
    """Every pair with keypoints, judged; and the number of pairs without."""
    by_name: dict[str, Prediction] = {}
    for prediction in predictions:
        if prediction.pair in by_name:
            raise InputError(f"pair {prediction.pair} has two predictions; keep one")
        by_name[prediction.pair] = prediction
    names: set[str] = set()
    judged, excluded = [], 0
    for pair in pairs:
        if pair.name in names:
            raise InputError(f"two pairs have the name {pair.name}; names must be unique")
        names.add(pair.name)
        if len(pair.target.keypoints) == 0:
            excluded += 1
            continue
        if pair.name not in by_name:
            raise InputError(f"there is no prediction for pair {pair.name}; predict it, or leave the pair out")
        judged.append(_Judged(pair, np.stack(list(correct(pair, by_name[pair.name], protocol).values()))))
    if not judged:
        raise InputError(f"there is nothing to score: {excluded} pairs, none with keypoints")
    return judged, excluded


def _by_class(judged: list[_Judged]) -> dict[str, list[_Judged]]:
    groups: dict[str, list[_Judged]] = {}
    for item in judged:
        groups.setdefault(item.pair.category, []).append(item)
    return groups


def _average(judged: list[_Judged], protocol: Protocol) -> dict[float, float]:
    return _percent(protocol, _shares(judged, protocol.average))


def _shares(judged: list[_Judged], average: Average) -> Float[np.ndarray, " alphas"]:
    """Shares of correct keypoints of a set of pairs, 0 … 1; see :func:`score` for the averages."""
    if average == "class":
        return np.mean([_shares(group, "pair") for group in _by_class(judged).values()], axis=0)
    if average == "keypoint":
        return np.hstack([item.hits for item in judged]).mean(axis=1)
    return np.mean([item.hits.mean(axis=1) for item in judged], axis=0)


def _percent(protocol: Protocol, shares: Float[np.ndarray, " alphas"]) -> dict[float, float]:
    return dict(zip(protocol.alphas, (100 * shares).tolist(), strict=True))
