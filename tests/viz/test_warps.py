import numpy as np
import pytest
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz import blend, checkerboard, draw_warp

RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 128, 0)


def test_blend_mixes_by_share() -> None:
    red, blue = Image.new("RGB", (3, 2), RED), Image.new("RGB", (3, 2), BLUE)
    assert blend(red, blue, 1.0) == red
    assert blend(red, blue, 0.0) == blue
    assert blend(red, blue, 0.4).getpixel((2, 1)) == (102, 0, 153)


@pytest.mark.parametrize("size", [(80, 40), (40, 80), (5000, 1), (1, 5000), (3, 3), (1, 1)])
def test_checkerboard_takes_turns(size: tuple[int, int]) -> None:
    board = np.asarray(checkerboard(Image.new("RGB", size, RED), Image.new("RGB", size, BLUE), squares=8))
    red = (board == RED).all(-1)
    assert red[0, 0]
    along = red[0] if size[0] >= size[1] else red[:, 0]
    assert int((along[1:] != along[:-1]).sum()) == min(8, max(size)) - 1
    assert (red | (board == BLUE).all(-1)).all()
    if size == (80, 40):
        assert red[5, 5]
        assert not red[5, 15]
        assert not red[15, 5]
        assert red[15, 15]


def test_sheet_shows_all_five() -> None:
    source, warped, target = (Image.new("RGB", (200, 200), colour) for colour in (GREEN, RED, BLUE))
    sheet = np.asarray(draw_warp(source, warped, target, side=200))
    areas = {
        name: int((sheet == colour).all(-1).sum()) for name, colour in (("s", GREEN), ("w", RED), ("t", BLUE))
    }
    assert areas["s"] == 200 * 200
    assert areas["w"] == 1.5 * 200 * 200  # its own picture and half the checkerboard
    assert areas["t"] == 1.5 * 200 * 200
    assert int((np.abs(sheet.astype(int) - [127, 0, 127]).max(-1) <= 1).sum()) == 200 * 200


def test_warps_that_cannot_be_drawn() -> None:
    small, large = Image.new("RGB", (3, 2)), Image.new("RGB", (30, 20))
    with pytest.raises(InputError, match="must have the target's 30×20 pixels, got 3×2"):
        draw_warp(small, small, large)
    with pytest.raises(InputError, match="from 0 to 1, got 2"):
        blend(small, small, 2)
    with pytest.raises(InputError, match="at least one square, got 0"):
        checkerboard(small, small, squares=0)
