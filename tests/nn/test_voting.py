import math
from itertools import product

import pytest
import torch
from torch import Tensor

from chmnet.errors import InputError
from chmnet.nn import NeighbourhoodConsensus, RegularisedHoughMatching
from chmnet.ops.correlation import exchange

Offset = tuple[int, ...]


def bell(steps: int, sigma: float) -> float:
    """The discretised Gaussian, cut off beyond three σ; with σ = 0 a Dirac delta."""
    if sigma == 0:
        return float(steps == 0)
    if abs(steps) > max(1, math.ceil(3 * sigma)):
        return 0.0
    return math.exp(-(steps**2) / (2 * sigma**2))


def vote_by_loops(correlation: Tensor, sigma: float, scale_sigma: float) -> Tensor:
    """Regularised Hough matching of one ``ss st hs ws ht wt`` correlation, match by match."""
    matches: dict[Offset, tuple[Offset, float]] = {}
    for match in product(*map(range, correlation.shape)):
        ss, st, hs, ws, ht, wt = match
        matches[match] = ((st - ss, ht - hs, wt - ws), correlation[match].item())
    votes: dict[Offset, float] = {}
    for candidate in {offset for offset, _ in matches.values()}:
        votes[candidate] = sum(
            score
            * bell(offset[0] - candidate[0], scale_sigma)
            * bell(offset[1] - candidate[1], sigma)
            * bell(offset[2] - candidate[2], sigma)
            for offset, score in matches.values()
        )
    largest = max(votes.values())
    output = torch.zeros_like(correlation)
    for match, (offset, score) in matches.items():
        output[match] = score * votes[offset] / largest
    return output


@pytest.mark.parametrize(
    ("sigma", "scale_sigma"), [(0.0, 0.0), (0.7, 0.0), (0.0, 0.5), (1.0, 0.5)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("sizes", [(2, 3, 2, 3), (3, 1, 2, 2)], ids=str)
def test_regularised_vote_against_loops(sigma: float, scale_sigma: float, sizes: Offset) -> None:
    correlation = torch.rand(2, 2, 2, 2, *sizes, dtype=torch.float64)
    weighted = RegularisedHoughMatching(sigma, scale_sigma)(correlation)
    for item, channel in product(range(2), range(2)):
        expected = vote_by_loops(correlation[item, channel], sigma, scale_sigma)
        torch.testing.assert_close(weighted[item, channel], expected)


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_regularised_vote_without_scales(sigma: float) -> None:
    correlation = torch.rand(1, 1, 3, 2, 2, 3, dtype=torch.float64)
    expected = vote_by_loops(correlation[0, :, None], sigma, scale_sigma=0.5)[0, 0]
    weighted = RegularisedHoughMatching(sigma)(correlation)
    assert weighted.shape == correlation.shape
    torch.testing.assert_close(weighted[0, 0], expected)


def test_regularised_vote_prefers_the_common_offset() -> None:
    correlation = torch.zeros(1, 1, 1, 3, 1, 3)
    for position in range(3):
        correlation[0, 0, 0, position, 0, position] = 1  # three matches that stay in place
    correlation[0, 0, 0, 0, 0, 2] = 1  # one that moves by two
    weighted = RegularisedHoughMatching(sigma=0.0)(correlation)
    expected = torch.tensor([[1.0, 0.0, 1 / 3], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]).view(1, 1, 1, 3, 1, 3)
    torch.testing.assert_close(weighted, expected)


@pytest.mark.parametrize("shape", [(1, 1, 4, 5, 3, 6), (2, 1, 3, 2, 4, 1, 2, 5)], ids=["4d", "6d"])
def test_regularised_vote_of_different_grids(shape: tuple[int, ...]) -> None:
    weighted = RegularisedHoughMatching()(torch.rand(shape))
    assert weighted.shape == shape
    assert weighted.isfinite().all()


@pytest.mark.parametrize("shape", [(1, 1, 2, 3, 2, 2), (1, 1, 3, 3, 2, 2, 2, 2)], ids=["4d", "6d"])
def test_regularised_vote_of_zeros(shape: tuple[int, ...]) -> None:
    assert torch.equal(RegularisedHoughMatching()(torch.zeros(shape)), torch.zeros(shape))


def test_regularised_vote_of_other_axes() -> None:
    with pytest.raises(
        InputError, match=r"correlation must have the axes b c hs ws ht wt or .*, got shape \[1, 1"
    ):
        RegularisedHoughMatching()(torch.rand(1, 1, 3, 3, 3, 3, 3))


def test_consensus_commutes_with_exchange() -> None:
    consensus = NeighbourhoodConsensus((2, 1), spatial=3).double()
    for bias in consensus.biases:
        torch.nn.init.constant_(bias, 0.1)  # some votes stay above zero
    correlation = torch.rand(2, 1, 3, 4, 2, 3, dtype=torch.float64)
    output = consensus(correlation)
    assert output.shape == correlation.shape
    assert (output > 0).any()
    torch.testing.assert_close(consensus(exchange(correlation)), exchange(output))
    # Control: one direction alone is not symmetric.
    one_way = consensus._filter(correlation)
    assert not torch.allclose(consensus._filter(exchange(correlation)), exchange(one_way))


@pytest.mark.parametrize(
    ("channels", "number"),
    [((16, 16, 1), (16 + 16 * 16 + 16) * 625 + 33), ((1, 1, 1), 3 * 626)],
    ids=str,
)
def test_number_of_consensus_parameters(channels: tuple[int, ...], number: int) -> None:
    assert sum(p.numel() for p in NeighbourhoodConsensus(channels).parameters()) == number


def test_gradient_reaches_all_of_the_consensus() -> None:
    consensus = NeighbourhoodConsensus((4, 4, 1), spatial=3)
    for bias in consensus.biases:
        torch.nn.init.constant_(bias, 0.5)  # no ReLU is dead
    correlation = torch.rand(1, 1, 3, 3, 3, 3, requires_grad=True)
    consensus(correlation).sum().backward()
    for tensor in (correlation, *consensus.parameters()):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().max() > 0
