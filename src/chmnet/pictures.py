"""Pictures in, and what a network sees of them. Starts without PyTorch: the page's decoder uses it."""

import hashlib
import math
import operator
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from chmnet.arrays import array_to_bytes, full_scale, scaled_to_bytes, tensor_to_array
from chmnet.errors import InputError
from chmnet.headers import ORIENTATION, read_size
from chmnet.turning import check_turn, turn_image, turn_quarters, turned_size

if TYPE_CHECKING:
    from torch import Tensor

Size = tuple[int, int]
"""(height, width); the same as in :mod:`chmnet.geometry`, which loads PyTorch."""
Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""
Area = tuple[int, int, int, int]
"""A box of whole pixels."""
PictureLike = Union["Picture", str, Path, bytes, Image.Image, np.ndarray, "Tensor"]
"""What can be given as a picture; see :class:`Picture`."""

MAX_PIXELS = 150_000_000
"""Larger pictures are refused: decoding one would take more than a gigabyte."""


class Picture:
    """A picture as a person sees it: upright (EXIF), RGB, transparent parts white, first frame.

    Nothing is read before it is asked for, and :attr:`size` of a file reads its header only.

    Args:
        source: the path of a picture file, or the bytes of one; a PIL image, in any mode; a NumPy array ``H W``,
            ``H W 1``, ``H W 3`` (RGB) or ``H W 4`` (RGB and opacity) of uint8, uint16, bool, or floats 0 … 1; a
            tensor ``3 H W``, ``1 3 H W``, ``H W 3`` or ``H W`` (also 1 or 4 channels) with such values.
        size: (height, width) of the whole picture, where the source shows it smaller, or is ``None``: not at hand.

    Raises:
        InputError: the source is none of these.

    Example:
        >>> picture = Picture(np.zeros((20, 30), dtype=np.uint8))
        >>> picture.size, picture.image.mode
        ((20, 30), 'RGB')
    """

    def __init__(self, source: "PictureLike | None", size: Size | None = None) -> None:
        self.path = Path(source) if isinstance(source, str | Path) else None
        known = isinstance(source, str | Path | bytes | Image.Image | np.ndarray) or _is_tensor(source)
        if not known and (source is not None or size is None):
            raise InputError(
                f"a picture must be a path, a PIL image, a NumPy array or a tensor, got {type(source).__name__}"
            )
        self._name = "the picture" if self.path is None else str(self.path)
        self._source = source
        self._encoded = isinstance(source, str | Path | bytes)
        self._size = size
        self._image: Image.Image | None = None
        self._key: tuple[Any, ...] | None = None

    @staticmethod
    def of(picture: PictureLike) -> "Picture":
        """The picture itself, or one made of anything that can be a picture."""
        return picture if isinstance(picture, Picture) else Picture(picture)

    @property
    def size(self) -> Size:
        """(height, width) of the upright picture; an :class:`InputError` where it cannot be read."""
        if self._size is None:
            if self._image is None and self._encoded:
                with decoding(self._name):
                    self._size = read_size(self._file())
            else:
                self._size = (self.image.height, self.image.width)
        return self._size

    @property
    def image(self) -> Image.Image:
        """Its pixels, decoded once and kept (see :meth:`forget`); perhaps fewer than :attr:`size` says.

        Raises:
            InputError: it cannot be read, or is not at hand.
        """
        image = self._image  # another thread may forget it in the meantime
        if image is None:
            self._image = image = self._decode()
            self._size = self._size or (image.height, image.width)
        return image

    @property
    def at_hand(self) -> bool:
        """Whether there are pixels; a result loaded from a file knows only the sizes of its pictures."""
        return self._source is not None

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells pictures apart: path, time and length of a file, otherwise a digest of the pixels."""
        if self._key is None:
            if self.path is not None:
                state = _check_file(self.path).stat()
                self._key = (str(self.path.absolute()), state.st_mtime_ns, state.st_size)
            elif isinstance(self._source, bytes):
                self._key = (hashlib.sha256(self._source).hexdigest(),)
            elif self._source is None:
                self._key = (id(self),)
            else:
                self._key = (hashlib.sha256(self.image.tobytes()).hexdigest(), *self.size)
        return self._key

    def forget(self) -> None:
        """Drop decoded pixels that can be decoded again."""
        if self._encoded:
            self._image = None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Picture) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Picture({self._name!r})"

    def _file(self) -> Path | BytesIO:
        return BytesIO(self._source) if isinstance(self._source, bytes) else _check_file(Path(str(self._source)))

    def _decode(self) -> Image.Image:
        source = self._source
        if source is None:
            raise InputError("the picture is not at hand, only its size; give the picture")
        if self._encoded:
            return read_picture(self._file(), self._name, MAX_PIXELS)
        if isinstance(source, Image.Image):
            if 0 in source.size:  # Pillow can make such, and even resize them
                raise InputError(f"a picture must have at least one pixel, got {source.width}×{source.height}")
            with decoding("the picture"):
                return to_rgb(source)
        values = source if isinstance(source, np.ndarray) else tensor_to_array(source)
        return to_rgb(Image.fromarray(array_to_bytes(values)))


@dataclass(frozen=True)
class View:
    """What a network sees of a picture: a part of it, perhaps mirrored, perhaps turned.

    Pixels and points move together here and nowhere else. Points of a view are normalised, −1 … 1 from edge to
    edge; points of a picture are in its pixels. Views can be compared and hashed: they are the keys of caches.

    Example:
        >>> view = View(Picture(np.zeros((20, 40), dtype=np.uint8)), area=(10, 0, 30, 20), mirrored=True)
        >>> view.to_picture(np.array([[-1.0, 0.0]])), view.size
        (array([[30., 10.]]), (20, 20))
    """

    picture: Picture
    area: Area | None = None
    """The part that is seen, in pixels of the picture; ``None``: all of it."""
    mirrored: bool = False
    """Left and right exchanged."""
    turn: float = 0
    """Degrees counter-clockwise, after mirroring, from 0 to below 360. Multiples of 90 are exact; otherwise the
    area is seen in the smallest upright frame around it, the rest of which has its mean colour."""
    window: Area | None = None
    """The part of such a frame that is seen, in its pixels; ``None``: all of it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "picture", Picture.of(self.picture))
        if self.turn != 0 or type(self.turn) is not int:
            object.__setattr__(self, "turn", check_turn(self.turn))
        if self.area is not None:
            height, width = self.picture.size
            left, top, right, bottom = area = _whole_box(self.area, "an area")
            object.__setattr__(self, "area", area)  # a list would not be hashable
            if not (0 <= left < right <= width and 0 <= top < bottom <= height):
                raise InputError(f"the area {self.area} must lie within the picture of {width}×{height} pixels")
        if self.window is not None:
            height, width = turned_size(self._area_size, self.turn)
            left, top, right, bottom = window = _whole_box(self.window, "a window")
            object.__setattr__(self, "window", window)
            if not (self.turn % 90 and 0 <= left < right <= width and 0 <= top < bottom <= height):
                raise InputError(f"the window {self.window} must lie within the frame of a picture turned askew")

    @staticmethod
    def of(picture: "PictureLike | View") -> "View":
        """The view itself, or all of a picture."""
        return picture if isinstance(picture, View) else View(Picture.of(picture))

    @staticmethod
    def around(picture: PictureLike, box: Box, margin: float = 0.0) -> "View":
        """The crop around a box in pixels of the picture, with a margin on each side as a share of the box.

        Raises:
            InputError: the box lies outside of the picture.
        """
        picture = Picture.of(picture)
        height, width = picture.size
        try:
            left, top, right, bottom = map(float, box)
        except (TypeError, ValueError):
            raise InputError(f"the box of {picture._name} must be left, top, right, bottom, got {box!r}") from None
        if not all(map(math.isfinite, (left, top, right, bottom))):
            raise InputError(f"the box of {picture._name} must be finite numbers, got {box}")
        more_x, more_y = margin * (right - left), margin * (bottom - top)
        first = max(0, int(left - more_x)), max(0, int(top - more_y))
        area = (*first, min(width, int(right + more_x + 1)), min(height, int(bottom + more_y + 1)))
        if area[0] >= area[2] or area[1] >= area[3]:
            raise InputError(f"the box of {picture._name} lies outside of the picture; correct or remove it")
        return View(picture, area)

    @property
    def size(self) -> Size:
        """(height, width) of the frame of what is seen, in pixels of the picture."""
        if self.window is not None:
            return self.window[3] - self.window[1], self.window[2] - self.window[0]
        return turned_size(self._area_size, self.turn) if self.turn else self._area_size

    @property
    def _area_size(self) -> Size:
        left, top, right, bottom = self.area or (0, 0, *self.picture.size[::-1])
        return bottom - top, right - left

    def image(self) -> Image.Image:
        """What is seen, in the picture's own pixels; an :class:`InputError` where a turned frame is too large."""
        image = self._area_image()
        if not self.turn % 90:
            return turn_quarters(image, self.mirrored, self.turn) if self.mirrored or self.turn else image
        return turn_image(image, self._area_size, self.mirrored, self.turn, window=self.window)

    def _area_image(self) -> Image.Image:
        image = self.picture.image
        if self.area is None:
            return image
        (height, width), (left, top, right, bottom) = self.picture.size, self.area
        left, right = _scale_interval(left, right, image.width / width)
        top, bottom = _scale_interval(top, bottom, image.height / height)
        return image.crop((left, top, right, bottom))

    def tensor(self, size: Size) -> "Tensor":
        """What is seen, resized to (height, width): a tensor ``3 h w``, RGB from 0 to 1."""
        if not self.turn % 90:
            return to_tensor(self.image(), size)
        image = self._area_image()
        return to_tensor(turn_image(image, self._area_size, self.mirrored, self.turn, size, self.window), size)

    def to_picture(self, points: Any, inside: bool = False) -> Any:
        """Normalised points of the view (an array or a tensor) in pixels of the whole picture.

        Args:
            points: ``… 2`` numbers.
            inside: points in the corners around a turned area are moved to the nearest place of it.
        """
        from chmnet.geometry import (
            mirror_points,
            move_points,
            normalised_to_pixels,
            pixels_to_normalised,
            turn_back,
        )

        if self.window is not None:
            points = move_points(normalised_to_pixels(points, self.size), self.window[0], self.window[1])
            points = pixels_to_normalised(points, turned_size(self._area_size, self.turn))
        points = turn_back(points, self.turn, self._area_size)
        if inside and self.turn % 90:
            points = points.clip(-1, 1)
        if self.mirrored:
            points = mirror_points(points)
        points = normalised_to_pixels(points, self._area_size)
        return points if self.area is None else move_points(points, self.area[0], self.area[1])

    def from_picture(self, points: Any, inside: bool = False) -> Any:
        """Points in pixels of the whole picture as normalised points of the view; some may lie outside of it.

        Args:
            points: ``… 2`` numbers.
            inside: points beside a turned area are moved to the nearest place of it first, and into the window.
        """
        from chmnet.geometry import (
            mirror_points,
            move_points,
            normalised_to_pixels,
            pixels_to_normalised,
            turn_points,
        )

        if self.area is not None:
            points = move_points(points, -self.area[0], -self.area[1])
        points = pixels_to_normalised(points, self._area_size)
        if inside and self.turn % 90:
            points = points.clip(-1, 1)
        if self.mirrored:
            points = mirror_points(points)
        points = turn_points(points, self.turn, self._area_size)
        if self.window is not None:
            points = normalised_to_pixels(points, turned_size(self._area_size, self.turn))
            points = pixels_to_normalised(move_points(points, -self.window[0], -self.window[1]), self.size)
            points = points.clip(-1, 1) if inside else points
        return points


