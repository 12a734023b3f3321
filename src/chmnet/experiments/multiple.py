"""Several objects in one picture: do the most confident matches connect those that both pictures show?"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from chmnet.experiments.clutter import TOP, models
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table
from chmnet.experiments.store import ExamplePair, Store
from chmnet.metrics import inside
from chmnet.pictures import Box
from chmnet.result import Matches
from chmnet.training.synthetic import Texture
from chmnet.viz import contact_sheet, draw_inside_matches

SIDE = 480
CELL = SIDE // 2
FILLED = 0.9
"""Share of its cell that a picture fills."""
SCENES_SHOWN = 2


class Scene(NamedTuple):
    """Two pictures with two objects in common, and one more in each."""

    title: str
    source: Image.Image
    target: Image.Image
    source_boxes: tuple[Box, Box]
    target_boxes: tuple[Box, Box]
    """Row by row the same objects as in the source."""


SCENES = ((0, 2, 1, 6), (1, 2, 6, 4), (3, 6, 2, 1), (4, 1, 6, 2), (5, 2, 6, 1), (6, 1, 2, 3))
"""Numbers of example pairs: two objects that both pictures show, and one more in each.

Those are of another kind than all others: a bear among cars and donkeys, not a gnu."""


def scenes(pairs: list[ExamplePair]) -> Iterator[Scene]:
    """Pictures composed of the example pictures; the common objects lie at different places."""
    for number, chosen in enumerate(SCENES):
        first, second, third, fourth = (pairs[place % len(pairs)] for place in chosen)
        source, source_boxes = _compose([first.source, second.source, third.source], (0, 3, 1), 2 * number)
        target, target_boxes = _compose([first.target, second.target, fourth.target], (2, 1, 0), 2 * number + 1)
        yield Scene(f"{first.title}; {second.title}", source, target, source_boxes, target_boxes)


def _compose(
    pictures: list[Image.Image], cells: tuple[int, int, int], seed: int
) -> tuple[Image.Image, tuple[Box, Box]]:
    """Pictures in three of four cells, on a generated background; and the boxes of the first two."""
    canvas = Image.blend(Texture(1000 + seed).picture((SIDE, SIDE)), Image.new("RGB", (SIDE, SIDE), "white"), 0.6)
    boxes = []
    for picture, cell in zip(pictures, cells, strict=True):
        factor = FILLED * CELL / max(picture.size)
        width, height = (max(1, round(side * factor)) for side in picture.size)
        left = (cell % 2) * CELL + (CELL - width) // 2
        top = (cell // 2) * CELL + (CELL - height) // 2
        canvas.paste(picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS), (left, top))
        boxes.append((float(left), float(top), float(left + width), float(top + height)))
    return canvas, (boxes[0], boxes[1])


def _joined(scene: Scene, matches: Matches) -> np.ndarray:
    """``2 n``: for each common object, which matches lie on it at both ends."""
    return np.array(
        [
            inside(matches.source, source) & inside(matches.target, target)
            for source, target in zip(scene.source_boxes, scene.target_boxes, strict=True)
        ]
    )


def measure(store: Store) -> Figures:
    """Of the most confident matches of every scene: how many connect one object, and how many objects have any."""
    all_scenes = list(scenes(store.example_pairs()))
    rows: dict[str, Any] = {}
    for title, model in models(store).items():
        matcher = store.matcher(model)
        joined = [
            _joined(scene, matcher.match(scene.source, scene.target).matches(TOP, background=True))
            for scene in all_scenes
        ]
        rows[title] = {
            "joined": [round(float(found.any(axis=0).mean()), 4) for found in joined],
            "objects": [int((found.mean(axis=1) >= 0.1).sum()) for found in joined],
        }
    return {"scenes": [scene.title for scene in all_scenes], "rows": rows}


def tables(figures: Figures) -> list[Table]:
    """Means over the scenes."""
    number = len(figures["scenes"])
    rows = [
        [title, f"{100 * np.mean(row['joined']):.1f}", f"{sum(row['objects'])} of {2 * number}"]
        for title, row in figures["rows"].items()
    ]
    headings = [
        f"matches, {number} scenes",
        "300 most confident: on a common object at both ends (%)",
        "objects with 30 or more",
    ]
    return [Table(headings, rows)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """The most confident matches of a few scenes: a row per model, a column per scene."""
    chosen = list(scenes(store.example_pairs()))[:SCENES_SHOWN]
    drawings, captions = [], []
    for title, model in models(store).items():
        matcher = store.matcher(model)
        for scene in chosen:
            matches = matcher.match(scene.source, scene.target).matches(TOP, background=True)
            right = np.asarray(_joined(scene, matches).any(axis=0))
            drawings.append(
                draw_inside_matches(scene.source, scene.target, matches.source, matches.target, right, side=300)
            )
            captions.append(f"{title}: {100 * right.mean():.0f} % on the same object")
    return {"": contact_sheet(drawings, captions, columns=SCENES_SHOWN, side=None)}


EXPERIMENT = Experiment(
    "multiple", "Several objects in one picture", "figure “Multiple instance matching”", measure, tables, draw
)
