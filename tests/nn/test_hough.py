from collections.abc import Callable

import pytest
import torch
from einops import rearrange
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chmnet.errors import InputError
from chmnet.nn import HoughMatching, tap_groups
from chmnet.ops import conv_nd

few_examples = settings(max_examples=10, deadline=None)
seeds = st.integers(0, 2**16)
both_dimensions = pytest.mark.parametrize("scale", [None, 3], ids=["4d", "6d"])

Transformation = Callable[[Tensor], Tensor]


def exchange(correlation: Tensor) -> Tensor:
    """Source and target exchanged, their scales too."""
    if correlation.dim() == 6:
        return rearrange(correlation, "b c hs ws ht wt -> b c ht wt hs ws")
    return rearrange(correlation, "b c ss st hs ws ht wt -> b c st ss ht wt hs ws")


def turn_source(correlation: Tensor) -> Tensor:
    return torch.rot90(correlation, dims=(-4, -3))


def turn_both(correlation: Tensor) -> Tensor:
    return torch.rot90(turn_source(correlation), dims=(-2, -1))


def flip_both(correlation: Tensor) -> Tensor:
    return correlation.flip(-3, -1)


def random_layer(
    sharing: str, scale: int | None, spatial: int = 3, seed: int = 0, channels: int = 1
) -> HoughMatching:
    """A layer in float64 whose weights are of both signs and about equally large."""
    layer = HoughMatching(spatial, scale, sharing, in_channels=channels, out_channels=channels).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layer


def random_correlation(scale: int | None, seed: int, *sizes: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scales = () if scale is None else (scale, scale)
    return torch.rand(1, 1, *scales, *sizes, dtype=torch.float64, generator=generator)


def violation(layer: HoughMatching, transformation: Transformation, correlation: Tensor) -> float:
    """How far voting and transforming are from being exchangeable, relative to the largest vote."""
    with torch.no_grad():
        votes = transformation(layer(correlation))
        return ((layer(transformation(correlation)) - votes).abs().max() / votes.abs().max()).item()


@pytest.mark.parametrize(
    ("sharing", "scale", "weights"),
    [
        ("psi", None, 55),
        ("psi", 3, 220),
        ("iso", None, 15),
        ("iso", 3, 45),
        ("full", None, 625),
        ("full", 3, 5625),
    ],
)
def test_number_of_parameters(sharing: str, scale: int | None, weights: int) -> None:
    def count(bias: bool) -> int:
        return sum(p.numel() for p in HoughMatching(5, scale, sharing, bias=bias).parameters())

    assert count(bias=True) == weights + 1
    assert count(bias=False) == weights


def test_number_of_parameters_with_channels() -> None:
    layer = HoughMatching(5, None, "psi", in_channels=2, out_channels=3)
    assert sum(p.numel() for p in layer.parameters()) == 2 * 3 * 55 + 3


@both_dimensions
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
def test_taps_of_a_group_share_a_weight(sharing: str, scale: int | None) -> None:
    layer = random_layer(sharing, scale, channels=2)
    groups = tap_groups(3, scale, sharing)
    kernel = layer.kernel()
    assert kernel.shape == (2, 2, *groups.index.shape)
    for group in range(groups.number):
        taps = kernel[:, :, groups.index == group]
        expected = layer.weight[:, :, group, None] / taps.shape[-1]
        torch.testing.assert_close(taps, expected.expand_as(taps), rtol=0, atol=0)


@both_dimensions
def test_output_is_the_convolution_with_the_kernel(scale: int | None) -> None:
    layer = random_layer("psi", scale, channels=2)
    correlation = random_correlation(scale, 1, 4, 3, 2, 5).expand(2, 2, *[-1] * (4 if scale is None else 6))
    expected = conv_nd(correlation, layer.kernel(), layer.bias, backend="reference")
    torch.testing.assert_close(layer(correlation), expected)


@both_dimensions
def test_without_bias(scale: int | None) -> None:
    layer = HoughMatching(3, scale, bias=False).double()
    correlation = random_correlation(scale, 1, 3, 3, 3, 3)
    assert layer(torch.zeros_like(correlation)).abs().max() == 0
    torch.testing.assert_close(layer(correlation), conv_nd(correlation, layer.kernel(), backend="reference"))


def test_bias_is_added_to_each_channel() -> None:
    layer = HoughMatching(3, out_channels=2)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([1.0, -2.0]))
    output = layer(torch.zeros(1, 1, 2, 2, 2, 2))
    assert output.amin((0, 2, 3, 4, 5)).tolist() == [1.0, -2.0]
    assert output.amax((0, 2, 3, 4, 5)).tolist() == [1.0, -2.0]