def _whole_box(sides: Any, name: str) -> Area:
    """Left, top, right and bottom as whole numbers."""
    try:
        left, top, right, bottom = map(operator.index, sides)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be four whole numbers, got {sides!r}") from None
    return left, top, right, bottom


def _scale_interval(first: int, last: int, scale: float) -> tuple[int, int]:
    """An interval in pixels of a rendition, at least one of them."""
    begin = min(round(first * scale), math.ceil(last * scale) - 1)
    return begin, max(begin + 1, round(last * scale))


# ---------------------------------------------------------------- from anything to pixels


def to_picture(picture: PictureLike) -> Image.Image:
    """Anything that can be a :class:`Picture` as an upright RGB image.

    Raises:
        InputError: it cannot be read, its values are out of range or not finite, or it is something else.
    """
    return Picture.of(picture).image


def to_tensor(image: Image.Image, size: Size) -> "Tensor":
    """An RGB image resized to (height, width) with Pillow's bilinear filter: a tensor ``3 h w`` from 0 to 1."""
    import torch

    height, width = size
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1).float() / 255


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")  # whoever has a tensor has loaded it
    return torch is not None and isinstance(value, torch.Tensor)


def _check_file(path: Path) -> Path:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a picture file", reason="no-such-file")
        if path.is_file():
            return path
    except OSError as error:  # a name that is too long
        raise InputError(f"{path} cannot be read: {error.strerror}", reason="no-such-file") from None
    raise InputError(f"there is no picture {path}", reason="no-such-file")


