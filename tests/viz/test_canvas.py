import numpy as np
import pytest
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz.canvas import SMOOTH_PIXELS, Canvas

BLACK = (0, 0, 0)


def white(width: int = 60, height: int = 40) -> Canvas:
    return Canvas(Image.new("RGB", (width, height), "white"))


def darkness(canvas: Canvas) -> np.ndarray:
    return 255 - np.asarray(canvas.picture().convert("L")).astype(int)


def test_nothing_drawn_changes_nothing() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (31, 47, 3), dtype=np.uint8))
    canvas = Canvas(noise)
    assert canvas.picture() == noise
    canvas.disc((5, 5), 2, BLACK)
    assert (np.asarray(canvas.picture())[:, 10:] == np.asarray(noise)[:, 10:]).all()


def test_marks_lie_around_their_centre() -> None:
    for mark in (
        lambda canvas: canvas.disc((30, 20), 6, BLACK),
        lambda canvas: canvas.ring((30, 20), 6, BLACK, 2),
        lambda canvas: canvas.cross((30, 20), 6, BLACK, 2),
    ):
        canvas = white()
        mark(canvas)
        rows, columns = np.nonzero(darkness(canvas) > 20)
        assert (columns.min() + columns.max() + 1) / 2 == pytest.approx(30, abs=0.6)
        assert (rows.min() + rows.max() + 1) / 2 == pytest.approx(20, abs=0.6)
        assert columns.max() - columns.min() == pytest.approx(12, abs=2)


def test_lines_have_width_opacity_dashes_and_halo() -> None:
    thin, thick, faint, dashed = white(), white(), white(), white()
    thin.line((5, 20), (55, 20), BLACK, 2)
    thick.line((5, 20), (55, 20), BLACK, 6)
    faint.line((5, 20), (55, 20), BLACK, 2, opacity=0.5)
    dashed.line((5, 20), (55, 20), BLACK, 2, dashed=True)
    inks = [darkness(canvas).sum() for canvas in (thin, thick, faint, dashed)]
    assert inks[1] == pytest.approx(3 * inks[0], rel=0.15)
    assert inks[2] == pytest.approx(inks[0] / 2, rel=0.05)
    assert inks[3] == pytest.approx(inks[0] / 2, rel=0.2)
    on_black = Canvas(Image.new("RGB", (60, 40)))
    on_black.line((5, 20), (55, 20), BLACK, 2, halo=2)
    assert 255 in np.asarray(on_black.picture())


def test_letters_change_with_what_is_written() -> None:
    one, two, hollow = white(), white(), white()
    one.numbered((30, 20), "1", "#000000", 12)
    two.numbered((30, 20), "2", "#000000", 12)
    hollow.numbered((30, 20), "1", "#000000", 12, hollow=True)
    assert one.picture() != two.picture()
    assert darkness(hollow).sum() < 0.6 * darkness(one).sum()


def test_large_pictures_are_drawn_on_as_they_are() -> None:
    assert white().factor == 3
    side = int(SMOOTH_PIXELS**0.5) + 1
    assert white(side, side).factor == 1


def test_places_must_be_numbers() -> None:
    with pytest.raises(InputError, match=r"finite numbers, got \[nan, 1.0\]"):
        white().disc((float("nan"), 1.0), 2, BLACK)
