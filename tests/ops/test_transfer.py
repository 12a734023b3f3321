import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from chmnet.config import TransferConfig
from chmnet.geometry import grid_points
from chmnet.ops.correlation import exchange
from chmnet.ops.transfer import (
    cycle_consistency,
    locate,
    match_probabilities,
    match_scores,
    sample_grid,
    soft_argmax,
    transfer_keypoints,
)

Size = tuple[int, int]
HALVES = [torch.float16, torch.bfloat16]


def identity(height: int, width: int, strength: float = 1000.0) -> Tensor:
    """A correlation of every position with itself, so strong that nothing else counts."""
    return strength * torch.eye(height * width).view(1, 1, height, width, height, width)


def coordinate(number: int, length: int) -> float:
    return 2 * number / (length - 1) - 1 if length > 1 else 0.0


def soft_argmax_by_loops(scores: Tensor, config: TransferConfig) -> tuple[float, float]:
    """Expected (x, y) of one source position from its scores ``ht wt``."""
    height, width = scores.shape
    cells = list(product(range(height), range(width)))
    best_row, best_column = max(cells, key=lambda cell: scores[cell].item())
    sigma_y = sigma_x = config.gaussian_sigma
    if config.scale_with_grid:
        sigma_y, sigma_x = sigma_y * height / 30, sigma_x * width / 30
    weights = []
    for row, column in cells:
        score = scores[row, column].item()
        if config.gaussian_sigma > 0:
            away = ((row - best_row) / sigma_y) ** 2 + ((column - best_column) / sigma_x) ** 2
            score *= math.exp(-away / 2)
        weights.append(math.exp(score / config.temperature))
    x = sum(w * coordinate(column, width) for w, (_, column) in zip(weights, cells, strict=True))
    y = sum(w * coordinate(row, height) for w, (row, _) in zip(weights, cells, strict=True))
    return x / sum(weights), y / sum(weights)


@pytest.mark.parametrize("gaussian_sigma", [0.0, 2.0, 17.0])
@pytest.mark.parametrize("scale_with_grid", [True, False], ids=["scaled", "fixed"])
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_soft_argmax_against_loops(gaussian_sigma: float, scale_with_grid: bool, temperature: float) -> None:
    config = TransferConfig(
        gaussian_sigma=gaussian_sigma, scale_with_grid=scale_with_grid, temperature=temperature
    )
    correlation = 3 * torch.randn(2, 1, 2, 3, 4, 5, dtype=torch.float64)
    positions = soft_argmax(correlation, config)
    assert positions.shape == (2, 2, 3, 2)
    for item, row, column in product(range(2), range(2), range(3)):
        expected = soft_argmax_by_loops(correlation[item, 0, row, column], config)
        assert positions[item, row, column].tolist() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (3, 1)], ids=str)
def test_soft_argmax_on_one_row_or_column(size: Size) -> None:
    positions = soft_argmax(identity(*size))
    torch.testing.assert_close(positions[0], grid_points(size, like=positions))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_soft_argmax_in_half_precision(dtype: torch.dtype) -> None:
    correlation = torch.rand(1, 1, 4, 4, 5, 6).to(dtype)
    positions = soft_argmax(correlation)
    assert positions.dtype == dtype
    torch.testing.assert_close(positions.float(), soft_argmax(correlation.float()), rtol=0, atol=0.01)


def sample_by_loops(values: Tensor, keypoint: tuple[float, float], config: TransferConfig) -> list[float]:
    """The soft sampler on one map ``h w k`` for a keypoint that is near some grid point."""
    height, width, _ = values.shape
    total, read = 0.0, torch.zeros_like(values[0, 0])
    for row, column in product(range(height), range(width)):
        dx, dy = keypoint[0] - coordinate(column, width), keypoint[1] - coordinate(row, height)
        if config.scale_with_grid:
            dx, dy = dx * (width - 1) / 29, dy * (height - 1) / 29
        weight = max(0.0, config.sampler_threshold - math.sqrt(dx**2 + dy**2 + 1e-5))
        total += weight
        read += weight * values[row, column]
    return (read / total).tolist()


