"""Which taps of a Hough matching kernel share one weight.

A tap is a pair of offsets from the kernel's centre: p in the source and p′ in the target. Three rules:

* ``psi``: position-sensitive isotropic. Taps with the same triplet (‖p′ − p‖, ‖p‖, ‖p′‖) share; the last two
  distances are unordered, so that source and target can be exchanged.
* ``iso``: isotropic. Taps with the same ‖p′ − p‖ share.
* ``full``: no two taps share.

Position, scale and rotation are separate groups (``‖·‖_g`` in the paper): the key of a tap is a key of each.

Which taps there are at all:

* ``dense``: every pair of offsets.
* ``center-pivot``: those whose source or target position is the centre, at all pairs of scales and rotations.
* ``center-pivot-joint``: those whose source or target is the centre in position, scale and rotation at once.
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from chmnet.errors import InputError

SHARINGS = ("psi", "iso", "full")
TAPS = ("dense", "center-pivot", "center-pivot-joint")


@dataclass(frozen=True)
class TapGroups:
    """The groups of taps that share a weight, and their geometry.

    Groups are numbered in the order in which their first tap appears; with scales the scale group counts
    slowest. Distances are Euclidean, in cells, or in steps of scale and rotation; 0 where there are none.
    """

    index: Int64[Tensor, " *taps"]
    """For each tap, ``[ss st] [rs rt] hs ws ht wt``, the number of its group; −1: no such tap."""
    count: Float[Tensor, " groups"]
    """Number of taps in each group."""
    offset: Float[Tensor, " groups"]
    """‖p′ − p‖ of each group: how far the match is from the kernel's own offset."""
    far_distance: Float[Tensor, " groups"]
    """The larger of ‖p‖ and ‖p′‖, of the first tap where taps differ (``iso``)."""
    near_distance: Float[Tensor, " groups"]
    """The smaller of ‖p‖ and ‖p′‖, likewise."""
    scale_group: Int64[Tensor, " groups"]
    """Which group of scale taps each group belongs to; 0 without scales."""
    scale_offset: Float[Tensor, " groups"]
    """The same three distances between scales."""
    scale_far_distance: Float[Tensor, " groups"]
    scale_near_distance: Float[Tensor, " groups"]
    rotation_offset: Float[Tensor, " groups"]
    """The same three distances between rotations."""
    rotation_far_distance: Float[Tensor, " groups"]
    rotation_near_distance: Float[Tensor, " groups"]

    @property
    def number(self) -> int:
        """Number of groups, that is of weights."""
        return self.count.numel()


class _Pairs(NamedTuple):
    """All pairs of offsets of one kind (scale, rotation or position), in the order of the kernel."""

    label: np.ndarray
    """Number of the key, in order of appearance."""
    distances: np.ndarray
    """``pairs 3``: offset, larger and smaller distance to the centre; of the first pair with the key."""
    source_centre: np.ndarray
    """Whether the source's offset is the centre."""
    target_centre: np.ndarray


