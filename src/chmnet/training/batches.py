"""From pairs to tensors: views drawn or their features looked up, keypoints padded, batches shared out."""

import os
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from chmnet.errors import InputError
from chmnet.geometry import Size
from chmnet.nn.chmnet import CHMNet
from chmnet.training.crossing import Crossing, cross_pairs
from chmnet.training.sources import PairSource, TrainingPair
from chmnet.training.views import View

Plan = Sequence[tuple[int, int]]
"""Pairs as (number of the source, number of the pair)."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Pairs as tensors; padding of the keypoints is 0 and the mask tells."""

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
        return Batch(**{name: value if value is None else value.to(device) for name, value in vars(self).items()})


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


class FeatureCache:
    """Tensors of one shape, each computed once: in memory up to a bound, then in a temporary file.

    The file has no name: it vanishes with the process, however that ends.

    Args:
        memory_bytes: what may be kept in memory.
        dtype: of the kept numbers.

    Example:
        >>> with FeatureCache(memory_bytes=0) as cache:
        ...     first = cache.get("a", lambda: torch.ones(2))
        ...     second = cache.get("a", lambda: torch.zeros(2))  # kept: not computed again
        >>> second.tolist(), cache.computed
        ([1.0, 1.0], 1)
    """

    def __init__(self, memory_bytes: int, dtype: torch.dtype = torch.float16) -> None:
        self.memory_bytes, self.dtype = memory_bytes, dtype
        self.computed = 0
        self._kept: dict[Hashable, Tensor] = {}
        self._bytes = 0
        self._places: dict[Hashable, tuple[int, torch.Size]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "FeatureCache":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kept.clear()
        if self._file is not None:
            self._file.close()

    def get(self, key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
        """The tensor of a key, in the cache's dtype; also the first time, so that all times are equal."""
        if key in self._kept:
            return self._kept[key]
        if key in self._places:
            return self._read(*self._places[key])
        tensor = compute().detach().to("cpu", self.dtype).contiguous()
        self.computed += 1
        size = tensor.numel() * tensor.element_size()
        if self._bytes + size <= self.memory_bytes:
            self._kept[key] = tensor
            self._bytes += size
        else:
            self._places[key] = (self._write(tensor), tensor.shape)
        return tensor

    def _write(self, tensor: Tensor) -> int:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="chmnet-features-")  # noqa: SIM115 (closed at exit)
            place = self._file.seek(0, os.SEEK_END)
            self._file.write(tensor.numpy().tobytes())
            self._file.flush()
        except OSError as error:
            raise InputError(
                f"cannot keep features in {tempfile.gettempdir()}: {error.strerror}; "
                "free space there, or raise cache_megabytes"
            ) from None
        return place

    def _read(self, place: int, shape: torch.Size) -> Tensor:
        assert self._file is not None, "a place without a file"
        size = shape.numel() * self.dtype.itemsize
        return torch.frombuffer(bytearray(os.pread(self._file.fileno(), size, place)), dtype=self.dtype).view(
            shape
        )


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
        cache: FeatureCache | None,
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
            batch_size: pairs of a whole batch.
            parts: how many shares a batch has.
            part: which of them.
            first: number of the first batch.
            whole: leave out a last batch that is not full.
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

    def _input(self, view: View, branch: str) -> Tensor:
        if self.cache is None:
            return view.render(self.size)
        if self.model.target_backbone is None:
            branch = "source"
        return self.cache.get((view, branch), lambda: self._features(view, branch))

    def _features(self, view: View, branch: str) -> Tensor:
        like = next(self.model.parameters())
        with torch.no_grad():
            return self.model.features(view.render(self.size)[None].to(like), branch)[0]