@both_dimensions
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
def test_gradient_of_a_weight_is_the_mean_over_its_taps(sharing: str, scale: int | None) -> None:
    layer = random_layer(sharing, scale)
    kernel = layer.kernel().detach().requires_grad_()
    correlation = random_correlation(scale, 1, 3, 3, 3, 3)
    conv_nd(correlation, kernel, layer.bias).square().sum().backward()
    layer.bias.grad = None
    layer(correlation).square().sum().backward()
    index = tap_groups(3, scale, sharing).index
    expected = torch.stack([kernel.grad[0, 0][index == group].mean() for group in range(layer.weight.numel())])
    assert (layer.weight.grad != 0).all()
    assert layer.bias.grad != 0
    torch.testing.assert_close(layer.weight.grad[0, 0], expected)


@both_dimensions
@pytest.mark.parametrize("scaled", [True, False])
def test_reset_parameters(scaled: bool, scale: int | None) -> None:
    layer = HoughMatching(5, scale, out_channels=16)
    with torch.no_grad():
        layer.bias.fill_(3)
    layer.reset_parameters(scaled=scaled, generator=torch.Generator().manual_seed(5))
    noise = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(5))
    expected = noise.abs() * 1e-3 * (tap_groups(5, scale).count if scaled else 1)
    torch.testing.assert_close(layer.weight.detach(), expected)
    assert layer.bias.abs().max() == 0


def test_scaled_parameters_make_taps_of_one_size() -> None:
    """The mean of |normal| is √(2/π), whatever the size of the group."""
    layer = HoughMatching(5, None, "psi", out_channels=64)
    layer.reset_parameters(scaled=True)
    means = layer.kernel().mean((0, 1))
    torch.testing.assert_close(means, torch.full_like(means, 0.798e-3), rtol=0.4, atol=0)
    layer.reset_parameters(scaled=False)
    means = layer.kernel().mean((0, 1))
    assert means.max() > 5 * means.min()


@both_dimensions
def test_correlation_with_other_axes(scale: int | None) -> None:
    layer = HoughMatching(3, scale)
    wrong = torch.rand(1, 1, 3, 3, 3) if scale is None else torch.rand(1, 1, 3, 3, 3, 3)
    axes = "b c hs ws ht wt" if scale is None else "b c ss st hs ws ht wt"
    with pytest.raises(
        InputError, match=f"correlation must have the axes {axes}, got {wrong.dim()} axes of shape"
    ):
        layer(wrong)


def test_correlation_with_other_channels() -> None:
    with pytest.raises(InputError, match="weight takes 2 input channels but x has 1"):
        HoughMatching(3, in_channels=2)(torch.rand(1, 1, 3, 3, 3, 3))


