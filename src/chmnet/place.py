"""Where the thing is: the boxes of source and target that vote for each other, found before they are matched."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from chmnet.features import Features
from chmnet.pictures import Box, View

PLACES = ("whole", "found")
"""What is matched: all of both pictures, or the boxes of the thing that is found in them."""
ENOUGH = 0.5
"""Pictures that agree by at least this much show the thing at sizes that can be matched: nothing is searched. And
a place that is found must agree so much. For models without a ``calibration.place`` of their own."""
LARGE_SHARE = 2.5
"""Side of a picture that a small thing is searched in, as a share of the side that pictures are matched at."""
TEMPLATE_SHARES = (0.5, 0.75)
"""Sides of the picture of the thing that is searched, likewise: what it looks like when it is small."""
CHECK_SHARE = 2 / 3
"""Side of the pictures that the places found are compared at, likewise."""
WINDOW_MARGIN = 0.05
"""What is seen around such a place, as a share of it."""
SURE = 1.5
"""A place that agrees by so many times enough is the right one: the other picture is not searched too."""
BETTER = 1.4
"""How much more than the whole pictures a place must agree."""
LARGER = 1.1
"""A window must agree by so much more than a larger one."""
TAIL = 0.015
"""Share of the votes that may lie beside a box, on each of its sides."""
MARGIN = 0.3
"""What is seen around the box that votes came from, as a share of it."""
MOST = 0.8
"""A box of more than this share of a picture's area is all of it."""

Look = Callable[[View, str, float], Features]
"""Extracts features of a view, for a branch of the network, at a share of the side of matched pictures."""
Vote = Callable[[Features, Features], Tensor]
"""The votes of the first layer, on the grids of the features."""


def find_places(
    source: Features, target: Features, look: Look, vote: Vote, enough: float = ENOUGH
) -> tuple[Features, Features]:
    """What is to be matched of two pictures: the thing that both show, or all of them.

    Where the pictures hardly agree as they are, the thing of each is searched in the other, much smaller. Then
    both are cut to the box that agreeing votes come from. A view of a part of a picture stays: somebody chose it.

    Args:
        source: features of the source.
        target: features of the target.
        look: extracts features of another view.
        vote: coarse votes between two pictures.
        enough: see :data:`ENOUGH`; of the model.
    """
    free = _is_free(source), _is_free(target)
    if not any(free):
        return source, target
    votes = vote(source, target)
    if agreement(votes, source.foreground, target.foreground) < enough:
        found = _search(source, target, look, vote, enough)
        if found is not None:
            source, target = found
            votes = vote(source, target)
    masses = vote_masses(votes, source.foreground, target.foreground)
    first = _cut(source, masses[0], look) if free[0] else source
    return first, _cut(target, masses[1], look) if free[1] else target


def _is_free(side: Features) -> bool:
    """Whether a part of the picture may be taken."""
    return side.view.area is None and side.view.picture.at_hand


def _cut(side: Features, mass: Float[Tensor, "h w"], look: Look) -> Features:
    """Features of the box that holds most of the votes, unless that is most of the picture."""
    view = view_part(side.view, mass_box(mass, TAIL), MARGIN)
    (height, width), (all_height, all_width) = view.size, side.view.size
    return side if height * width > MOST * all_height * all_width else look(view, side.branch, 1.0)


def _search(
    source: Features, target: Features, look: Look, vote: Vote, enough: float
) -> tuple[Features, Features] | None:
    """The pictures, one of them in a part only, if that agrees much better with the other than all of it."""
    if not (source.view.picture.at_hand and target.view.picture.at_hand):
        return None

    def swapped(first: Features, second: Features) -> Tensor:
        return vote(second, first).permute(0, 1, 4, 5, 2, 3)

    first, second = (look(side.view, side.branch, CHECK_SHARE) for side in (source, target))
    least = max(enough, BETTER * agree(first, second, vote))
    in_target, in_source = (0.0, target.view), (0.0, source.view)
    if _is_free(target):
        in_target = _best_window(first, target, look, vote)
    if _is_free(source) and in_target[0] < max(SURE * enough, least):
        in_source = _best_window(second, source, look, swapped)
    if max(in_target[0], in_source[0]) < least:
        return None
    if in_target[0] >= in_source[0]:
        return source, look(in_target[1], target.branch, 1.0)
    return look(in_source[1], source.branch, 1.0), target


def _best_window(thing: Features, place: Features, look: Look, vote: Vote) -> tuple[float, View]:
    """Where the thing of one picture is in another, if it is small there: how well that agrees, and the place."""
    large = look(place.view, place.branch, LARGE_SHARE)
    best = 0.0, place.view
    for share in sorted(TEMPLATE_SHARES, reverse=True):
        template = look(thing.view, thing.branch, share)
        least = LARGER * best[0]  # a larger window that agrees nearly as well cuts off less
        box = template_box(vote(template, large), template.foreground)
        part = look(view_part(place.view, box, WINDOW_MARGIN), place.branch, CHECK_SHARE)
        value = agree(thing, part, vote)
        if value > least:
            best = value, part.view
    return best


def agree(source: Features, target: Features, vote: Vote) -> float:
    """How well the things of two pictures vote for each other; see :func:`agreement`."""
    return agreement(vote(source, target), source.foreground, target.foreground)


