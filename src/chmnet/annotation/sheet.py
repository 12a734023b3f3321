"""A contact sheet for review: what was labelled, and what was found, the least confident first."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageOps

from chmnet.annotation.coco import doubtful_keypoints
from chmnet.annotation.records import Pose, Propagated, mean_confidence
from chmnet.data.coco import Labels
from chmnet.errors import InputError
from chmnet.pictures import to_picture
from chmnet.viz import contact_sheet
from chmnet.viz.canvas import colour, rgb
from chmnet.viz.keypoints import draw_keypoints

MOST = 60
"""Targets on a sheet."""

COLUMNS = 6
SIDE = 320
FRAME = 5
"""Width of the frame around a labelled picture."""


def draw_sheet(
    labels: Labels, found: Sequence[Propagated], minimum_confidence: float, most: int = MOST
) -> Image.Image:
    """A contact sheet: framed, a few labelled pictures; then results, the lowest mean confidence first.

    Numbers are those of the category's keypoints, counted from 1; hollow marks with a question mark need review. A
    caption says where a picture was matched mirrored or turned.
    """
    categories = {category.name: category for category in labels.categories}
    several = len(categories) > 1
    tiles: list[tuple[Image.Image, str]] = []
    for instance in labels.instances[:COLUMNS]:
        skeleton = categories[instance.category].skeleton
        drawing = draw_keypoints(to_picture(instance.path), instance.keypoints, None, skeleton, SIDE - 2 * FRAME)
        drawing = ImageOps.expand(drawing, FRAME, rgb(colour(0)))  # told apart from the results at a glance
        tiles.append((drawing, f"labelled: {_caption(instance.path.name, instance.category, several)}"))
    objects = [(mean_confidence(moved), result, moved) for result in found for moved in result.objects]
    for mean, result, moved in sorted(objects, key=lambda entry: entry[0])[:most]:
        try:
            picture = to_picture(result.path)
        except InputError:  # it was there a moment ago
            continue
        confident = ~doubtful_keypoints(moved, result.size, minimum_confidence)
        drawing = draw_keypoints(picture, moved.points, confident, categories[moved.category].skeleton, SIDE)
        review = int(np.sum(~confident))
        numbers = f"confidence {mean:.2f}" + (f", {review} to review" if review else "") + _pose(moved.pose)
        # The name comes last: what is too long is cut off.
        tiles.append((drawing, f"{numbers}: {_caption(result.path.name, moved.category, several)}"))
    pictures, captions = zip(*tiles, strict=True)
    return contact_sheet(pictures, captions, COLUMNS, side=None)


def _pose(pose: Pose) -> str:
    """How a picture was matched, where not as it is."""
    return (", mirrored" if pose.mirrored else "") + (f", turned {pose.turn:g}°" if pose.turn else "")


def _caption(name: str, category: str, several: bool) -> str:
    text = f"{name} ({category})" if several else name
    return text.encode("utf-8", "replace").decode()  # names that are no Unicode cannot be drawn
