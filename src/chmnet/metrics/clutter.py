"""Robustness to background clutter (section 5 of the paper): do the best-scored matches lie on the object?"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from chmnet.errors import InputError
from chmnet.pictures import Box


@dataclass(frozen=True, eq=False)
class Clutter:
    """Precision and recall over matches ranked by score, best first, one entry for each distinct score."""

    precision: np.ndarray
    """Of the matches with at least this score, the share inside: N_TP / (N_TP + N_FP)."""
    recall: np.ndarray
    """Of all candidate matches inside, the share with at least this score: N_TP / N_mask."""
    area: float
    """Area under precision over recall, 0 … 1."""


def inside(points: Float[np.ndarray, "n 2"], region: Box | Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, " n"]:
    """Which points (x, y) lie inside an object's region, in pixels of the same picture.

    Args:
        points: in pixels, measured from the picture's corner (:mod:`chmnet.geometry`).
        region: a box, its edges included; or the mask of the whole picture, read at the pixel a point lies in.
            The picture reaches to x = width and y = height, both included; what is beyond is outside.

    Example:
        >>> points = np.array([[0.0, 0.0], [1.4, 1.6], [5.0, 5.0]])
        >>> inside(points, (1.0, 0.0, 5.0, 5.0)).tolist()
        [False, True, True]
        >>> inside(points, np.array([[True, False], [True, True]])).tolist()
        [True, True, False]
    """
    x, y = points.T
    if isinstance(region, tuple):
        left, top, right, bottom = region
        return (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
    height, width = region.shape
    within = (x >= 0) & (x <= width) & (y >= 0) & (y <= height)
    column = np.floor(np.where(within, x, 0)).astype(np.intp).clip(max=width - 1)
    row = np.floor(np.where(within, y, 0)).astype(np.intp).clip(max=height - 1)
    return within & region[row, column]


def clutter_curve(
    source_inside: Bool[np.ndarray, " n"], target_inside: Bool[np.ndarray, " m"], scores: Float[np.ndarray, " k"]
) -> Clutter:
    """Precision and recall of score-ranked matches against objects' masks or boxes.

    The paper takes the best match of every point of a regular grid, ranks these candidates by score, and calls
    "matches falling inside object segmentation masks (bounding box)" true positives. A match has two ends: here it
    is a true positive when both lie inside, and a false positive otherwise. N_mask is the number of true positives
    among all candidates, so recall ends at 1. Candidates of a whole set of pairs are pooled: join their arrays.

    Matches of equal score enter together, so their order does not matter. The area is that of steps,
    Σ_k (R_k − R_{k−1}) · P_k ("average precision"): 1 where every match inside has a higher score than every match
    outside, the share of matches inside where all scores are equal. Without any match inside, precision, recall
    and area are 0.

    Args:
        source_inside, target_inside: whether that end of each candidate lies on the object (:func:`inside`).
        scores: of each candidate.

    Raises:
        InputError: there are no candidates, the arrays differ in length, or scores are not finite.

    Example:
        >>> on = np.array([True, True, False, True])
        >>> curve = clutter_curve(on, np.array([True, False, False, True]), np.array([0.9, 0.8, 0.1, 0.8]))
        >>> curve.recall.tolist()
        [0.5, 1.0, 1.0]
        >>> curve.precision.round(3).tolist(), round(curve.area, 3)
        ([1.0, 0.667, 0.5], 0.833)
    """
    lengths = (len(source_inside), len(target_inside), len(scores))
    if len(set(lengths)) > 1:
        raise InputError(f"source_inside, target_inside and scores must have one length, got {lengths}")
    if len(scores) == 0:
        raise InputError("there are no candidate matches to rank")
    if not np.isfinite(scores).all():
        raise InputError("scores must be finite numbers, got NaN or infinity")
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last_of_score = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    positives = np.cumsum((source_inside & target_inside)[order])[last_of_score]
    precision = positives / (last_of_score + 1)
    recall = positives / max(positives[-1], 1)
    area = float(np.sum(np.diff(recall, prepend=0.0) * precision))
    return Clutter(precision, recall, area)