@pytest.mark.parametrize("scale_with_grid", [True, False], ids=["scaled", "fixed"])
@pytest.mark.parametrize("threshold", [0.1, 0.7])
def test_soft_sampler_against_loops(scale_with_grid: bool, threshold: float) -> None:
    config = TransferConfig(scale_with_grid=scale_with_grid, sampler_threshold=threshold)
    values = torch.randn(1, 5, 30, 3, dtype=torch.float64)
    keypoints = [(0.02, 0.03), (-0.98, 0.96), (0.43, -0.51)]
    read = sample_grid(values, torch.tensor([keypoints], dtype=torch.float64), config)
    for number, keypoint in enumerate(keypoints):
        assert read[0, number].tolist() == pytest.approx(sample_by_loops(values[0], keypoint, config), abs=1e-9)


def test_soft_sampler_by_hand() -> None:
    """Grid points at −1, −0.5 … 1; the two within 0.6 of 0.1 have weights 0.5 and 0.2."""
    config = TransferConfig(sampler_threshold=0.6, scale_with_grid=False)
    values = torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0]).view(1, 1, 5, 1)
    read = sample_grid(values, torch.tensor([[[0.1, 0.0]]]), config)
    assert read.item() == pytest.approx((0.5 * 30 + 0.2 * 40) / 0.7, abs=1e-3)


@pytest.mark.parametrize("scale_with_grid", [True, False], ids=["scaled", "fixed"])
@pytest.mark.parametrize("sampler", ["soft", "nearest"])
@pytest.mark.parametrize("size", [(4, 7), (1, 5), (1, 1)], ids=str)
def test_samplers_are_exact_on_grid_points(size: Size, sampler: str, scale_with_grid: bool) -> None:
    """With τ below the distance of grid points (2/29 on the paper's grid) only one is in reach."""
    config = TransferConfig(sampler=sampler, sampler_threshold=0.06, scale_with_grid=scale_with_grid)
    values = torch.randn(2, *size, 3)
    keypoints = grid_points(size, like=values).flatten(0, 1).expand(2, -1, -1)
    torch.testing.assert_close(sample_grid(values, keypoints, config), values.flatten(1, 2))


@pytest.mark.parametrize("size", [(30, 30), (15, 20), (60, 41)], ids=str)
def test_soft_sampler_reads_straight_maps_exactly_inside(size: Size) -> None:
    """Neighbours on opposite sides balance, on any grid: τ reaches to the next grid points."""
    values = grid_points(size, like=torch.zeros(1, dtype=torch.float64))
    inside = values[2:-2, 2:-2].flatten(0, 1)
    torch.testing.assert_close(sample_grid(values[None], inside[None])[0], inside)
    border = values[:1, 2]  # no neighbours above: drawn inside
    assert sample_grid(values[None], border[None])[0, 0, 1] > -1 + 0.1 / size[0]


def test_nearest_sampler_by_hand() -> None:
    config = TransferConfig(sampler="nearest")
    values = torch.arange(6.0).view(1, 2, 3, 1)  # columns at −1, 0, 1; rows at −1, 1
    keypoints = torch.tensor([[[-0.6, -0.1], [0.4, 0.1], [0.6, -1.0], [0.1, 3.0]]])
    assert sample_grid(values, keypoints, config).flatten().tolist() == [0.0, 4.0, 2.0, 4.0]


