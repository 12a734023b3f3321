import math
from itertools import product

import pytest
import torch
from torch import Tensor

from chmnet.errors import InputError
from chmnet.ops import cosine_correlation, keep_top_matches, mutual_nearest_neighbour_filter, resize_correlation
from chmnet.ops.correlation import exchange, normalise


def matches(rows: list[list[float]]) -> Tensor:
    """A correlation between positions on two lines: one row for each source position."""
    return torch.tensor(rows)[None, None, None, :, None, :]


def test_cosine_against_loops() -> None:
    source, target = torch.randn(2, 5, 2, 3), torch.randn(2, 5, 3, 2)
    correlation = cosine_correlation(source, target)
    assert correlation.shape == (2, 1, 2, 3, 3, 2)
    for b, i, j, k, m in product(range(2), range(2), range(3), range(3), range(2)):
        one, other = source[b, :, i, j].tolist(), target[b, :, k, m].tolist()
        dot = sum(x * y for x, y in zip(one, other, strict=True))
        expected = dot / math.hypot(*one) / math.hypot(*other)
        assert correlation[b, 0, i, j, k, m].item() == pytest.approx(expected, abs=1e-6)


def test_cosine_of_nothing_is_zero() -> None:
    source, target = torch.randn(1, 4, 2, 2), torch.randn(1, 4, 2, 2)
    source[0, :, 0, 1] = 0
    target[0, :, 1, 0] = 0
    correlation = cosine_correlation(source, target)
    expected = torch.ones(1, 1, 2, 2, 2, 2, dtype=torch.bool)
    expected[0, 0, 0, 1] = False
    expected[..., 1, 0] = False
    assert torch.equal(correlation != 0, expected)


def test_cosine_lies_between_minus_one_and_one() -> None:
    features = torch.randn(1, 3, 4, 4)
    correlation = cosine_correlation(features, torch.cat([features, -1e4 * features], dim=2))
    assert correlation.min() == pytest.approx(-1, abs=1e-6)
    assert correlation.max() == pytest.approx(1, abs=1e-6)


def test_normalise() -> None:
    features = torch.tensor([[3.0, 0.0], [4.0, 0.0]]).view(1, 2, 1, 2)
    expected = torch.tensor([[0.6, 0.0], [0.8, 0.0]]).view(1, 2, 1, 2)
    torch.testing.assert_close(normalise(features), expected)


def test_exchange() -> None:
    correlation = torch.randn(2, 3, 2, 3, 4, 5)
    exchanged = exchange(correlation)
    assert exchanged.shape == (2, 3, 4, 5, 2, 3)
    assert exchanged[1, 2, 3, 4, 0, 1] == correlation[1, 2, 0, 1, 3, 4]
    assert torch.equal(exchange(exchanged), correlation)


def interpolate_axis(values: Tensor, axis: int, size: int) -> Tensor:
    """Linear interpolation along one axis, first and last points kept."""
    old_size = values.shape[axis]
    slices = []
    for number in range(size):
        position = number * (old_size - 1) / (size - 1) if size > 1 else 0.0
        before = min(int(position), max(old_size - 2, 0))
        after = min(before + 1, old_size - 1)
        share = position - before
        slices.append((1 - share) * values.select(axis, before) + share * values.select(axis, after))
    return torch.stack(slices, dim=axis)


@pytest.mark.parametrize(
    ("source_size", "target_size"),
    [((6, 8), (5, 2)), ((2, 3), (4, 4)), ((3, 4), (7, 1)), ((1, 1), (2, 5)), ((5, 2), (2, 5))],
    ids=str,
)
def test_resize_is_linear_along_each_axis(source_size: tuple[int, int], target_size: tuple[int, int]) -> None:
    correlation = torch.randn(2, 3, 3, 4, 2, 5, dtype=torch.float64)
    expected = correlation
    for axis, size in enumerate((*source_size, *target_size), start=2):
        expected = interpolate_axis(expected, axis, size)
    torch.testing.assert_close(resize_correlation(correlation, source_size, target_size), expected)


