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
    targets: list[tuple[float, float] | None]
    """Where a person sees them in the target; ``None``: it does not show them."""


PAIRS = (
    LabelledExample(
        "donkey.png",
        "zebra.png",
        [(7, 72), (20, 42), (5, 3), (85, 44), (178, 38), (70, 150), (165, 90), (175, 110), (110, 80)],
        "muzzle, eye, ear, withers, rump, fore hoof, stifle, hock, flank",
        [(5, 49), (22, 25), (20, 2), (80, 36), (183, 36), (73, 140), (172, 88), (182, 112), (115, 72)],
    ),
    LabelledExample(
        "european-bear.png",
        "black-bear.png",
        [(301, 164), (244, 69), (196, 14), (26, 89), (225, 255), (178, 265), (130, 120)],
        "nose, ear, shoulder, rump, one fore paw, the other, flank",
        [(170, 86), (138, 38), (110, 16), (4, 46), (140, 155), (88, 138), (58, 62)],
    ),
    LabelledExample(
        "sedan.png",
        "sportscar.png",
        [(54, 48), (178, 48), (90, 10), (12, 40), (205, 36), (110, 45), (30, 22), (150, 25)],
        "rear wheel, front wheel, roof, rear bumper, light, door, boot, windscreen",
        [(37, 48), (155, 48), None, (10, 44), (181, 32), (90, 47), (22, 25), (122, 24)],
    ),
    LabelledExample(
        "pairs/young-gnu.png",
        "pairs/gnu.png",
        [(13, 103), (40, 28), (140, 112), (150, 250), (275, 200), (290, 150), (285, 30), (305, 120), (200, 60)],
        "muzzle, ear, elbow, fore leg, hind leg, hock, rump, tail, flank",
        [(9, 119), (60, 57), (137, 118), (132, 225), (262, 195), (283, 155), (296, 38), (314, 120), (195, 60)],
    ),
    LabelledExample(
        "pairs/camel.png",
        "pairs/dromedary.png",
        [(4, 35), (40, 32), (35, 92), (82, 168), (176, 168), (186, 70), (120, 85)],
        "muzzle, ear, throat, fore foot, hind foot, tail, flank",
        [(3, 10), (37, 9), (38, 57), (73, 131), (148, 130), (158, 60), (103, 60)],
    ),
    LabelledExample(
        "pairs/horse.png",
        "pairs/cow.png",
        [(192, 44), (184, 8), (138, 62), (122, 130), (18, 134), (12, 28), (75, 45)],
        "muzzle, ear, chest, fore hoof, hind hoof, tail, flank",
        [(188, 47), (155, 19), (145, 63), (113, 132), (6, 131), (9, 29), (62, 50)],
    ),
    LabelledExample(
        "pairs/crow.png",
        "pairs/pigeon.png",
        [(3, 18), (25, 10), (30, 65), (70, 118), (176, 92), (80, 42), (100, 70)],
        "beak, eye, breast, leg, tail, back, wing",
        [(2, 26), (17, 9), (31, 72), (67, 118), (181, 122), (75, 48), (95, 75)],
    ),
)
"""The only list of them: the demo, the experiments and the page show these pairs."""
