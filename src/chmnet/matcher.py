"""Pictures in, matches out: the only caller of a network at inference, and the only maker of results."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from chmnet.errors import InputError, WeightsError
from chmnet.features import FeatureCache, Features, Fingerprint
from chmnet.geometry import Size
from chmnet.nn.backbones import STRIDE
from chmnet.nn.chmnet import CHMNet, Pyramid
from chmnet.nn.inference import for_inference
from chmnet.nn.memory import check_memory, chunk_bytes
from chmnet.ops.correlation import CHUNK_BYTES
from chmnet.pictures import Box, Picture, PictureLike, View
from chmnet.place import ENOUGH, PLACES, find_places
from chmnet.poses import DEFAULT_POSES, check_poses, find_pose
from chmnet.result import Matches, MatchResult
from chmnet.weights import DEFAULT_MODEL, load_model

__all__ = ["MatchResult", "Matcher", "Matches", "choose_device", "match"]

CACHE_BYTES = 64 * 2**20
"""Features of many pictures that are kept in memory, between the large tensors of the matching, which makes them
take several times as much; the others go to a temporary file."""

Matchable = PictureLike | View | Features
"""What can be matched: a picture, a view of one, or features that were extracted before."""
OnError = Literal["raise", "return"]
Boxes = tuple[Box | None, Box | None]
"""Boxes (left, top, right, bottom) of the thing in source and target, in pixels; ``None``: all of the picture."""
BOX_MARGIN = 0.15
"""What is seen around a box, as a share of it."""


class Matcher:
    """Matches pairs of pictures with one model.

    Pictures are paths, bytes, PIL images, arrays or tensors of any size; see :class:`chmnet.pictures.Picture`.
    Threads may share a matcher; it can be pickled and copied. A forked process computes with one thread: OpenMP's
    others do not survive a fork.

    Args:
        model: a known name, a model file, or a network.
        device: ``"auto"`` (CUDA, else Apple's MPS, else the CPU), or a device as PyTorch calls it.
        memory_mb: most memory that matching one pair may take beside the network; ``None``: no limit.
        cache: keeps the features of every picture; ``None``: only :meth:`match_many` keeps some, while it runs.
        backbone_weights: of a model that comes without them; see :func:`chmnet.load_model`.
        image_size: (height, width) that pictures are resized to; ``None``: the model's own.
        backend: who computes the votes of a model that is loaded here; see :class:`chmnet.CHMNet`.
        poses: ``"upright"``: the target as it is. ``"mirror"``: the target mirrored too; where that is clearly
            better, its answers are those of the result. ``"any"``: also turned. Views that are mirrored or turned
            already stay as they are.
        place: ``"whole"``: all of both pictures is matched. ``"found"``: the thing is found in both first, also
            where it is much smaller in one; then what lies around it is matched. Views of a part stay as they are.

    Raises:
        InputError: there is no such device here, or no such poses or place.

    Example:
        >>> from PIL import Image
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
        cache: FeatureCache[Features] | None = None,
        backbone_weights: str | Path = "",
        image_size: Size | None = None,
        backend: str = "auto",
        poses: str = DEFAULT_POSES,
        place: str = "whole",
    ) -> None:
        self.poses = check_poses(poses)
        self.place = _check_place(place)
        self.device = choose_device(device)
        network = model
        if not isinstance(network, CHMNet):
            network = load_model(network, backbone_weights=backbone_weights, backend=backend)
        self.model = for_inference(network).to(self.device)
        self.memory_mb = None if memory_mb is None else check_memory(memory_mb)
        self.cache = cache
        config = self.model.config
        self.image_size: Size = (config.replace(image_size=image_size) if image_size else config).image_size
        self._process = os.getpid()
        facts = f"{config.backbone} {self.model.head.scales}"
        if config.fine.layers:
            facts += f" {config.fine} {config.output.upsample}"
        self.fingerprint = Fingerprint(self.model, facts)

    def extract(self, picture: Matchable, branch: str = "source", owner: str = "") -> Features:
        """All that matching needs of a picture, or of a view of one; from the cache, if there is one.

        Args:
            picture: features of this model are given back as they are.
            branch: ``"source"`` or ``"target"``; only models with two backbones tell them apart.
            owner: whose the features are in the cache; see :meth:`chmnet.features.FeatureCache.drop`.

        Raises:
            InputError: the picture cannot be read, or the features are another model's.
        """
        found = self._extract(picture, branch, self.cache, owner)
        if self.cache is not None:
            found.view.picture.forget()
        return found

    def _extract(
        self,
        picture: Matchable,
        branch: str,
        cache: FeatureCache[Features] | None,
        owner: str = "",
        size: Size | None = None,
    ) -> Features:
        if isinstance(picture, Features):
            if picture.fingerprint != self.fingerprint:
                raise InputError("these features were made by another model; extract them with this one")
            if not self.model.sides_alike and picture.branch != branch:
                raise InputError(f"these are features of a {picture.branch}; extract them with branch={branch!r}")
            return picture
        return self._extract_all([View.of(picture)], branch, cache, owner, size or self.image_size)[0]

    def _extract_all(
        self, views: Sequence[View], branch: str, cache: FeatureCache[Features] | None, owner: str, size: Size
    ) -> list[Features]:
        """Features of several views at one size: those that the cache does not know are computed together."""
        if self.model.sides_alike:
            branch = "source"
        if cache is None:
            return self._compute(views, branch, size)
        computed: list[Features] = []

        def compute(number: int) -> Features:  # a cache keeps features, not pictures
            if len(computed) == 0:
                computed.extend(self._compute(views, branch, size))
            view = views[number]
            return replace(computed[number], view=replace(view, picture=Picture(None, view.picture.size)))

        found = []
        for number, view in enumerate(views):
            key = (view.picture.key, view.area, view.mirrored, view.turn, view.window, branch, size)
            stored = cache.get((*key, self.fingerprint), partial(compute, number), owner)
            found.append(replace(stored, view=view))
        return found

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _process=os.getpid())

    def _after_fork(self) -> None:
        """Compute with one thread in a forked process, which has no others, and would wait for them."""
        if self._process != os.getpid():
            torch.set_num_threads(1)
            self._process = os.getpid()

    def _compute(self, views: Sequence[View], branch: str, size: Size) -> list[Features]:
        self._after_fork()
        images = torch.stack([view.tensor(size) for view in views]).to(next(self.model.parameters()))
        with torch.inference_mode():
            features = self.model.features(images, branch)
            pyramid = self.model.head.pyramid(features)
            foreground = facing = None
            if self.model.foreground is not None:
                foreground = self.model.foreground(features)
            if self.model.facing is not None:
                facing = self.model.facing(pyramid.levels[self.model.head.nearest]).tolist()
        return [
            Features(
                tuple(level[number : number + 1].clone() for level in pyramid.levels),
                pyramid.size,
                view,
                self.fingerprint,
                branch,
                None if facing is None else (facing[number][0], facing[number][1]),
                None if foreground is None else foreground[number : number + 1].clone(),
            )
            for number, view in enumerate(views)
        ]

    def match(
        self,
        source: Matchable,
        target: Matchable,
        scales: bool = False,
        filtered: bool = True,
        boxes: Boxes = (None, None),
        poses: str | None = None,
        place: str | None = None,
        owner: str = "",
    ) -> MatchResult:
        """Match two pictures of any size.

        Args:
            source: the picture whose points are asked about.
            target: the picture to find them in.
            scales: keep which scales won, for :meth:`MatchResult.winning_scales`; models of one scale have none.
            filtered: apply the mutual filter, where the model has one; off: to add up scores of several.
            boxes: where the thing is in source and target; what lies outside is not matched.
            poses: other than the matcher's own.
            place: likewise. A box that is given is not looked for.
            owner: whose the features are in the cache; see :meth:`chmnet.features.FeatureCache.drop`.

        Raises:
            InputError: a picture cannot be read, or a box lies outside of its picture.
        """
        if not isinstance(boxes, tuple | list) or len(boxes) != 2:
            raise InputError(f"boxes must be two, of source and target, each a box or None; got {boxes!r}")
        sides = (_inside(source, boxes[0]), "source"), (_inside(target, boxes[1]), "target")
        first, second = (self._extract(side, branch, self.cache, owner) for side, branch in sides)
        return self._compare(*self._settle(first, second, self.cache, owner, poses, place), scales, filtered)

    def match_many(self, pairs: Iterable[tuple[Matchable, Matchable]], errors: OnError = "raise") -> Iterator[Any]:
        """Match pairs one after the other, each picture's features computed once; the numbers are :meth:`match`'s.

        Pairs are taken one by one as results are asked for. Features that do not fit into memory go to disk.

        Args:
            pairs: sources and targets.
            errors: what happens where a picture cannot be read: ``"raise"`` ends all; ``"return"`` gives the error
                in the place of the result.

        Yields:
            A :class:`MatchResult` for each pair, or an :class:`chmnet.errors.InputError`.
        """
        with FeatureCache[Features](CACHE_BYTES) as own:
            yield from self._match_each(pairs, self.cache or own, errors)

    def one_to_many(
        self, source: Matchable, targets: Iterable[Matchable], errors: OnError = "raise"
    ) -> Iterator[Any]:
        """Match one picture with each of many, one by one as they are asked for; the numbers are :meth:`match`'s.

        Features of the source are computed once, those of a target are forgotten with its result (unless the
        matcher has a cache): a thousand targets take no more memory than one.

        Args:
            source: an error in reading it is raised always.
            targets: where to find its points.
            errors: see :meth:`match_many`.

        Yields:
            A :class:`MatchResult` for each target, or an :class:`chmnet.errors.InputError`.
        """
        first = self.extract(source, "source")
        yield from self._match_each(((first, target) for target in targets), self.cache, errors)

    def _match_each(
        self, pairs: Iterable[tuple[Matchable, Matchable]], cache: FeatureCache[Features] | None, errors: OnError
    ) -> Iterator[Any]:
        check_errors(errors)
        for source, target in pairs:
            try:
                features = self._extract(source, "source", cache), self._extract(target, "target", cache)
                settled = self._settle(*features, cache)  # looks at pictures again
            except InputError as error:
                if errors == "raise":
                    raise
                yield error
            else:
                yield self._compare(*settled)

    def _settle(
        self,
        source: Features,
        target: Features,
        cache: FeatureCache[Features] | None,
        owner: str = "",
        poses: str | None = None,
        place: str | None = None,
    ) -> tuple[Features, Features, tuple[float, float] | None]:
        """What is matched: the places that show the thing, the target in the pose that goes best with the source;
        and the probabilities of this pose and of its mirror image."""

        def looks(views: Sequence[View], branch: str, share: float) -> list[Features]:
            height, width = self.image_size
            return self._extract_all(views, branch, cache, owner, (round(share * height), round(share * width)))

        def look(view: View, branch: str, share: float) -> Features:
            return looks([view], branch, share)[0]

        if _check_place(self.place if place is None else place) == "found":
            enough = self.model.config.calibration.place or (ENOUGH,)
            source, target = find_places(source, target, look, self.votes, enough[0])
        poses, chances = self.poses if poses is None else poses, None
        if poses != "upright":
            fitted = self.model.config.calibration
            target, chances = find_pose(source, target, poses, looks, self.votes, fitted.pose, fitted.turn)
        if cache is not None:  # many results would hold as many pictures
            for side in (source, target):
                side.view.picture.forget()
        return source, target, chances

    def votes(self, source: Features, target: Features) -> Tensor:
        """The votes of the first layer, on the grids of the features."""
        with torch.inference_mode():
            head = self.model.head
            return head.first_votes(self._pyramid(source), self._pyramid(target))

    def _pyramid(self, side: Features) -> Pyramid:
        like = next(self.model.parameters())
        return Pyramid([level.to(like) for level in side.levels], side.grid)

    def _compare(
        self,
        source: Features,
        target: Features,
        chances: tuple[float, float] | None = None,
        scales: bool = False,
        filtered: bool = True,
    ) -> MatchResult:
        self._after_fork()
        model, config = self.model, self.model.config
        pieces = CHUNK_BYTES
        if self.memory_mb is not None:
            sizes = [(STRIDE * side.grid[0], STRIDE * side.grid[1]) for side in (source, target)]
            pieces = chunk_bytes(model.head, sizes[0], sizes[1], self.memory_mb)
        sides = self._pyramid(source), self._pyramid(target)
        with torch.inference_mode():
            scores, pairs = model.head.match(*sides, scales, filtered, pieces)
            likeness = model.head.likeness(*sides)
            if not scores.amax().isfinite():
                raise WeightsError("the model gives scores that are not finite: its weights are damaged")
        return MatchResult(
            scores,
            source.view,
            target.view,
            config.transfer,
            config.calibration,
            scale_pairs=pairs,
            scales=tuple(model.head.scales),
            likeness=likeness,
            facing=(_across(source), _across(target)),
            pose_probability=None if chances is None else chances[0],
            other_pose_probability=None if chances is None else chances[1],
            foreground=(source.foreground, target.foreground),
        )


def _across(side: Features) -> float | None:
    """Whether the thing faces left (−1) or right (1), if the model can tell."""
    return None if side.facing is None else side.facing[0]


def _inside(picture: Matchable, box: Box | None) -> Matchable:
    """What is seen of a picture inside a box."""
    if box is None:
        return picture
    if isinstance(picture, Features):
        raise InputError("features are of the whole picture or a part of it; give the picture with its box")
    view = View.of(picture)
    return replace(view, area=View.around(view.picture, box, BOX_MARGIN).area)


def _check_place(place: str) -> str:
    if place not in PLACES:
        raise InputError(f"place must be {' or '.join(PLACES)}, got {place!r}")
    return place


def check_errors(errors: str) -> None:
    """Refuse what :meth:`Matcher.match_many` cannot do with an error."""
    if errors not in ("raise", "return"):
        raise InputError(f"errors must be raise or return, got {errors!r}")


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
        >>> from PIL import Image
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
