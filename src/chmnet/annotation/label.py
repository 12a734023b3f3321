"""Keypoints beyond the annotated ones: what several matchers agree on inside the objects' boxes.

A matcher does better when it sees the two objects alone, each filling its picture. So every member of a committee
matches the crops around the boxes, and the members' scores are added up. Matches that survive going there and
back, and lie in both boxes, become keypoints of the whole pictures. A model that is trained on them learns to find
without boxes what its teachers found with them. Where a pair has keypoints, these can stay, and matches between
them join that go their way.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from chmnet.data.pairs import AnnotatedImage, Pair, image_names
from chmnet.data.posing import MIRRORED
from chmnet.errors import InputError
from chmnet.features import FeatureCache, Features
from chmnet.geometry import Size, grid_points, spread_out
from chmnet.matcher import Matcher
from chmnet.metrics import inside
from chmnet.nn.chmnet import CHMNet
from chmnet.ops.correlation import exchange, filter_in_place, resize_correlation
from chmnet.ops.transfer import cycle_consistency, soft_argmax
from chmnet.pictures import View
from chmnet.poses import mirrored
from chmnet.tables import check_range

GRID: Size = (30, 30)
"""Positions of each object that are matched: the grid on which the members' scores are added up."""
MARGIN = 0.1
"""What a crop shows around a box, as a share of its sides."""
NEIGHBOURS = 3
"""Annotated keypoints that tell which way the points near them go."""
MOST_ASIDE = 0.15
"""How far a match may lie from there, as a share of the crop's sides."""


@dataclass(frozen=True)
class LabellingConfig:
    """Which matches become keypoints."""

    minimum_confidence: float = 0.8
    """Of going there and back, 0 … 1."""
    minimum_matches: int = 40
    """Of a pair's 900 positions. Pairs with fewer are left out: their objects show different sides."""
    most_points: int = 32
    """Keypoints of a pair; of more matches, those that lie farthest apart are taken."""
    keep: bool = False
    """Keep the keypoints that pairs have; only matches that agree with them are added. Pairs without any are left
    out."""

    def __post_init__(self) -> None:
        check_range("minimum_confidence", self.minimum_confidence, minimum=0, maximum=1)
        check_range("minimum_matches", self.minimum_matches, minimum=1)
        check_range("most_points", self.most_points, minimum=1)


class Member(NamedTuple):
    """One matcher of the committee."""

    model: CHMNet
    side: int | None = None
    """Pictures are resized to so many pixels on both sides; ``None``: the model's own size."""

    def matcher(self, device: str, cache: FeatureCache[Features]) -> Matcher:
        """The matcher of this member."""
        size = (self.side, self.side) if self.side else None
        return Matcher(self.model, device, cache=cache, image_size=size, poses="upright")


def draw_pairs(
    pairs: Sequence[Pair], count: int, excluded: Collection[frozenset[str]], seed: int = 0
) -> list[Pair]:
    """Further pairs of the same pictures: two of one category that no list pairs.

    Args:
        pairs: whose pictures and boxes to take.
        count: pairs to draw, as far as there are so many.
        excluded: names of two pictures each that are not to be paired, such as those of validation and test.
        seed: of the choice.
    """
    sides: dict[str, dict[str, AnnotatedImage]] = {}
    for pair in pairs:
        sides.setdefault(pair.category, {}).update({one.path.name: one for one in (pair.source, pair.target)})
    taken = {image_names(pair) for pair in pairs} | set(excluded)
    candidates = [
        (category, first, second)
        for category, names in sorted(sides.items())
        for first, second in combinations(sorted(names), 2)
        if frozenset((first, second)) not in taken
    ]
    chosen = np.random.default_rng(seed).permutation(len(candidates))[:count]
    drawn = []
    for category, first, second in (candidates[number] for number in chosen):
        source, target = sides[category][first], sides[category][second]
        drawn.append(Pair(f"{source.path.stem}-{target.path.stem}:{category}", category, source, target))
    return drawn


def label_pairs(
    pairs: Sequence[Pair],
    members: Sequence[Member],
    config: LabellingConfig = LabellingConfig(),
    track: Callable[[Sequence[Pair]], Iterable[Pair]] = iter,
    device: str = "auto",
) -> list[Pair]:
    """Give pairs the keypoints that the members agree on; pairs with too few are left out.

    Args:
        pairs: two pictures each, with the boxes of their objects; keypoints they have are ignored unless
            ``config.keep``.
        members: models whose scores are added up.
        track: wraps the pairs, for a progress bar.
        device: where the networks compute.

    Raises:
        InputError: there are no members, a picture cannot be read, or a box lies outside of its picture.
    """
    if not members:
        raise InputError("labelling needs at least one model")
    found = []
    with FeatureCache[Features]() as cache, torch.inference_mode():
        matchers = [member.matcher(device, cache) for member in members]
        for pair in track(pairs):
            source, target = _label(pair, matchers, config)
            if len(source):
                first, second = replace(pair.source, keypoints=source), replace(pair.target, keypoints=target)
                found.append(replace(pair, source=first, target=second, keypoint_names=()))
    return found