# ---------------------------------------------------------------- picture files


def read_picture(
    file: Path | BytesIO, name: str, max_pixels: int = MAX_PIXELS, formats: tuple[str, ...] | None = None
) -> Image.Image:
    """Read a picture file as a person sees it.

    Args:
        file: a path, or a file in memory.
        name: what messages call it.
        max_pixels: larger pictures are refused before they are decoded.
        formats: Pillow's names of the formats to try; ``None``: all.

    Raises:
        InputError: no picture, broken or too large.
    """
    with decoding(name, max_pixels), Image.open(file, formats=formats) as image:
        width, height = image.size
        if width * height > max_pixels:
            raise InputError(
                f"{name} has {width}×{height} pixels, more than can be read; make it smaller", reason="too-large"
            )
        image.load()
        return to_rgb(image)


@contextmanager
def decoding(name: str, max_pixels: int = MAX_PIXELS) -> Iterator[None]:
    """Turn whatever a decoder raises into one sentence about ``name``."""
    try:
        # Pillow warns of large pictures; we have a limit of our own. Filters are not for threads: they would stay.
        main = threading.current_thread() is threading.main_thread()
        with warnings.catch_warnings() if main else nullcontext():
            if main:
                warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(f"{name} is not a picture in a format that can be read", reason="not-a-picture") from None
    except Image.DecompressionBombError:
        raise InputError(
            f"{name} has more than {max_pixels // 10**6} million pixels; make it smaller", reason="too-large"
        ) from None
    except Exception as error:  # decoders raise many kinds of errors on broken files
        cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{name} cannot be read as a picture: {cause}", reason="broken-picture") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """An upright RGB copy of any picture.

    Example:
        >>> to_rgb(Image.new("LA", (2, 1), (0, 0))).getpixel((0, 0))  # transparent black on white
        (255, 255, 255)
    """
    if image.getexif().get(ORIENTATION, 1) != 1:  # without it exif_transpose makes a copy, of a large picture too
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits a pixel: Pillow would cut off, not scale
        values = np.asarray(image)
        return Image.fromarray(scaled_to_bytes(values, full_scale(values))).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        opaque = Image.new("RGB", image.size, "white")
        opaque.paste(image, mask=image.getchannel("A"))
        return opaque
    return image.convert("RGB")
