"""Keypoints for pairs without any: what several matchers agree on inside the objects' boxes.

A matcher does better when it sees the two objects alone, each filling its picture. So the objects are cut out with
their boxes, matched by every member, and the members' scores added up; the matches that survive going there and
back, and lie in both boxes, become keypoints of the whole pictures. A model that is trained on them learns to find
without boxes what its teachers found with them.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from chmnet.config import check_range
from chmnet.data.pairs import AnnotatedImage, Pair, image_names
from chmnet.errors import InputError
from chmnet.geometry import Size, grid_points, normalised_to_pixels, spread_out
from chmnet.nn.chmnet import CHMNet, Pyramid
from chmnet.nn.inference import for_inference
from chmnet.ops.correlation import exchange, filter_in_place, resize_correlation
from chmnet.ops.transfer import cycle_consistency, soft_argmax
from chmnet.pictures import Box, to_picture, to_tensor

GRID: Size = (30, 30)
"""Positions of each object that are matched: the grid on which the members' scores are added up."""
MARGIN = 0.1
"""What is cut out around a box, as a share of its sides."""
KEPT_PYRAMIDS = 400
"""Pictures whose features are kept, for each member."""

Area = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels."""


@dataclass(frozen=True)
class LabellingConfig:
    """Which matches become keypoints."""

    minimum_confidence: float = 0.8
    """Of going there and back, 0 … 1."""
    minimum_matches: int = 40
    """Of a pair's 900 positions; pairs with fewer sure ones are left out: their objects show different sides."""
    most_points: int = 32
    """Keypoints of a pair; of more matches, those that lie farthest apart are taken."""

    def __post_init__(self) -> None:
        check_range("minimum_confidence", self.minimum_confidence, minimum=0, maximum=1)
        check_range("minimum_matches", self.minimum_matches, minimum=1)
        check_range("most_points", self.most_points, minimum=1)


class Member:
    """One matcher of the committee.

    Args:
        model: the network.
        side: pictures are resized to so many pixels on both sides; ``None``: the model's own size.
    """

    def __init__(self, model: CHMNet, side: int | None = None) -> None:
        self.model = for_inference(model)
        self.size: Size = (side, side) if side else (model.config.image_size[0], model.config.image_size[1])
        self._pyramids: dict[tuple[Path, Area, str], Pyramid] = {}

    def scores(self, source: "Cutting", target: "Cutting") -> Tensor:
        """``1 1 30 30 30 30``: the score of every match on the common grid, the best one 1."""
        scores = self.model.head.match(
            self._pyramid(source, "source"), self._pyramid(target, "target"), filtered=False
        )
        if scores.shape[2:] != GRID + GRID:
            scores = resize_correlation(scores, GRID, GRID)
        return scores.relu() / scores.max().clamp(min=1e-12)

    def _pyramid(self, cutting: "Cutting", branch: str) -> Pyramid:
        key = (cutting.path, cutting.area, branch if self.model.target_backbone is not None else "source")
        if key not in self._pyramids:
            if len(self._pyramids) >= KEPT_PYRAMIDS:
                self._pyramids.pop(next(iter(self._pyramids)))
            image = to_tensor(cutting.picture(), self.size)[None].to(next(self.model.parameters()))
            self._pyramids[key] = self.model.head.pyramid(self.model.features(image, branch))
        return self._pyramids[key]


@dataclass(frozen=True)
class Cutting:
    """The part of a picture that shows an object."""

    path: Path
    area: Area
    box: Box

    @classmethod
    def of(cls, side: AnnotatedImage) -> "Cutting":
        """The object's box with a margin; without a box the whole picture."""
        picture = to_picture(side.path)
        if side.box is None:
            whole = (0, 0, picture.width, picture.height)
            return cls(side.path, whole, tuple(map(float, whole)))  # type: ignore[arg-type]
        left, top, right, bottom = side.box
        more_x, more_y = MARGIN * (right - left), MARGIN * (bottom - top)
        area = (
            max(0, int(left - more_x)),
            max(0, int(top - more_y)),
            min(picture.width, int(right + more_x + 1)),
            min(picture.height, int(bottom + more_y + 1)),
        )
        if area[0] >= area[2] or area[1] >= area[3]:
            raise InputError(f"the box of {side.path} lies outside of the picture; correct or remove it")
        return cls(side.path, area, side.box)

    def picture(self) -> Image.Image:
        """What was cut out."""
        return to_picture(self.path).crop(self.area)

    def to_pixels(self, normalised: np.ndarray) -> np.ndarray:
        """Normalised points of the cutting in pixels of the whole picture."""
        left, top, right, bottom = self.area
        return normalised_to_pixels(normalised, (bottom - top, right - left)) + np.array([left, top])

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Which points lie in the box."""
        return np.asarray(((points >= self.box[:2]) & (points <= self.box[2:])).all(axis=1))


def draw_pairs(
    pairs: Sequence[Pair], count: int, excluded: Collection[frozenset[str]], seed: int = 0
) -> list[Pair]:
    """Further pairs of the same pictures: two of one category that do not stand together in any list.

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
) -> list[Pair]:
    """Give pairs the keypoints that the members agree on; pairs with too few are left out.

    Args:
        pairs: two pictures each, with the boxes of their objects; keypoints they have are not looked at.
        members: matchers whose scores are added up.
        config: which matches become keypoints.
        track: wraps the pairs, for a progress bar.

    Raises:
        InputError: there are no members, or a picture cannot be read.
    """
    if not members:
        raise InputError("labelling needs at least one model")
    found = []
    with torch.inference_mode():
        for pair in track(pairs):
            source, target = label_pair(Cutting.of(pair.source), Cutting.of(pair.target), members, config)
            if len(source):
                first, second = replace(pair.source, keypoints=source), replace(pair.target, keypoints=target)
                found.append(replace(pair, source=first, target=second, keypoint_names=()))
    return found


def label_pair(
    source: Cutting, target: Cutting, members: Sequence[Member], config: LabellingConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Points of two objects that belong together, ``n`` rows (x, y) each in pixels of the whole pictures.

    No rows where too few matches are sure.
    """
    scores = torch.stack([member.scores(source, target) for member in members]).mean(0)
    transfer = members[0].model.config.transfer.replace(temperature=1e-3)
    scores = filter_in_place(scores)
    positions = soft_argmax(scores, transfer)
    confidence = (
        cycle_consistency(positions, soft_argmax(exchange(scores), transfer))[0].flatten().double().numpy()
    )
    grid = grid_points(GRID, like=positions)
    starts = source.to_pixels(grid.flatten(0, 1).double().numpy())
    ends = target.to_pixels(positions[0].flatten(0, 1).double().numpy())
    good = (confidence >= config.minimum_confidence) & source.holds(starts) & target.holds(ends)
    rows = np.flatnonzero(good)
    if len(rows) < config.minimum_matches:
        return np.zeros((0, 2)), np.zeros((0, 2))
    rows = rows[spread_out(starts[rows], config.most_points, first=int(confidence[rows].argmax()))]
    return starts[rows], ends[rows]