def _label(pair: Pair, matchers: Sequence[Matcher], config: LabellingConfig) -> tuple[np.ndarray, np.ndarray]:
    """Matching points of a pair's objects, in pixels of the whole pictures; none where too few are confident."""
    source, target = crop(pair.source), crop(pair.target)
    if pair.flags.get(MIRRORED):
        target = mirrored(target)
    scores = filter_in_place(torch.stack([scores_on_grid(one, source, target) for one in matchers]).mean(0))
    transfer = matchers[0].model.config.transfer.replace(temperature=1e-3)
    positions = soft_argmax(scores, transfer)
    there_and_back = cycle_consistency(positions, soft_argmax(exchange(scores), transfer))
    confidence = there_and_back[0].flatten().cpu().double().numpy()
    grid = grid_points(GRID, like=positions).flatten(0, 1).cpu().double().numpy()
    places = positions[0].flatten(0, 1).cpu().double().numpy()
    starts, ends = source.to_picture(grid), target.to_picture(places)
    good = confidence >= config.minimum_confidence
    if config.keep:
        known = source.from_picture(pair.source.keypoints), target.from_picture(pair.target.keypoints)
        good &= along_keypoints(grid, places, *known)
    for side, points in ((pair.source, starts), (pair.target, ends)):
        if side.box is not None:
            good &= inside(points, side.box)
    rows = np.flatnonzero(good)
    if len(rows) < config.minimum_matches:
        return np.zeros((0, 2)), np.zeros((0, 2))
    rows = rows[spread_out(starts[rows], config.most_points, first=int(confidence[rows].argmax()))]
    if config.keep:
        return np.vstack([pair.source.keypoints, starts[rows]]), np.vstack([pair.target.keypoints, ends[rows]])
    return starts[rows], ends[rows]


def along_keypoints(
    starts: Float[np.ndarray, "n 2"],
    ends: Float[np.ndarray, "n 2"],
    source: Float[np.ndarray, "k 2"],
    target: Float[np.ndarray, "k 2"],
) -> Bool[np.ndarray, " n"]:
    """Which matches start and end between the keypoints and go the way of those nearest to them.

    Between: inside the polygon around all of them. All coordinates are normalised ones of the crops.

    Example:
        >>> corners = np.array([[-1.0, -1], [1, -1], [1, 1], [-1, 1]])
        >>> along_keypoints(np.zeros((2, 2)), np.array([[0.1, 0.1], [0.1, 0.9]]), corners, corners + 0.1)
        array([ True, False])
    """
    between = _surrounded(starts, source) & _surrounded(ends, target)
    if not between.any():
        return between
    distances = np.linalg.norm(starts[:, None] - source[None], axis=2)
    nearest = np.argsort(distances, axis=1)[:, :NEIGHBOURS]
    weights = 1 / (np.take_along_axis(distances, nearest, axis=1) + 1e-3)
    ways = (target - source)[nearest]
    expected = (weights[..., None] * ways).sum(1) / weights.sum(1)[:, None]
    return between & (np.linalg.norm(ends - starts - expected, axis=1) <= 2 * MOST_ASIDE)  # a side is 2 long


def _surrounded(points: Float[np.ndarray, "n 2"], keypoints: Float[np.ndarray, "k 2"]) -> Bool[np.ndarray, " n"]:
    """Which points lie inside the convex hull of keypoints; none where these have no area."""
    from scipy.spatial import Delaunay, QhullError  # takes a while to import, and few need it

    try:
        return Delaunay(keypoints).find_simplex(points) >= 0
    except (QhullError, ValueError):  # fewer than three, or on a line
        return np.zeros(len(points), dtype=bool)


def crop(side: AnnotatedImage) -> View:
    """The object's box with a margin; without a box the whole picture."""
    return View.of(side.path) if side.box is None else View.around(side.path, side.box, MARGIN)


def scores_on_grid(matcher: Matcher, source: View, target: View) -> Tensor:
    """``1 1 30 30 30 30``: the score of every match on the common grid, the best one 1."""
    scores = matcher.match(source, target, filtered=False).scores
    if scores.shape[2:] != GRID + GRID:
        scores = resize_correlation(scores, GRID, GRID)
    return scores.relu() / scores.max().clamp(min=1e-12)
