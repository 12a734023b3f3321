"""What every data set gives: pairs of annotated images."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool
from PIL import Image

from chmnet.errors import InputError
from chmnet.pictures import Box

EXCHANGED = {"left": "right", "right": "left", "l": "r", "r": "l"}


@dataclass(frozen=True, eq=False)
class AnnotatedImage:
    """One side of a pair. Points are (x, y) in pixels of the image file, row i the same part on both sides."""

    path: Path
    keypoints: np.ndarray
    """``n`` rows (x, y), float64."""
    box: Box | None = None
    """The object's box, where the data set has one."""
    mask: Path | None = None
    """A segmentation picture in which the object is not zero, where the data set has one."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two images of one category and the keypoints both show."""

    name: str
    """Unique within the data set and split."""
    category: str
    source: AnnotatedImage
    target: AnnotatedImage
    keypoint_names: tuple[str, ...] = ()
    """What each row of the keypoints is, where the data set says; else empty."""
    flags: Mapping[str, int] = field(default_factory=dict)
    """SPair-71k's difficulty: viewpoint, scale, truncation, occlusion; else empty."""
    origin: str = ""
    """File and line the pair was read from, for messages."""
    unmatched: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    """Keypoints of the source that the target does not show: ``n`` rows (x, y), where the data set says."""


def kind_of(category: str) -> str:
    """What a category shows: PF-WILLOW has several views of one, which are no other kind of thing.

    Example:
        >>> kind_of("car(G)"), kind_of("car(M)"), kind_of("cat")
        ('car', 'car', 'cat')
    """
    return category.partition("(")[0]


def image_names(pair: Pair) -> frozenset[str]:
    """The file names of a pair's two images, without their order."""
    return frozenset({pair.source.path.name, pair.target.path.name})


def deduplicate(pairs: Iterable[Pair], listed: Collection[frozenset[str]]) -> list[Pair]:
    """The pairs whose two images are not a pair of ``listed``, in either order.

    Args:
        pairs: for example the test pairs.
        listed: names of two images each, from :func:`chmnet.data.pf_pascal.training_pairs`, or
            ``{image_names(pair) for pair in others}``.

    Example:
        >>> sides = [AnnotatedImage(Path(name), np.zeros((1, 2))) for name in ("a.jpg", "b.jpg")]
        >>> deduplicate([Pair("a-b", "cat", *sides)], listed={frozenset({"b.jpg", "a.jpg"})})
        []
    """
    return [pair for pair in pairs if image_names(pair) not in listed]


def open_mask(path: str | Path) -> Bool[np.ndarray, "h w"]:
    """Where a segmentation picture is not zero; in a picture with a palette, its numbers count, not its colours.

    Raises:
        InputError: the file is missing or no picture.
    """
    try:
        with Image.open(path) as image:
            values = np.asarray(image)
    except FileNotFoundError:
        raise InputError(f"there is no mask {path}") from None
    except Exception as error:  # decoders raise many kinds of errors on broken files
        raise InputError(f"{path} cannot be read as a mask: {type(error).__name__}") from None
    return values != 0 if values.ndim == 2 else (values[..., :3] != 0).any(axis=-1)


def mirrored_rows(names: Sequence[str]) -> list[int | None]:
    """For each name the row of its counterpart in a mirror: of ``left_eye`` that of ``right_eye``.

    A name without a side is its own counterpart; ``None`` stands where the counterpart is missing.

    Example:
        >>> mirrored_rows(["left_eye", "right_eye", "nose", "LeftEar"])
        [1, 0, 2, None]
    """
    words = [name_words(name) for name in names]
    exchanged = [tuple(EXCHANGED.get(word, word) for word in name) for name in words]
    return [words.index(name) if name in words else None for name in exchanged]


def side_words(names: Sequence[str], mirrored: bool) -> tuple[tuple[str, ...], ...]:
    """What each keypoint looks like, as words: in a mirrored picture a left eye looks like a right one.

    Example:
        >>> side_words(["leftEye", "nose"], mirrored=True)
        (('right', 'eye'), ('nose',))
    """
    words = [name_words(name) for name in names]
    return tuple(tuple(EXCHANGED.get(word, word) if mirrored else word for word in name) for name in words)


def name_words(name: str) -> tuple[str, ...]:
    """``leftEye``, ``Left eye`` and ``left_eye`` are the same words."""
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", " ", name)
    return tuple(separated.lower().split())
