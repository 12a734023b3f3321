import itertools

import numpy as np
import pytest
from PIL import Image
from torch import nn

from chmnet.errors import InputError
from chmnet.nn.hough import HoughMatching
from chmnet.viz import draw_kernel, draw_kernels
from chmnet.viz.kernels import CHANNELS_DRAWN, MAP_SIDE, SLICES_DRAWN, kernel_slices, titled_kernels


def dense(sharing: str, scale: int | None = None, spatial: int = 5) -> np.ndarray:
    return HoughMatching(spatial, scale, sharing).kernel()[0, 0].detach().numpy()


def ink(drawing: Image.Image) -> np.ndarray:
    """Darkness of every pixel, 0 … 255."""
    return 255 - np.asarray(drawing.convert("L")).astype(int)


@pytest.mark.parametrize(("sharing", "count"), [("psi", 4), ("iso", 3), ("full", 9)])
def test_slices_are_those_of_the_paper(sharing: str, count: int) -> None:
    slices = kernel_slices(dense(sharing, scale=3))
    assert len(slices) == count
    assert slices[0].steps[0] == (0, 0)
    assert sorted(step for one in slices for step in one.steps) == [(s, t) for s in (-1, 0, 1) for t in (-1, 0, 1)]


def test_slices_hold_the_weights_of_their_scales() -> None:
    kernel = dense("full", scale=3)
    for weights, ((source, target),) in kernel_slices(kernel):
        np.testing.assert_array_equal(weights, kernel[source + 1, target + 1])


def test_one_line_for_each_slice() -> None:
    heights = [draw_kernel(dense(sharing, scale=3, spatial=1)).height for sharing in ("iso", "psi", "full")]
    assert heights[1] - heights[0] == pytest.approx(MAP_SIDE, abs=10)
    assert heights[2] - heights[1] == pytest.approx(5 * MAP_SIDE, abs=50)


def single_tap(*tap: int) -> Image.Image:
    """A kernel of zeros and one large weight."""
    kernel = np.zeros((3, 3, 3, 3))
    kernel[tap] = 1
    return draw_kernel(kernel)


def darkest_map(drawing: Image.Image) -> tuple[int, np.ndarray]:
    """Which map, counted from the left, holds the dark tap; and the middle of its ink from the map's middle."""
    left = (drawing.width - 6 * MAP_SIDE) // 2  # six lengths of offsets in a window of three
    maps = ink(drawing)[40 : 40 + MAP_SIDE, left : left + 6 * MAP_SIDE]
    rows, columns = np.nonzero(maps > 200)
    number = int(np.median(columns)) // MAP_SIDE
    inside = columns // MAP_SIDE == number
    x, y = columns[inside] - number * MAP_SIDE - MAP_SIDE / 2, rows[inside]
    return number, np.array([x.mean(), y.mean()])


def test_a_disc_lies_in_its_cell_of_the_first_map() -> None:
    number, middle = darkest_map(single_tap(1, 1, 1, 1))
    right_number, right = darkest_map(single_tap(1, 2, 1, 2))
    below_number, below = darkest_map(single_tap(2, 1, 2, 1))
    assert number == right_number == below_number == 0
    assert abs(middle[0]) < 1.5
    assert right[0] - middle[0] == pytest.approx(19, abs=1)
    assert right[1] == pytest.approx(middle[1], abs=1)
    assert below[1] - middle[1] == pytest.approx(19, abs=1)


def test_an_arrow_goes_from_source_to_target() -> None:
    number, arrow = darkest_map(single_tap(1, 0, 1, 2))  # two cells to the right
    back_number, back = darkest_map(single_tap(1, 2, 1, 0))
    assert number == back_number == 3  # lengths 0, 1, √2, 2
    assert arrow[0] > 1  # heads are heavier than tails
    assert back[0] < -1
    assert arrow[1] > back[1] + 1  # beside each other: both keep to their right


def test_darker_means_larger() -> None:
    drawings = []
    for weight in (0.2, 0.5, 0.9):
        kernel = np.zeros((3, 3, 3, 3))
        kernel[0, 0, 0, 0], kernel[1, 1, 1, 1] = 1.0, weight
        drawings.append(ink(draw_kernel(kernel)))
    changes = [int((after - before).sum()) for before, after in itertools.pairwise(drawings)]
    assert min(changes) > 0


@pytest.mark.parametrize("window", [1, 3, 7])
def test_windows_of_any_size(window: int) -> None:
    drawing = draw_kernel(dense("psi", spatial=window), title="t")
    assert drawing.width <= 15 * MAP_SIDE + 60
    assert ink(drawing).max() > 200


def test_constant_and_negative_kernels() -> None:
    assert ink(draw_kernel(np.zeros((3, 3, 3, 3)))).max() > 100
    assert draw_kernel(np.full((1, 1, 1, 1), -2.0)).width > 0


def test_many_slices_are_cut_short() -> None:
    kernel = np.random.default_rng(0).random((5, 5, 1, 1, 1, 1))
    assert len(kernel_slices(kernel)) == 25
    assert draw_kernel(kernel).height < (SLICES_DRAWN + 2) * (MAP_SIDE + 20)


def test_kernels_that_cannot_be_drawn() -> None:
    for shape in [(5, 5, 5), (4, 4, 4, 4), (3, 3, 5, 5), (3, 1, 5, 5, 5, 5)]:
        with pytest.raises(InputError, match="a kernel must have the axes"):
            draw_kernel(np.zeros(shape))
    with pytest.raises(InputError, match="must be finite"):
        draw_kernel(np.full((3, 3, 3, 3), np.nan))
    with pytest.raises(InputError, match="got none"):
        draw_kernels([])


def test_titles_say_what_is_drawn() -> None:
    first = HoughMatching(5, 3, "iso", out_channels=6)
    last = HoughMatching(5, None, "psi", in_channels=6)
    titled = titled_kernels("small", first, last)
    assert len(titled) == 2 * CHANNELS_DRAWN
    assert titled[0][0] == (
        "small, first vote: pairs of positions and scales (6D), 45 weights, shared by offset (iso), channel 1 of 6"
    )
    assert titled[0][1].shape == (3, 3, 5, 5, 5, 5)
    assert titled[-1][0].endswith("shared by offset and positions (psi), channel 4 of 6")


def test_layers_without_kernels_have_no_titles() -> None:
    assert len(titled_kernels("small", HoughMatching(5), nn.Identity())) == 1
    with pytest.raises(InputError, match="no Hough layers"):
        titled_kernels("small", nn.Identity(), nn.Identity())
