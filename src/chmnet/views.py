"""What a network sees of a picture: a part of it, perhaps mirrored, perhaps turned. Starts without PyTorch."""

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PIL import Image

from chmnet.errors import InputError
from chmnet.pictures import Area, Box, Picture, PictureLike, Size, to_tensor
from chmnet.turning import check_turn, turn_image, turn_quarters, turned_size

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class View:
    """What a network sees of a picture: a part of it, perhaps mirrored, perhaps turned.

    Pixels and points move together here and nowhere else. Points of a view are normalised, −1 … 1 from edge to
    edge; points of a picture are in its pixels. Views can be compared and hashed: they are the keys of caches.

    Example:
        >>> import numpy as np
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
