import numpy as np
import pytest
import torch
from PIL import Image
from scipy.interpolate import RBFInterpolator

from chmnet.errors import InputError
from chmnet.geometry import Size, grid_points
from chmnet.pictures import Picture, View
from chmnet.warping import ThinPlateSpline, dense_strips, draw_warped, smooth_positions, spline_positions


def linear_map(height: int, width: int) -> torch.Tensor:
    grid = grid_points((height, width), like=torch.zeros(1))
    return (0.7 * grid + torch.tensor([0.1, -0.2]))[None]


@pytest.mark.parametrize("grid", [(30, 30), (4, 7), (2, 3)], ids=str)
def test_linear_maps_are_read_exactly_up_to_the_edges(grid: Size) -> None:
    for _, read, centres in dense_strips(linear_map(*grid), (21, 34)):
        torch.testing.assert_close(read, 0.7 * centres + torch.tensor([0.1, -0.2]), rtol=0, atol=1e-5)


def test_a_grid_of_one_point_is_constant() -> None:
    ((_, read, _),) = dense_strips(torch.full((1, 1, 1, 1), 3.0), (2, 5))
    assert (read == 3).all()


@pytest.mark.parametrize("grid", [(30, 30), (4, 7), (1, 3), (1, 1)], ids=str)
def test_maps_of_turned_views_are_read_by_the_same_interpolation(grid: Size) -> None:
    """A hair beside a quarter turn, what is read point by point is what is read along rows and columns."""
    values, picture = torch.rand(1, *grid, 2), Picture(None, (50, 70))
    for turn, area in ((0, None), (90, (10, 5, 60, 40)), (180, None), (270, (0, 0, 30, 50))):
        ((_, exact, centres),) = dense_strips(values, (21, 34), View(picture, area, True, turn))
        ((_, near, same),) = dense_strips(values, (21, 34), View(picture, area, True, turn + 1e-7))
        torch.testing.assert_close(near, exact, rtol=0, atol=1e-3)
        torch.testing.assert_close(same, centres)


def test_strips_together_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.rand(1, 5, 6, 2)
    ((_, whole, _),) = dense_strips(values, (40, 30))
    monkeypatch.setattr("chmnet.warping._STRIP_PIXELS", 100)
    pieces = list(dense_strips(values, (40, 30)))
    assert len(pieces) == 14
    torch.testing.assert_close(torch.cat([read for _, read, _ in pieces]), whole, rtol=0, atol=1e-6)


def test_smoothing_keeps_linear_maps_and_mends_outliers() -> None:
    positions = linear_map(12, 15)
    torch.testing.assert_close(smooth_positions(positions, torch.ones(1, 12, 15)), positions, rtol=0, atol=1e-4)
    broken, doubtful = positions.clone(), torch.ones(1, 12, 15)
    broken[0, 5:8, 5:8] = 0.9  # wrong, and known to be
    doubtful[0, 5:8, 5:8] = 0
    broken[0, 2, 2] = -0.9  # wrong, and confident
    torch.testing.assert_close(smooth_positions(broken, doubtful), positions, rtol=0, atol=0.02)


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (2, 2)], ids=str)
def test_smoothing_small_grids(size: Size) -> None:
    assert smooth_positions(linear_map(*size), torch.ones(1, *size)).isfinite().all()


def random_spline(smoothing: float = 0.0) -> tuple[ThinPlateSpline, np.ndarray, np.ndarray]:
    points = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    values = points * (1.2, 0.9) + 0.2 * np.sin(3 * points[:, ::-1])
    return ThinPlateSpline.fit(points, values, smoothing), points, values


@pytest.mark.parametrize("smoothing", [0.0, 1.0, 100.0])
def test_spline_is_that_of_scipy(smoothing: float) -> None:
    spline, points, values = random_spline(smoothing)
    expected = RBFInterpolator(points, values, kernel="thin_plate_spline", degree=1, smoothing=smoothing)
    at = np.random.default_rng(1).uniform(-2, 2, (50, 2))
    np.testing.assert_allclose(spline(at), expected(at), rtol=0, atol=1e-9)
    assert (np.abs(spline(points) - values).max() < 1e-9) == (smoothing == 0)


def test_derivative_and_inverse_of_a_spline() -> None:
    spline, points, _ = random_spline()
    spline = spline.add_affine(np.array([[0.5, 0.1], [-0.1, 0.5]]), np.array([0.3, -0.2]))
    step = 1e-6
    for axis, slopes in enumerate(np.moveaxis(spline.derivative(points + 0.01), 2, 0)):
        ahead, behind = (spline(points + 0.01 + sign * step * np.eye(2)[axis]) for sign in (1, -1))
        np.testing.assert_allclose(slopes, (ahead - behind) / (2 * step), atol=1e-6)
    found, exact = spline.inverse(spline(points))
    assert exact.all()
    np.testing.assert_allclose(found, points, atol=1e-5)


def test_spline_goes_through_its_points_or_leaves_out_the_wrong_ones() -> None:
    generator = np.random.default_rng(0)
    target = generator.uniform(-1, 1, (60, 2))
    source = 0.8 * target + (0.05, -0.1)
    expected = 0.8 * grid_points((48, 48), like=torch.zeros(1)) + torch.tensor([0.05, -0.1])
    torch.testing.assert_close(spline_positions(source, target, exact=True)[0], expected, rtol=0, atol=1e-4)
    source[::10] += 0.7
    torch.testing.assert_close(spline_positions(source, target, exact=False)[0], expected, rtol=0, atol=0.02)


@pytest.mark.parametrize(
    "points", [np.zeros((0, 2)), np.eye(2), np.zeros((5, 2)), np.linspace(0, 1, 6)[:, None] * (1.0, 2.0)]
)
def test_spline_needs_three_points_off_one_line(points: np.ndarray) -> None:
    for exact in (True, False):
        with pytest.raises(InputError, match="at least three matches"):
            spline_positions(points, points, exact)


def test_the_identity_draws_the_same_picture() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    identity = grid_points((6, 9), like=torch.zeros(1))[None]
    drawn = np.asarray(draw_warped(Image.fromarray(pixels), identity, (20, 30)))
    assert np.abs(drawn.astype(int) - pixels).max() <= 1


def test_what_lies_outside_is_white_and_large_pictures_are_averaged() -> None:
    far = torch.full((1, 2, 2, 2), 1.5)
    assert draw_warped(Image.new("RGB", (9, 9)), far, (3, 4)).getpixel((1, 1)) == (255, 255, 255)
    stripes = np.zeros((400, 400, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    identity = grid_points((4, 4), like=torch.zeros(1))[None]
    drawn = np.asarray(draw_warped(Image.fromarray(stripes), identity, (20, 20)))
    assert np.abs(drawn.astype(int) - 127).max() <= 2


@pytest.mark.parametrize(("given", "wanted"), [(1001, 10), (1007, 101), (30, 7)])
def test_pictures_that_are_averaged_stay_in_place(given: int, wanted: int) -> None:
    ramp = np.linspace(0, 255, given).round().astype(np.uint8)
    picture = Image.fromarray(np.broadcast_to(ramp[None, :, None], (9, given, 3)).copy())
    identity = grid_points((4, 4), like=torch.zeros(1))[None]
    drawn = np.asarray(draw_warped(picture, identity, (9, wanted)))[4, :, 0]
    np.testing.assert_allclose(
        drawn, ((np.arange(wanted) + 0.5) / wanted * given - 0.5) / (given - 1) * 255, atol=2
    )
