"""Kept matches, a few rows at a time, against the correlation that is made whole."""

import pytest
import torch

from chmnet.ops.correlation import cosine_correlation, keep_top_matches, resize_correlation
from chmnet.ops.sparse import KeptMatches, release_memory


def features(*sizes: tuple[int, int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 16, *size, generator=generator) for size in sizes]


@pytest.mark.parametrize("rectify", [False, True])
@pytest.mark.parametrize("count", [1, 3, 1000])
@pytest.mark.parametrize(
    ("source_size", "target_size"),
    [((5, 6), (4, 7)), ((8, 6), (4, 9)), ((3, 2), (7, 7)), ((1, 1), (4, 4)), ((5, 9), (1, 1))],
    ids=str,
)
def test_rows_are_those_of_the_whole_correlation(
    source_size: tuple[int, int], target_size: tuple[int, int], count: int, rectify: bool
) -> None:
    source, target = features((5, 6), (4, 7))
    dense = cosine_correlation(source, target)
    dense = resize_correlation(
        keep_top_matches(dense.relu() if rectify else dense, count), source_size, target_size
    )
    kept = KeptMatches(source, target, count, rectify)
    for low in range(source_size[0]):
        for high in (low + 1, source_size[0]):
            torch.testing.assert_close(kept.rows(source_size, target_size, low, high), dense[:, :, low:high])


def test_few_matches_are_held() -> None:
    kept = KeptMatches(*features((20, 20), (20, 20)), 2)
    assert kept.value.numel() == 2 * 2 * 400 * 2  # items, sides, positions, matches


def test_memory_can_be_released() -> None:
    release_memory()
    assert torch.ones(3).sum() == 3
