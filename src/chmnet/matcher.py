"""Pictures in, matches out, in the pixels of the pictures as a person sees them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from PIL import Image

from chmnet.errors import InputError
from chmnet.features import FeatureStore
from chmnet.geometry import Size
from chmnet.nn.chmnet import CHMNet, Pyramid
from chmnet.nn.inference import for_inference
from chmnet.ops.correlation import CHUNK_BYTES
from chmnet.pictures import PictureLike, to_picture
from chmnet.result import Matches, MatchResult
from chmnet.weights import DEFAULT_MODEL, load_model

__all__ = ["MatchResult", "Matcher", "Matches", "match"]

STORE_BYTES = 64 * 2**20
"""Features of many pictures that are kept in memory, between the large tensors of the matching, which makes them
take several times as much; the others go to a temporary folder."""


class _Prepared(NamedTuple):
    picture: Image.Image
    pyramid: Pyramid


class Matcher:
    """Matches pairs of pictures with one model.

    Pictures are paths, PIL images, NumPy arrays or tensors of any size; see :func:`chmnet.pictures.to_picture`.

    Args:
        model: a known name, a model file, or a network.
        device: ``"auto"`` (CUDA, else Apple's MPS, else the CPU), or a device as PyTorch calls it. Results are on
            the CPU, whatever it is.
        memory_mb: most memory that matching one pair may take beside the network; ``None``: no limit.

    Raises:
        InputError: there is no such device here.

    Example:
        >>> matcher = Matcher("nearest-neighbour")
        >>> picture = Image.radial_gradient("L").convert("RGB")
        >>> result = matcher.match(picture, picture)
        >>> bool((abs(result.transfer([[100, 140]]).target - [[100, 140]]) < 15).all())
        True
    """

    def __init__(
        self,
        model: str | Path | CHMNet = DEFAULT_MODEL,
        device: str | torch.device = "auto",
        memory_mb: float | None = None,
    ) -> None:
        self.device = choose_device(device)
        network = model if isinstance(model, CHMNet) else load_model(model)
        self.model = for_inference(network).to(self.device)
        self.memory_mb = memory_mb

    def match(self, source: PictureLike, target: PictureLike, scales: bool = False) -> MatchResult:
        """Match two pictures of any size.

        Args:
            source: the picture whose points are asked about.
            target: the picture to find them in.
            scales: keep which scales won, for :meth:`MatchResult.winning_scales`; models of one scale have none.
        """
        with FeatureStore(self.model) as store:
            return self._compare(
                self._prepare(source, "source", store), self._prepare(target, "target", store), scales
            )

    def match_many(self, pairs: Iterable[tuple[PictureLike, PictureLike]]) -> Iterator[MatchResult]:
        """Match pairs one after the other, each picture's features computed once; the numbers are :meth:`match`'s.

        Pairs are taken one by one as results are asked for. Features that do not fit into memory go to disk.
        """
        with FeatureStore(self.model, STORE_BYTES) as store:
            for source, target in pairs:
                yield self._compare(self._prepare(source, "source", store), self._prepare(target, "target", store))

    def one_to_many(self, source: PictureLike, targets: Iterable[PictureLike]) -> Iterator[MatchResult]:
        """Match one picture with each of many, one by one as they are asked for; the numbers are :meth:`match`'s.

        Features of the source are computed once, those of a target are forgotten with its result: a thousand
        targets take no more memory than one.
        """
        with FeatureStore(self.model) as store:
            first = self._prepare(source, "source", store)
            for target in targets:
                yield self._compare(first, self._prepare(target, "target", store, keep=False))

    def _prepare(self, picture: PictureLike, branch: str, store: FeatureStore, keep: bool = True) -> _Prepared:
        opened = to_picture(picture)
        return _Prepared(opened, store.pyramid(opened, branch, keep))

    def _compare(self, source: _Prepared, target: _Prepared, scales: bool = False) -> MatchResult:
        sizes = [(each.picture.height, each.picture.width) for each in (source, target)]
        result = self.match_pyramids(source.pyramid, target.pyramid, sizes[0], sizes[1], scales)
        return replace(result, source_picture=source.picture, target_picture=target.picture)

    def match_pyramids(
        self, source: Pyramid, target: Pyramid, source_size: Size, target_size: Size, scales: bool = False
    ) -> MatchResult:
        """As :meth:`match`, for those who keep features themselves.

        Args:
            source: features of the source, from the network's ``head.pyramid``.
            target: likewise.
            source_size: (height, width) of the picture as a person sees it, in whose pixels points are.
            target_size: likewise.
            scales: see :meth:`match`.
        """
        head, size = self.model.head, self.model.config.image_size
        chunk_bytes = CHUNK_BYTES
        if self.memory_mb is not None:
            chunk_bytes = self.model.chunk_bytes(size, size, self.memory_mb)
        pairs = None
        with torch.inference_mode():
            if scales and head.over_scales:
                correlation, pairs = head.match_with_scales(source, target, chunk_bytes)
            else:
                correlation = head.match(source, target, chunk_bytes)
        return MatchResult(
            correlation.cpu(),
            source_size,
            target_size,
            self.model.config.transfer,
            scale_pairs=None if pairs is None else pairs.cpu(),
            scales=tuple(head.scales),
        )


def match(
    source: PictureLike,
    target: PictureLike,
    keypoints: ArrayLike | None = None,
    model: str | Path | CHMNet = DEFAULT_MODEL,
    device: str | torch.device = "auto",
) -> MatchResult:
    """Match two pictures; to match many, make a :class:`Matcher` once.

    Args:
        source: a path, PIL image, NumPy array or tensor.
        target: likewise.
        keypoints: points of the source to find: ``n`` rows (x, y) in pixels. They are the result's ``keypoints``.
        model: a known name, a model file, or a network.
        device: see :class:`Matcher`.

    Raises:
        InputError: a picture cannot be read, or the keypoints are no points.

    Example:
        >>> picture = Image.radial_gradient("L")
        >>> result = match(picture, picture, keypoints=[[100, 140], [90, 50]], model="nearest-neighbour")
        >>> result.keypoints.target.shape, result.flow().shape, result.warp().size
        ((2, 2), (256, 256, 2), (256, 256))
    """
    result = Matcher(model, device).match(source, target)
    return result if keypoints is None else replace(result, keypoints=result.transfer(keypoints))


def choose_device(name: str | torch.device) -> torch.device:
    """The device of that name; ``"auto"`` is the fastest there is.

    Raises:
        InputError: PyTorch does not know it, or has none here.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        return torch.device(next((kind for kind in ("cuda", "mps") if _is_there(kind)), "cpu"))
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"there is no device {name!r}; use auto, cpu, cuda, cuda:1 or mps") from None
    if device.type != "cpu" and not _is_there(device.type, device.index or 0):
        raise InputError(f"PyTorch finds no device {str(name)!r} on this machine; use auto or cpu")
    return device


def _is_there(kind: str, index: int = 0) -> bool:
    if kind == "cuda":
        return torch.cuda.is_available() and index < torch.cuda.device_count()
    return kind == "mps" and torch.backends.mps.is_available()