def test_resize_of_single_positions_copies_them() -> None:
    correlation = torch.randn(1, 1, 1, 2, 3, 1)
    resized = resize_correlation(correlation, (3, 2), (3, 4))
    torch.testing.assert_close(resized, correlation.expand(1, 1, 3, 2, 3, 4))


def test_resize_to_the_same_size_is_the_identity() -> None:
    correlation = torch.randn(2, 1, 3, 4, 2, 5)
    assert torch.equal(resize_correlation(correlation, (3, 4), (2, 5)), correlation)


def test_resize_of_strided_input() -> None:
    correlation = torch.randn(2, 1, 2, 5, 3, 4)
    resized = resize_correlation(exchange(correlation), (6, 7), (3, 4))
    torch.testing.assert_close(resized, exchange(resize_correlation(correlation, (3, 4), (6, 7))))


def test_resize_of_an_empty_batch() -> None:
    correlation = torch.randn(0, 1, 2, 2, 2, 2)
    assert resize_correlation(correlation, (4, 4), (3, 3)).shape == (0, 1, 4, 4, 3, 3)


def test_mutual_filter_by_hand() -> None:
    scores = matches([[2.0, 1.0], [1.0, 4.0], [0.0, 2.0]])
    # The best of the rows are 2, 4, 2 and of the columns 2, 4: score · score/row · score/column.
    expected = matches([[2.0, 1 / 8], [1 / 8, 4.0], [0.0, 1.0]])
    torch.testing.assert_close(mutual_nearest_neighbour_filter(scores), expected)


def test_mutual_filter_treats_items_and_channels_alone() -> None:
    scores = torch.rand(2, 2, 2, 3, 3, 2)
    filtered = mutual_nearest_neighbour_filter(scores)
    torch.testing.assert_close(filtered[1:, 1:], mutual_nearest_neighbour_filter(scores[1:, 1:]))


def test_mutual_filter_commutes_with_exchange() -> None:
    scores = torch.rand(1, 1, 2, 3, 4, 2)
    exchanged = mutual_nearest_neighbour_filter(exchange(scores))
    torch.testing.assert_close(exchange(exchanged), mutual_nearest_neighbour_filter(scores))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("part", ["everything", "a source position", "a target position"])
def test_mutual_filter_of_zeros(part: str, dtype: torch.dtype) -> None:
    scores = torch.rand(1, 1, 2, 2, 2, 2, dtype=dtype) + 0.1
    zeroed = {
        "everything": scores,
        "a source position": scores[:, :, 0, 1],
        "a target position": scores[..., 1, 0],
    }
    zeroed[part].zero_()
    scores.requires_grad_()
    filtered = mutual_nearest_neighbour_filter(scores)
    filtered.sum().backward()
    assert torch.equal(filtered == 0, scores == 0)
    assert filtered.isfinite().all()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_keep_top_matches_by_hand() -> None:
    scores = matches([[0.9, 0.5, 0.4], [0.8, 0.1, 0.2], [0.7, 0.6, 0.3]])
    # The best of each row is in the first column; the best of the columns are in rows one, three and one.
    expected = matches([[0.9, 0.0, 0.4], [0.8, 0.0, 0.0], [0.7, 0.6, 0.0]])
    assert torch.equal(keep_top_matches(scores, 1), expected)


def test_keep_top_matches_commutes_with_exchange() -> None:
    scores = torch.rand(2, 1, 2, 3, 3, 4)
    kept = keep_top_matches(scores, 3)
    assert torch.equal(keep_top_matches(exchange(scores), 3), exchange(kept))
    assert (kept == 0).any()


def test_keep_more_matches_than_there_are() -> None:
    scores = torch.rand(1, 1, 2, 3, 2, 2)
    assert torch.equal(keep_top_matches(scores, 100), scores)
    # Five are more than the four target positions: every match is among the best of its source position.
    assert torch.equal(keep_top_matches(scores, 5), scores)


def test_keep_no_matches() -> None:
    with pytest.raises(InputError, match=r"at least 1.* 0\b"):
        keep_top_matches(torch.rand(1, 1, 2, 2, 2, 2), 0)