OUTSIDE = {
    (1.5, 0.0): (1.0, 0.0),
    (0.0, -7.0): (0.0, -1.0),
    (-3.0, 4.0): (-1.0, 1.0),
    (1e30, 1e30): (1.0, 1.0),
    (-1e30, 0.5): (-1.0, 0.5),
    (math.inf, -math.inf): (1.0, -1.0),
    (-math.inf, math.inf): (-1.0, 1.0),
    (math.nan, math.nan): (0.0, 0.0),
    (math.nan, math.inf): (0.0, 1.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
@pytest.mark.parametrize("sampler", ["soft", "nearest"])
@pytest.mark.parametrize("size", [(9, 5), (41, 61)], ids=str)
def test_points_outside_go_to_the_nearest_border_point(size: Size, sampler: str, dtype: torch.dtype) -> None:
    config = TransferConfig(sampler=sampler)
    values = grid_points(size, like=torch.zeros(1, dtype=torch.float64))[None].to(dtype)
    keypoints = torch.tensor([list(OUTSIDE)], dtype=torch.float64)
    expected = torch.tensor([list(OUTSIDE.values())], dtype=dtype)
    torch.testing.assert_close(sample_grid(values, keypoints, config), expected)


def test_far_points_keep_their_other_coordinate() -> None:
    """However far to the right, a point reads the row it is nearest to."""
    values = grid_points((60, 60), like=torch.zeros(1))[None]
    rows = values[0, :, 0, 1]
    y = rows - 0.4 * (rows[1] - rows[0])
    keypoints = torch.stack([torch.full_like(y, 1e30), y], dim=-1)[None]
    torch.testing.assert_close(sample_grid(values, keypoints)[0, :, 1], rows)


@pytest.mark.parametrize("sampler", ["soft", "nearest"])
@pytest.mark.parametrize("scale_with_grid", [True, False], ids=["scaled", "fixed"])
def test_grid_of_one_point(sampler: str, scale_with_grid: bool) -> None:
    config = TransferConfig(sampler=sampler, scale_with_grid=scale_with_grid)
    values = torch.tensor([3.0, -4.0]).view(1, 1, 1, 2)
    keypoints = torch.tensor([[[0.0, 0.0], [0.7, -0.9], [5.0, 1e30], [math.nan, -math.inf]]])
    torch.testing.assert_close(sample_grid(values, keypoints, config), values[0].expand(1, 4, 2))


def test_fixed_threshold_between_coarse_grid_points() -> None:
    """Nothing lies within 0.1: the nearest point counts."""
    config = TransferConfig(scale_with_grid=False)
    values = torch.tensor([1.0, 2.0, 3.0]).view(1, 1, 3, 1)
    read = sample_grid(values, torch.tensor([[[0.6, 0.0], [-0.4, 0.0]]]), config)
    assert read.flatten().tolist() == [3.0, 2.0]


def test_gradient_of_the_sampler_is_finite() -> None:
    values = torch.randn(1, 4, 4, 2, requires_grad=True)
    keypoints = torch.tensor([list(OUTSIDE)], requires_grad=True)
    sample_grid(values, keypoints).sum().backward()
    assert values.grad.abs().max() > 0
    assert values.grad.isfinite().all()
    assert keypoints.grad.isfinite().all()


def test_transfer_follows_the_matches() -> None:
    """Every source position matches the target position one column further right."""
    correlation = identity(6, 6).roll(1, dims=-1)
    step = 2 / 5
    keypoints = grid_points((6, 6), like=correlation)[:, :4].flatten(0, 1)
    config = TransferConfig(sampler_threshold=0.06)
    moved = transfer_keypoints(correlation, keypoints[None], config)
    torch.testing.assert_close(moved[0], keypoints + torch.tensor([step, 0.0]))


def consistency(correlation: Tensor, config: TransferConfig = TransferConfig()) -> Tensor:
    return cycle_consistency(soft_argmax(correlation, config), soft_argmax(exchange(correlation), config))


@pytest.mark.parametrize("config", [TransferConfig(), TransferConfig(gaussian_sigma=0.0, temperature=0.1)])
def test_one_pass_finds_positions_and_entropy(config: TransferConfig) -> None:
    correlation = 5 * torch.randn(2, 1, 4, 5, 6, 3, dtype=torch.float64)
    found = locate(correlation, config)
    torch.testing.assert_close(found.positions, soft_argmax(correlation, config))
    entropy = torch.special.entr(match_probabilities(correlation[:, 0], config)).sum((-1, -2)) / math.log(18)
    torch.testing.assert_close(found.entropy, entropy)


@pytest.mark.parametrize("size", [(5, 7), (1, 4), (1, 1)], ids=str)
def test_identity_is_trusted(size: Size) -> None:
    confidence = consistency(identity(*size))
    torch.testing.assert_close(confidence, torch.ones(1, *size))


def test_matches_without_a_preference_are_not_trusted() -> None:
    """All positions go near the centre: only those there come back."""
    confidence = consistency(torch.ones(1, 1, 12, 12, 12, 12))
    assert confidence[0, 5:7, 5:7].min() > 0.3
    for border in (confidence[:, 0], confidence[:, -1], confidence[:, :, 0], confidence[:, :, -1]):
        assert border.max() < 0.01


def test_confidence_falls_with_the_distance_in_cells() -> None:
    """Two source positions claim one target position, which answers the first: the second misses by one cell."""
    correlation = identity(1, 4)
    correlation[0, 0, 0, 3] = 0
    correlation[0, 0, 0, 3, 0, 2] = 999
    confidence = consistency(correlation)
    expected = torch.tensor([[[1.0, 1.0, 1.0, math.exp(-1 / (2 * 1.5**2))]]])
    torch.testing.assert_close(confidence, expected)


@pytest.mark.parametrize("config", [TransferConfig(), TransferConfig(gaussian_sigma=0.0, temperature=0.1)])
def test_confidence_on_a_line(config: TransferConfig) -> None:
    correlation = torch.randn(1, 1, 1, 5, 1, 7, dtype=torch.float64)
    there = soft_argmax(correlation, config)[0, 0, :, 0]
    back = soft_argmax(exchange(correlation), config)[0, 0, :, 0]
    returned = np.interp(there, np.linspace(-1, 1, 7), back)
    miss = torch.from_numpy(returned - np.linspace(-1, 1, 5)) * 2  # four cells from −1 to 1
    expected = torch.exp(-miss.square() / (2 * 1.5**2))
    torch.testing.assert_close(consistency(correlation, config)[0, 0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_confidence_lies_between_zero_and_one(dtype: torch.dtype) -> None:
    correlation = (20 * torch.randn(2, 1, 4, 5, 6, 3)).to(dtype)
    confidence = consistency(correlation)
    assert confidence.shape == (2, 4, 5)
    assert confidence.dtype == dtype
    assert (confidence >= 0).all()
    assert (confidence <= 1).all()
    assert confidence.max() > 2 * confidence.min()
    torch.testing.assert_close(confidence.float(), consistency(correlation.float()), rtol=0, atol=0.05)


@pytest.mark.parametrize("scale", [1e30, 1e35])
@pytest.mark.parametrize("changes", [{"temperature": 1e-6}, {"gaussian_sigma": 1e-3}, {"gaussian_sigma": 0.0}])
def test_extreme_scores_and_settings_are_never_nan(scale: float, changes: dict[str, float]) -> None:
    correlation = torch.randn(1, 1, 3, 4, 4, 3) * scale
    config = TransferConfig(**changes)
    assert soft_argmax(correlation, config).isfinite().all()
    assert consistency(correlation, config).isfinite().all()


def test_match_scores_read_the_nearest_pair_of_positions() -> None:
    correlation = torch.arange(2 * 3 * 3 * 2).float().view(1, 1, 2, 3, 3, 2)
    source = torch.tensor([[[-1.0, -1.0], [1.0, 1.0], [0.1, -0.9], [9.0, 9.0]]])
    target = torch.tensor([[[-1.0, -1.0], [1.0, 1.0], [-0.8, 0.1], [9.0, 9.0]]])
    cells = [(0, 0, 0, 0), (1, 2, 2, 1), (0, 1, 1, 0), (1, 2, 2, 1)]
    expected = torch.stack([correlation[0, 0][cell] for cell in cells])
    torch.testing.assert_close(match_scores(correlation, source, target), expected[None])
