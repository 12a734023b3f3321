import numpy as np
import pytest
from PIL import Image

from chmnet.errors import InputError
from chmnet.viz import contact_sheet
from chmnet.viz.panels import SHEET_PIXELS, Entry, add_legend, panels

RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 128, 0)


def extent(drawing: Image.Image, colour: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of all pixels of one colour."""
    rows, columns = np.nonzero((np.asarray(drawing) == colour).all(-1))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


@pytest.mark.parametrize("first", [(300, 200), (200, 300), (5000, 1), (1, 5000), (1, 1)])
@pytest.mark.parametrize("second", [(300, 200), (4000, 3000), (5000, 1), (1, 5000)])
def test_panels_are_large_enough_and_their_points_land(first: tuple[int, int], second: tuple[int, int]) -> None:
    row = panels([Image.new("RGB", first, RED), Image.new("RGB", second, BLUE)], side=160)
    for number, (size, colour) in enumerate([(first, RED), (second, BLUE)]):
        box = extent(row.picture, colour)
        assert box == row.boxes[number]
        width, height = box[2] - box[0], box[3] - box[1]
        assert 80 <= max(width, height) <= 160
        assert min(width, height) >= 10
        corners = row.on(number, np.array([[0, 0], size]))
        assert corners.flatten().tolist() == pytest.approx(box)


def test_sheet_places_pictures_in_rows() -> None:
    pictures = [Image.new("RGB", (60, 40), colour) for colour in (RED, BLUE, GREEN)]
    sheet = contact_sheet(pictures, columns=2, side=60)
    red, blue, green = (extent(sheet, colour) for colour in (RED, BLUE, GREEN))
    assert red[1] == blue[1]
    assert red[0] == green[0]
    assert red[2] < blue[0]
    assert red[3] < green[1]
    for box in (red, blue, green):
        assert (box[2] - box[0], box[3] - box[1]) == (60, 40)


def test_captions_stand_above_their_pictures() -> None:
    pictures = [Image.new("RGB", (60, 40), RED), Image.new("RGB", (60, 40), BLUE)]
    sheet = contact_sheet(pictures, ["", "iiii"], columns=2, side=100)
    left, _, right, _ = extent(sheet, BLUE)
    ink = np.argwhere(np.asarray(sheet)[: extent(sheet, BLUE)[1]].max(-1) < 100)
    assert len(ink)
    assert left <= ink[:, 1].min()
    assert ink[:, 1].max() < right
    assert (ink[:, 1].min() + ink[:, 1].max()) / 2 == pytest.approx((left + right) / 2, abs=2)


@pytest.mark.parametrize("caption", ["W" * 300, "many words " * 40, "żółw 猫.png"])
def test_long_captions_stay_in_their_cell(caption: str) -> None:
    picture = Image.new("RGB", (100, 50), RED)
    sheet = contact_sheet([picture, picture], [caption, ""], columns=2, side=100)
    ink = np.argwhere(np.asarray(sheet).max(-1) < 100)
    assert ink[:, 1].max() < sheet.width / 2
    assert ink[:, 1].min() > 0


def test_pictures_of_any_size_and_number() -> None:
    odd = [Image.new("RGB", size, RED) for size in [(1, 1), (1, 5000), (5000, 1), (4000, 3000)]]
    sheet = contact_sheet(odd, ["a"] * 4, side=100)
    assert sheet.width < 400
    assert sheet.height < 400
    crowd = contact_sheet([Image.new("L", (2, 2))] * 900, side=2000)
    assert crowd.width * crowd.height < 1.3 * SHEET_PIXELS
    drawing = contact_sheet([Image.new("RGB", (77, 33), RED)], ["as it is"], side=None)
    left, top, right, bottom = extent(drawing, RED)
    assert (right - left, bottom - top) == (77, 33)


def test_sheets_that_cannot_be_made() -> None:
    picture = Image.new("RGB", (9, 9))
    with pytest.raises(InputError, match="at least one picture"):
        contact_sheet([])
    with pytest.raises(InputError, match="got 1 captions for 2 pictures"):
        contact_sheet([picture, picture], ["one"])
    with pytest.raises(InputError, match="at least one column, got 0"):
        contact_sheet([picture], columns=0)


def test_legend_is_below_and_wraps() -> None:
    picture = Image.new("RGB", (120, 30), RED)
    entries = [Entry(lambda canvas, place: canvas.disc(place, 5, BLUE), "a sign", 5.0)] * 3
    drawing = add_legend(picture, entries, text=12)
    assert drawing.width == 120
    assert extent(drawing, RED) == (0, 0, 120, 30)
    left, top, right, bottom = extent(drawing, BLUE)
    assert top >= 30
    assert bottom - top > 40  # three lines
    assert right - left == pytest.approx(10, abs=2)  # one below the other
    narrow = add_legend(Image.new("RGB", (8, 30), RED), entries, text=12)
    assert narrow.width > 60
    assert extent(narrow, RED)[2] - extent(narrow, RED)[0] == 8


def test_a_picture_without_margin_is_the_picture() -> None:
    row = panels([Image.new("RGB", (60, 40), RED)], side=60, margin_radii=0)
    assert row.picture.size == (60, 40)
    assert extent(row.picture, RED) == row.boxes[0] == (0, 0, 60, 40)
