"""The example pictures' points: as many in the target as in the source, each inside of its picture."""

import pytest

from chmnet.data.examples import PAIRS, LabelledExample
from chmnet.pictures import Picture
from tests.conftest import REPOSITORY


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.source)
def test_points_lie_inside_their_pictures(pair: LabelledExample) -> None:
    assert len(pair.points) == len(pair.targets) == len(pair.words.split(", "))
    shown = [point for point in pair.targets if point is not None]
    assert len(shown) > len(pair.targets) / 2
    for name, points in ((pair.source, pair.points), (pair.target, shown)):
        height, width = Picture(REPOSITORY / "examples" / name).size
        assert all(0 <= x < width and 0 <= y < height for x, y in points)