@pytest.mark.parametrize("name", ["in_channels", "out_channels"])
def test_no_channels(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must be at least 1, got 0"):
        HoughMatching(3, **{name: 0})


def test_description() -> None:
    expected = "spatial=5, scale=3, sharing='iso', taps='dense', in_channels=1, out_channels=1, weights=45"
    assert expected in repr(HoughMatching(5, 3, "iso"))


@both_dimensions
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
@few_examples
@given(shift=st.tuples(*[st.integers(0, 1)] * 4).filter(any), seed=seeds)
def test_votes_move_with_the_matches(
    sharing: str, scale: int | None, shift: tuple[int, int, int, int], seed: int
) -> None:
    """A correlation cut out of a larger one gets the votes of the larger one, but for its border."""
    layer = random_layer(sharing, scale, seed=seed)
    large = random_correlation(scale, seed, 5, 5, 5, 5)
    window = (..., *[slice(start, start + 4) for start in shift])
    inside = (..., *[slice(1, -1)] * 4)
    votes, large_votes = layer(large[window]), layer(large)
    torch.testing.assert_close(votes[inside], large_votes[window][inside])
    # Controls: at the border the zeros outside count, and votes do not stay behind.
    assert not torch.allclose(votes, large_votes[window])
    assert not torch.allclose(votes[inside], large_votes[..., :4, :4, :4, :4][inside])


@both_dimensions
@pytest.mark.parametrize(
    "transformation", [exchange, turn_both, flip_both], ids=lambda function: function.__name__
)
@few_examples
@given(seed=seeds, sizes=st.tuples(*[st.integers(2, 4)] * 4))
def test_shared_kernels_keep_symmetries_and_a_full_one_does_not(
    scale: int | None, transformation: Transformation, seed: int, sizes: tuple[int, int, int, int]
) -> None:
    correlation = random_correlation(scale, seed, *sizes)
    assert violation(random_layer("psi", scale, seed=seed), transformation, correlation) < 1e-10
    assert violation(random_layer("iso", scale, seed=seed), transformation, correlation) < 1e-10
    assert violation(random_layer("full", scale, seed=seed), transformation, correlation) > 1e-3


@both_dimensions
@few_examples
@given(seed=seeds)
def test_turning_the_source_alone_changes_the_votes(scale: int | None, seed: int) -> None:
    correlation = random_correlation(scale, seed, 3, 3, 3, 3)
    layer = random_layer("psi", scale, seed=seed)
    assert violation(layer, turn_source, correlation) > 1e-3


def test_window_of_the_paper_keeps_symmetries() -> None:
    correlation = random_correlation(3, 0, 3, 4, 2, 3)
    layer = random_layer("psi", 3, spatial=5)
    for transformation in (exchange, turn_both, flip_both):
        assert violation(layer, transformation, correlation) < 1e-10


# ---------------------------------------------------------------- beyond the first and the last scale


def beyond(correlation: Tensor, margin: int) -> Tensor:
    """The correlation with its first and last scales repeated on both sides."""
    places = torch.arange(-margin, correlation.shape[2] + margin).clamp(0, correlation.shape[2] - 1)
    return correlation.index_select(2, places).index_select(3, places)


@pytest.mark.parametrize("taps", ["dense", "center-pivot", "center-pivot-joint"])
@pytest.mark.parametrize("window", [3, 5])
def test_scales_beyond_the_last_are_replicated(taps: str, window: int) -> None:
    layer = HoughMatching(3, window, taps=taps, out_channels=2, scale_borders="replicate").double()
    torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    torch.nn.init.constant_(layer.bias, 0.3)
    correlation = random_correlation(3, 1, 4, 3, 4, 5).requires_grad_()
    margin = window // 2
    expected = conv_nd(beyond(correlation, margin), layer.kernel(), layer.bias, backend="reference")
    inner = slice(margin, -margin)
    torch.testing.assert_close(layer(correlation), expected[:, :, inner, inner])
    torch.testing.assert_close(
        torch.autograd.grad(layer(correlation).square().sum(), correlation),
        torch.autograd.grad(expected[:, :, inner, inner].square().sum(), correlation),
    )


@pytest.mark.parametrize("scale", [3, 5])
def test_votes_are_divided_by_the_share_of_scale_pairs_that_there_are(scale: int) -> None:
    """Of 9 pairs a corner of 3 scales has 4, an edge 6; of 25 in a window of 5 over 3 scales all have 9."""
    plain, present = (random_layer("psi", scale, seed=1) for _ in range(2))
    present.scale_borders = "present"
    correlation = random_correlation(3, 1, 4, 4, 4, 4)
    there = [2, 3, 2] if scale == 3 else [3, 3, 3]
    shares = torch.tensor([[a * b / scale**2 for b in there] for a in there], dtype=torch.float64)
    votes = (plain(correlation) - plain.bias) / shares.view(1, 1, 3, 3, 1, 1, 1, 1) + plain.bias
    torch.testing.assert_close(present(correlation), votes)


def test_only_without_scales_beyond_the_last_the_middle_hears_most() -> None:
    """All matches alike and all votes in favour: the middle pair wins by construction, or none does."""
    found = {}
    for borders in ("zero", "present", "replicate"):
        layer = HoughMatching(3, 3, "iso", scale_borders=borders).double()
        torch.nn.init.ones_(layer.weight)
        with torch.no_grad():
            layer.weight.mul_(layer.count)
        votes = layer(torch.ones(1, 1, 3, 3, 3, 3, 3, 3, dtype=torch.float64))[0, 0, :, :, 1, 1, 1, 1]
        found[borders] = (votes / votes.max() * 9).detach().round().int().tolist()
    assert found["zero"] == [[4, 6, 4], [6, 9, 6], [4, 6, 4]]
    assert found["present"] == found["replicate"] == [[9] * 3] * 3


def test_scale_borders_of_another_name_are_refused() -> None:
    with pytest.raises(InputError, match="zero, present, replicate"):
        HoughMatching(3, 3, scale_borders="wrap")


def test_without_scales_there_are_no_borders() -> None:
    plain, present = random_layer("psi", None), random_layer("psi", None)
    present.scale_borders = "present"
    correlation = random_correlation(None, 0, 3, 3, 3, 3)
    assert torch.equal(plain(correlation), present(correlation))
