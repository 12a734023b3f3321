"""Which taps of a Hough matching kernel share one weight.

A tap is a pair of offsets from the kernel's centre: p in the source and p′ in the target. Three rules:

* ``psi``: position-sensitive isotropic. Taps with the same triplet (‖p′ − p‖, ‖p‖, ‖p′‖) share; the last two
  distances are unordered, so that source and target can be exchanged.
* ``iso``: isotropic. Taps with the same ‖p′ − p‖ share.
* ``full``: no two taps share.

Centre and scale are separate groups (``‖·‖_g`` in the paper): a 6D key is a scale key and a spatial key.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from chmnet.errors import InputError

SHARINGS = ("psi", "iso", "full")

Offset = tuple[int, ...]
Key = tuple[int, ...]


@dataclass(frozen=True)
class TapGroups:
    """The groups of taps that share a weight, and their geometry.

    Groups are numbered in the order in which their first tap appears; with scales the scale group counts
    slowest. Distances are Euclidean, in cells.
    """

    index: Int64[Tensor, " *taps"]
    """For each tap, ``[ss st] hs ws ht wt``, the number of its group."""
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
    """The same three distances between scales, in steps; 0 without scales."""
    scale_far_distance: Float[Tensor, " groups"]
    scale_near_distance: Float[Tensor, " groups"]

    @property
    def number(self) -> int:
        """Number of groups, that is of weights."""
        return self.count.numel()


@lru_cache(maxsize=32)
def tap_groups(spatial: int = 5, scale: int | None = None, sharing: str = "psi") -> TapGroups:
    """Group the taps of a window of ``spatial``⁴, or ``scale``² × ``spatial``⁴, taps.

    The result is shared between callers, and always on the CPU: treat it as read-only.

    Example:
        >>> [tap_groups(5, None, s).number for s in ("psi", "iso", "full")]
        [55, 15, 625]
        >>> [tap_groups(5, 3, s).number for s in ("psi", "iso", "full")]
        [220, 45, 5625]
    """
    if sharing not in SHARINGS:
        raise InputError(f"sharing must be one of {', '.join(SHARINGS)}, got {sharing!r}")
    for name, size in (("spatial", spatial), ("scale", scale)):
        if size is not None and (size < 1 or size % 2 == 0):
            raise InputError(f"{name} must be odd and positive, got {size}; use 3 or 5")

    space = _window(spatial, dimensions=2)
    space_index = _number_keys([_key(p, q, sharing) for p, q in product(space, space)])
    distances = _first_distances(space, space_index)
    shape: tuple[int, ...] = (spatial,) * 4
    line = _window(scale or 1, dimensions=1)
    scale_index = _number_keys([_key(p, q, sharing) for p, q in product(line, line)])
    scale_distances = _first_distances(line, scale_index)
    if scale is not None:
        shape = (scale, scale, *shape)
    groups, scale_groups = len(distances), len(scale_distances)
    index = (scale_index[:, None] * groups + space_index).reshape(shape)
    far, near, offset = distances.repeat(scale_groups, 1).unbind(1)
    scale_far, scale_near, scale_offset = scale_distances.repeat_interleave(groups, dim=0).unbind(1)
    return TapGroups(
        index=index,
        count=torch.bincount(index.flatten()).float(),
        offset=offset,
        far_distance=far,
        near_distance=near,
        scale_group=torch.arange(scale_groups, device="cpu").repeat_interleave(groups),
        scale_offset=scale_offset,
        scale_far_distance=scale_far,
        scale_near_distance=scale_near,
    )


def _window(size: int, dimensions: int) -> list[Offset]:
    reach = size // 2
    return list(product(range(-reach, reach + 1), repeat=dimensions))


def _key(source: Offset, target: Offset, sharing: str) -> Key:
    """What two taps must have in common to share a weight; distances are squared to stay whole numbers."""
    if sharing == "full":
        return (*source, *target)
    offset = _squared([q - p for p, q in zip(source, target, strict=True)])
    if sharing == "iso":
        return (offset,)
    distances = sorted([_squared(source), _squared(target)])
    return (offset, *distances)


def _squared(vector: Offset | list[int]) -> int:
    return sum(component * component for component in vector)


def _number_keys(keys: list[Key]) -> Int64[Tensor, " taps"]:
    """Number distinct keys in order of appearance."""
    numbers: dict[Key, int] = {}
    return torch.tensor([numbers.setdefault(key, len(numbers)) for key in keys], device="cpu")


def _first_distances(space: list[Offset], index: Tensor) -> Float[Tensor, "groups 3"]:
    """Larger and smaller distance to the centre, and offset, of the first tap of each group."""
    rows: dict[int, tuple[float, float, float]] = {}
    for group, (p, q) in zip(index.tolist(), product(space, space), strict=True):
        far, near = max(_squared(p), _squared(q)), min(_squared(p), _squared(q))
        offset = _squared([b - a for a, b in zip(p, q, strict=True)])
        rows.setdefault(group, (math.sqrt(far), math.sqrt(near), math.sqrt(offset)))
    return torch.tensor(list(rows.values()), device="cpu")