@lru_cache(maxsize=32)
def tap_groups(
    spatial: int = 5,
    scale: int | None = None,
    sharing: str = "psi",
    taps: str = "dense",
    rotation: int | tuple[int, int] | None = None,
) -> TapGroups:
    """Group the taps of a window of ``spatial``⁴, or ``scale``² × ``spatial``⁴, taps.

    The result is shared between callers, and always on the CPU: treat it as read-only.

    Args:
        spatial: odd side of the window over positions.
        scale: of the window over scales; ``None``: no such axes.
        sharing: one of :data:`SHARINGS`.
        taps: one of :data:`TAPS`.
        rotation: of the window over rotations; two numbers: of the source's and of the target's; ``None``: no such
            axes.

    Example:
        >>> [tap_groups(5, None, s).number for s in ("psi", "iso", "full")]
        [55, 15, 625]
        >>> [tap_groups(5, 3, s).number for s in ("psi", "iso", "full")]
        [220, 45, 5625]
        >>> tap_groups(5, taps="center-pivot").number
        6
    """
    if sharing not in SHARINGS:
        raise InputError(f"sharing must be one of {', '.join(SHARINGS)}, got {sharing!r}")
    if taps not in TAPS:
        raise InputError(f"taps must be one of {', '.join(TAPS)}, got {taps!r}")
    rotations = (rotation, rotation) if isinstance(rotation, int) else rotation or ()
    for name, size in (("spatial", spatial), ("scale", scale), *(("rotation", side) for side in rotations)):
        if size is not None and (size < 1 or size % 2 == 0):
            raise InputError(f"{name} must be odd and positive, got {size}; use 3 or 5")

    kinds = [
        _pairs(scale or 1, scale or 1, 1, sharing),
        _pairs(*(rotations or (1, 1)), 1, sharing),
        _pairs(spatial, spatial, 2, sharing),
    ]
    grid = np.indices([len(kind.label) for kind in kinds]).reshape(len(kinds), -1)
    there = _exists(kinds, grid, taps)
    labels = np.stack([kind.label[places] for kind, places in zip(kinds, grid, strict=True)])
    joined = reduce(lambda number, label: number * (label.max() + 1) + label, labels)
    number, first = _number(joined[there])
    index = np.full(len(joined), -1)
    index[there] = number
    tap = np.flatnonzero(there)[first]
    measures = [
        torch.tensor(values, dtype=torch.float32, device="cpu")
        for kind, places in zip(kinds, grid, strict=True)
        for values in kind.distances[places[tap]].T
    ]
    windows = [*(() if scale is None else (scale, scale)), *rotations]
    offsets, far, near = measures[0::3], measures[1::3], measures[2::3]
    return TapGroups(
        index=torch.tensor(index, device="cpu").reshape(*windows, *(spatial,) * 4),
        count=torch.tensor(np.bincount(number), dtype=torch.float32, device="cpu"),
        offset=offsets[2],
        far_distance=far[2],
        near_distance=near[2],
        scale_group=torch.tensor(labels[0, tap], device="cpu"),
        scale_offset=offsets[0],
        scale_far_distance=far[0],
        scale_near_distance=near[0],
        rotation_offset=offsets[1],
        rotation_far_distance=far[1],
        rotation_near_distance=near[1],
    )


def _exists(kinds: list[_Pairs], grid: np.ndarray, taps: str) -> Bool[np.ndarray, " taps"]:
    """Which taps of a window there are."""
    if taps == "dense":
        return np.ones(grid.shape[1], dtype=bool)
    joint = taps == "center-pivot-joint"
    counted = list(zip(kinds, grid, strict=True)) if joint else [(kinds[-1], grid[-1])]
    source = np.logical_and.reduce([kind.source_centre[places] for kind, places in counted])
    target = np.logical_and.reduce([kind.target_centre[places] for kind, places in counted])
    return source | target


def _pairs(source_size: int, target_size: int, dimensions: int, sharing: str) -> _Pairs:
    """All pairs of offsets of two windows, with their keys; squared distances are whole numbers."""
    first, second = (
        np.array(list(product(range(-(size // 2), size // 2 + 1), repeat=dimensions)))
        for size in (source_size, target_size)
    )
    source, target = np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))
    offset, of_source, of_target = ((vector**2).sum(1) for vector in (target - source, source, target))
    near, far = np.minimum(of_source, of_target), np.maximum(of_source, of_target)
    base = int(offset.max()) + 1
    key = {"full": np.arange(len(offset)), "iso": offset, "psi": (offset * base + far) * base + near}[sharing]
    label, _ = _number(key)
    distances = np.sqrt(np.stack([offset, far, near], axis=1))
    return _Pairs(label, distances, of_source == 0, of_target == 0)


def _number(keys: np.ndarray) -> tuple[Int64[np.ndarray, " keys"], Int64[np.ndarray, " distinct"]]:
    """Number distinct keys in order of appearance; and where each appears first.

    Example:
        >>> [found.tolist() for found in _number(np.array([7, 3, 7, 9]))]
        [[0, 1, 0, 2], [0, 1, 3]]
    """
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[inverse], first[order]
