"""Fit the probe that tells things from background to pictures with boxes of objects."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int8, Int64
from torch import Tensor

from chmnet.data.boxes import BoxedPicture
from chmnet.errors import InputError
from chmnet.geometry import Size, grid_points, normalised_to_pixels
from chmnet.matcher import choose_device
from chmnet.metrics import inside
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.foreground import Foreground
from chmnet.nn.inference import for_inference
from chmnet.pictures import View

LEAST_PICTURES = 10
MARGIN = 0.04
"""Positions outside of all boxes, but nearer than this share of the picture's longer side, say nothing."""
POSITIONS = 100
"""Most positions of a picture that are looked at."""
_FEW = 8
"""So many positions of a kind weigh as much as any number of them in another picture."""
ROUNDS = 4
"""How often the probe is fitted; after the first time without what looks least like a thing inside of boxes."""
_RIDGE, _STEPS = 1e-3, 60


def fit_foreground(
    model: CHMNet,
    pictures: Sequence[BoxedPicture],
    track: Callable[[Sequence[BoxedPicture]], Iterable[BoxedPicture]] = iter,
    device: str = "auto",
) -> Foreground:
    """Fit a logistic function of the features to "inside a box" against "well outside of all boxes".

    Both kinds weigh the same, and so does every picture. A box holds background too, between the legs of an animal
    for example: the fit is repeated, each time with the half of a picture's positions inside of boxes that looked
    most like a thing. The same pictures give the same numbers.

    Args:
        model: whose features are looked at.
        pictures: none that the model is tested on.
        track: wraps the pictures, for a progress bar.
        device: where features are computed.

    Raises:
        InputError: there are too few pictures, one cannot be read, or they show only things or only background.
    """
    if len(pictures) < LEAST_PICTURES:
        raise InputError(
            f"a probe of the foreground needs at least {LEAST_PICTURES} pictures, got {len(pictures)}"
        )
    chosen = choose_device(device)
    network = for_inference(model).to(chosen)
    generator = torch.Generator().manual_seed(0)
    rows, kinds, numbers = [], [], []
    for number, picture in enumerate(track(pictures)):
        view = View.of(picture.path)
        with torch.inference_mode():
            features = network.features(view.tensor(model.config.image_size)[None].to(chosen))
        features = features[:, : model.backbone.channels].float().cpu()
        labels = label_positions(picture, view.picture.size, (features.shape[2], features.shape[3])).flatten()
        known = (labels >= 0).nonzero()[:, 0]
        known = known[torch.randperm(len(known), generator=generator)[:POSITIONS]]
        rows.append(F.normalize(features, dim=1)[0].flatten(1).T[known].clone())
        kinds.append(labels[known])
        numbers.append(torch.full_like(known, number))
    things = torch.cat(kinds).float()
    if things.all() or not things.any():
        raise InputError("a probe of the foreground needs both things and background; use other or more pictures")
    features, pictured = torch.cat(rows), torch.cat(numbers)
    probe = Foreground(features.shape[1])
    kept = torch.ones_like(things, dtype=torch.bool)
    for _ in range(ROUNDS):
        _fit(probe, features[kept], things[kept], _weigh(things[kept], pictured[kept]))
        kept = (things == 0) | _looks_most_like_a_thing(features @ probe.weight, things, pictured)
    return probe


def label_positions(picture: BoxedPicture, size: Size, grid: Size) -> Int8[Tensor, "h w"]:
    """For each position of a grid: 1 inside a box, 0 well outside of all, −1 in between.

    Args:
        picture: and its boxes.
        size: (height, width) of the picture.
        grid: (height, width) of the grid.

    Example:
        >>> from pathlib import Path
        >>> row = BoxedPicture(Path("a.png"), ((0.0, 0.0, 50.0, 10.0),))
        >>> label_positions(row, (10, 100), (1, 5)).tolist()
        [[1, 1, 1, 0, 0]]
    """
    points = normalised_to_pixels(grid_points(grid, like=torch.empty(0, dtype=torch.float64)), size)
    rows, edge = points.flatten(0, 1).numpy(), MARGIN * max(size)
    on, near = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    for left, top, right, bottom in picture.boxes:
        on |= inside(rows, (left, top, right, bottom))
        near |= inside(rows, (left - edge, top - edge, right + edge, bottom + edge))
    return torch.from_numpy(np.where(on, 1, np.where(near, -1, 0)).astype(np.int8)).view(grid)


def _weigh(things: Float[Tensor, " n"], numbers: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Weights of positions: things and background count alike, and so do pictures that have enough of them."""
    weights = torch.empty_like(things)
    for kind in (0, 1):
        these = things == kind
        count = torch.bincount(numbers[these], minlength=int(numbers.max()) + 1)
        shares = 1 / count[numbers[these]].clamp(min=_FEW)
        weights[these] = shares / (2 * shares.sum())
    return weights


def _looks_most_like_a_thing(
    logits: Float[Tensor, " n"], things: Float[Tensor, " n"], numbers: Int64[Tensor, " n"]
) -> Bool[Tensor, " n"]:
    """Which positions are the better half of those inside of boxes, picture by picture."""
    chosen = torch.zeros_like(things, dtype=torch.bool)
    inside_boxes = things.nonzero()[:, 0]
    for these in inside_boxes.split(torch.bincount(numbers[inside_boxes]).tolist()):  # in the order of pictures
        if len(these):
            chosen[these] = logits[these] >= logits[these].median()
    return chosen


def _fit(
    probe: Foreground, features: Float[Tensor, "n c"], things: Float[Tensor, " n"], weights: Float[Tensor, " n"]
) -> None:
    """Weighted logistic regression on standardised features with a small ridge, from the probe as it is."""
    mean, spread = features.mean(0), features.std(0) + 1e-6
    scaled = (features - mean) / spread
    slopes = (probe.weight * spread).requires_grad_()
    first = (probe.bias + probe.weight @ mean).requires_grad_()
    optimiser = torch.optim.LBFGS([slopes, first], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        errors = F.binary_cross_entropy_with_logits(scaled @ slopes + first, things, reduction="none")
        value = (weights * errors).sum() + _RIDGE * slopes.square().sum() / 2
        value.backward()
        return value

    optimiser.step(loss)
    probe.weight = slopes.detach() / spread
    probe.bias = first.detach() - probe.weight @ mean