def agreement(
    votes: Float[Tensor, "1 c hs ws ht wt"],
    source: Float[Tensor, "1 hs ws"] | None,
    target: Float[Tensor, "1 ht wt"] | None,
) -> float:
    """How well the things of two pictures vote for each other: the mean over both of their best mutual votes.

    A vote counts as far as it is the best of its source position and of its target position.

    Args:
        votes: between the positions of two pictures.
        source: the probability that positions of the source lie on a thing; ``None``: all count alike.
        target: likewise.

    Example:
        >>> votes = torch.eye(4).view(1, 1, 2, 2, 2, 2)
        >>> agreement(votes, None, None), agreement(votes / 2, None, None)
        (1.0, 0.5)
    """
    both = mutual(votes)
    values = []
    for best, thing in ((both.amax((2, 3)), source), (both.amax((0, 1)), target)):
        weights = torch.ones_like(best) if thing is None else thing[0].to(best)
        values.append(float((weights * best).sum() / weights.sum().clamp(min=1e-9)))
    return sum(values) / 2


def vote_masses(
    votes: Float[Tensor, "1 c hs ws ht wt"],
    source: Float[Tensor, "1 hs ws"] | None,
    target: Float[Tensor, "1 ht wt"] | None,
) -> tuple[Float[Tensor, "hs ws"], Float[Tensor, "ht wt"]]:
    """How much each position of two pictures belongs to the thing that both show: its best vote for a thing.

    Args:
        votes: between the positions of two pictures.
        source: the probability that positions of the source lie on a thing; ``None``: all count alike.
        target: likewise.
    """
    weighted = votes.amax(1)[0].float().clamp(min=0)
    if source is not None:
        weighted = weighted * source[0].to(weighted)[:, :, None, None]
    if target is not None:
        weighted = weighted * target[0].to(weighted)
    return weighted.amax((2, 3)), weighted.amax((0, 1))


def mutual(votes: Float[Tensor, "1 c hs ws ht wt"]) -> Float[Tensor, "hs ws ht wt"]:
    """Votes as far as they are the best of their source position and of their target position.

    Example:
        >>> mutual(torch.tensor([[1.0, 0.5], [0.0, 0.5]]).view(1, 1, 2, 1, 2, 1)).flatten().tolist()
        [1.0, 0.25, 0.0, 0.5]
    """
    positive = votes.amax(1)[0].float().clamp(min=0)
    rows, columns = positive.amax((2, 3), keepdim=True), positive.amax((0, 1), keepdim=True)
    return positive.pow(3) / (rows * columns).clamp(min=1e-9)


def mass_box(mass: Float[Tensor, "h w"], tail: float) -> Box:
    """The box that leaves the same share of a mass on each side; left, top, right, bottom as shares of the view.

    Example:
        >>> [round(side, 3) for side in mass_box(torch.tensor([[0.0, 1.0, 1.0, 0.0]]), 0.25)]
        [0.375, 0.25, 0.625, 0.75]
    """
    sides = []
    for axis in (0, 1):
        line = mass.sum(axis).double().cpu().numpy() + 1e-12
        shares = np.concatenate([[0.0], line.cumsum() / line.sum()])
        sides.append(np.interp((tail, 1 - tail), shares, np.linspace(0, 1, len(shares))))
    (left, right), (top, bottom) = sides
    return float(left), float(top), float(right), float(bottom)


def template_box(votes: Float[Tensor, "1 c hs ws ht wt"], thing: Float[Tensor, "1 hs ws"] | None) -> Box:
    """Where a small picture most likely lies in a large one: left, top, right, bottom as shares of the large one.

    Every position of the small picture votes for where its frame is; a vote may be off by one position.

    Args:
        votes: between the positions of the small picture and of the large one.
        thing: the probability that positions of the small picture lie on a thing; ``None``: all count alike.
    """
    positive = votes.amax(1)[0].float().clamp(min=0).square()
    if thing is not None:
        positive = positive * thing[0].to(positive)[:, :, None, None]
    rows, columns, height, width = positive.shape
    loose = F.max_pool2d(positive.flatten(0, 1)[None], 3, 1, 1)
    loose = F.pad(loose, (columns // 2, columns // 2, rows // 2, rows // 2)).unflatten(1, (rows, columns))[0]
    tall, wide = loose.shape[2] - rows + 1, loose.shape[3] - columns + 1
    frames = torch.zeros(tall, wide).to(loose)
    for row in range(rows):
        for column in range(columns):
            frames += loose[row, column, row : row + tall, column : column + wide]
    top, left = divmod(int(frames.argmax()), wide)
    x, y = (left - columns // 2) / width, (top - rows // 2) / height
    return x, y, x + columns / width, y + rows / height


def view_part(view: View, box: Box, margin: float = 0.0) -> View:
    """A part of a view.

    Args:
        view: upright, perhaps mirrored or turned by quarters.
        box: left, top, right, bottom as shares of the view; what lies outside of it is left out.
        margin: what is seen around the box, as a share of it.

    Example:
        >>> view = View.of(np.zeros((100, 200), dtype=np.uint8))
        >>> view_part(view, (0.5, 0.5, 0.75, 1.0)).area
        (100, 50, 150, 100)
    """
    corners = view.to_picture(2 * np.array(box).reshape(2, 2) - 1)
    (left, top), (right, bottom) = corners.min(0), corners.max(0)
    more_x, more_y = margin * (right - left), margin * (bottom - top)
    height, width = view.picture.size
    x, y = np.array([left - more_x, right + more_x]), np.array([top - more_y, bottom + more_y])
    (left, right), (top, bottom) = x.clip(0, width), y.clip(0, height)
    area = int(min(left, width - 1)), int(min(top, height - 1)), int(np.ceil(right)), int(np.ceil(bottom))
    return replace(view, area=(area[0], area[1], max(area[2], area[0] + 1), max(area[3], area[1] + 1)))
