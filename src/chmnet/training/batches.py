"""From pairs to tensors: views drawn or their features looked up, keypoints padded, batches shared out."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from chmnet.features import FeatureCache
from chmnet.geometry import Size
from chmnet.nn.chmnet import CHMNet
from chmnet.training.crossing import Crossing, cross_pairs
from chmnet.training.sources import PairSource, TrainingPair, TrainingView

Plan = Sequence[tuple[int, int]]
"""Pairs as (number of the source, number of the pair)."""


class Batch(NamedTuple):
    """Pairs as tensors; the keypoints are padded with 0, and the mask tells which are real."""

    source: Float[Tensor, "b c h w"]
    """Features, or images."""
    target: Float[Tensor, "b c h w"]
    source_points: Float[Tensor, "b n 2"]
    target_points: Float[Tensor, "b n 2"]
    mask: Bool[Tensor, "b n"]
    crossing: Crossing | None = None
    """Pairs across the batch's own."""

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return self._replace(**{k: value.to(device) for k, value in self._asdict().items() if value is not None})


def pad_points(points: Sequence[np.ndarray]) -> tuple[Float[Tensor, "b n 2"], Bool[Tensor, "b n"]]:
    """Keypoints of several pairs in one tensor, and which of its rows are keypoints.

    Example:
        >>> padded, mask = pad_points([np.ones((1, 2)), np.ones((2, 2))])
        >>> list(padded.shape), mask.tolist()
        ([2, 2, 2], [[True, False], [True, True]])
    """
    most = max(len(rows) for rows in points)
    padded = torch.zeros(len(points), most, 2)
    mask = torch.zeros(len(points), most, dtype=torch.bool)
    for number, rows in enumerate(points):
        padded[number, : len(rows)] = torch.from_numpy(rows)
        mask[number, : len(rows)] = True
    return padded, mask


class Batches:
    """Makes batches of training pairs for a model: of features that are kept, or of images.

    Args:
        sources: where pairs come from.
        model: its frozen backbone makes the features.
        cache: where they are kept; ``None``: batches hold images.
        seed: of all random changes of pairs.
        crossed_pairs: most pairs that are formed across those of a batch.
    """

    def __init__(
        self,
        sources: Sequence[PairSource],
        model: CHMNet,
        cache: FeatureCache[Tensor] | None,
        seed: int,
        crossed_pairs: int = 0,
    ) -> None:
        self.crossed_pairs = crossed_pairs
        self.sources, self.model, self.cache, self.seed = sources, model, cache, seed
        self.size: Size = (model.config.image_size[0], model.config.image_size[1])

    def parts(
        self, plan: Plan, epoch: int, batch_size: int, parts: int, part: int, first: int = 0, whole: bool = True
    ) -> Iterator[Batch]:
        """The ``part``-th of ``parts`` equal shares of each batch of a plan.

        Args:
            plan: all pairs in their order.
            epoch: with the seed and a pair's place it decides the pair's random changes.
            batch_size: pairs of a batch, over all shares.
            parts: how many shares a batch has.
            part: which of them.
            first: number of the first batch.
            whole: leave out a last batch that is smaller.
        """
        end = len(plan) // batch_size * batch_size if whole else len(plan)
        for start in range(first * batch_size, end, batch_size):
            places = range(start, min(start + batch_size, end))[part::parts]
            if places:
                yield self.batch([self._pair(plan, epoch, place) for place in places])

    def _pair(self, plan: Plan, epoch: int, place: int) -> TrainingPair:
        number, index = plan[place]
        return self.sources[number].pair(index, np.random.default_rng([self.seed, epoch, place, 1]))

    def batch(self, pairs: Sequence[TrainingPair]) -> Batch:
        """Pairs as tensors."""
        source_points, mask = pad_points([pair.source_points for pair in pairs])
        target_points, _ = pad_points([pair.target_points for pair in pairs])
        return Batch(
            torch.stack([self._input(pair.source, "source") for pair in pairs]).float(),
            torch.stack([self._input(pair.target, "target") for pair in pairs]).float(),
            source_points,
            target_points,
            mask,
            cross_pairs(pairs, self.crossed_pairs) if self.crossed_pairs else None,
        )

    def _input(self, view: TrainingView, branch: str) -> Tensor:
        if self.cache is None:
            return view.tensor(self.size)
        if self.model.sides_alike:
            branch = "source"
        return self.cache.get((view, branch), lambda: self._features(view, branch))

    def _features(self, view: TrainingView, branch: str) -> Tensor:
        like = next(self.model.parameters())
        with torch.no_grad():
            return self.model.features(view.tensor(self.size)[None].to(like), branch)[0].cpu()
