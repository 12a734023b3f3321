"""The example pictures that come with the repository, in pairs, with points to find."""

from typing import NamedTuple


class LabelledExample(NamedTuple):
    """Two pictures of things of one kind, and points of the first one."""

    source: str
    """File in the folder of examples."""
    target: str
    points: list[tuple[float, float]]
    """(x, y) in pixels of the source."""
    words: str
    """What the points are, in their order."""


PAIRS = (
    LabelledExample(
        "donkey.png",
        "zebra.png",
        [(7, 72), (20, 42), (5, 3), (85, 44), (178, 38), (70, 150), (165, 90), (175, 110), (110, 80)],
        "muzzle, eye, ear, withers, rump, fore hoof, stifle, hock, flank",
    ),
    LabelledExample(
        "european-bear.png",
        "black-bear.png",
        [(301, 164), (244, 69), (196, 14), (26, 89), (225, 255), (178, 265), (130, 120)],
        "nose, ear, shoulder, rump, one fore paw, the other, flank",
    ),
    LabelledExample(
        "sedan.png",
        "sportscar.png",
        [(54, 48), (178, 48), (90, 10), (12, 40), (205, 36), (110, 45), (30, 22), (150, 25)],
        "rear wheel, front wheel, roof, rear bumper, light, door, boot, windscreen",
    ),
    LabelledExample(
        "pairs/young-gnu.png",
        "pairs/gnu.png",
        [(13, 103), (40, 28), (140, 112), (150, 250), (275, 200), (290, 150), (285, 30), (305, 120), (200, 60)],
        "muzzle, ear, elbow, fore leg, hind leg, hock, rump, tail, flank",
    ),
    LabelledExample(
        "pairs/camel.png",
        "pairs/dromedary.png",
        [(4, 35), (40, 32), (35, 92), (82, 168), (176, 168), (186, 70), (120, 85)],
        "muzzle, ear, throat, fore foot, hind foot, tail, flank",
    ),
    LabelledExample(
        "pairs/horse.png",
        "pairs/cow.png",
        [(192, 44), (184, 8), (138, 62), (122, 130), (18, 134), (12, 28), (75, 45)],
        "muzzle, ear, chest, fore hoof, hind hoof, tail, flank",
    ),
    LabelledExample(
        "pairs/crow.png",
        "pairs/pigeon.png",
        [(3, 18), (25, 10), (30, 65), (70, 118), (176, 92), (80, 42), (100, 70)],
        "beak, eye, breast, leg, tail, back, wing",
    ),
)
"""The only list of them: the demo, the experiments and the page show these pairs."""
