"""Center-pivot kernels: two parts, the same numbers as the dense kernel with zeros, in every back-end."""

import math
from itertools import product

import pytest
import torch

from chmnet.errors import InputError
from chmnet.nn.hough import HoughMatching
from chmnet.nn.taps import tap_groups
from chmnet.ops import available_backends, conv_nd
from chmnet.ops.pivot import conv_pivot, split_pivot

KINDS = [
    ("center-pivot", None, (4, 5, 3, 6)),
    ("center-pivot", 3, (3, 2, 4, 5, 3, 6)),
    ("center-pivot-joint", 3, (3, 2, 4, 5, 3, 6)),
    ("center-pivot-joint", None, (4, 5, 3, 6)),
]


@pytest.mark.parametrize(
    ("taps", "scale", "existing", "weights"),
    [
        ("center-pivot", None, 49, 6),
        ("center-pivot-joint", None, 49, 6),
        ("center-pivot", 3, 441, 24),
        ("center-pivot-joint", 3, 149, 12),
    ],
)
def test_number_of_taps_and_psi_weights(taps: str, scale: int | None, existing: int, weights: int) -> None:
    groups = tap_groups(5, scale, "psi", taps)
    assert int((groups.index >= 0).sum()) == existing == int(groups.count.sum())
    assert groups.number == weights


@pytest.mark.parametrize(("taps", "scale", "size"), KINDS)
def test_taps_have_their_source_or_target_in_the_centre(
    taps: str, scale: int | None, size: tuple[int, ...]
) -> None:
    there = tap_groups(5, scale, "psi", taps).index >= 0
    window = [k // 2 for k in there.shape]
    for tap, found in zip(product(*map(range, there.shape)), there.flatten().tolist(), strict=True):
        offset = [place - middle for place, middle in zip(tap, window, strict=True)]
        source, target = offset[-4:-2], offset[-2:]
        if taps.endswith("joint") and scale is not None:
            source, target = [offset[0], *source], [offset[1], *target]
        assert found == (not any(source) or not any(target))


def test_psi_groups_are_the_distances_from_the_centre() -> None:
    groups = tap_groups(5, None, "psi", "center-pivot")
    distances = sorted({round(math.hypot(y, x), 4) for y in range(-2, 3) for x in range(-2, 3)})
    assert sorted(round(value, 4) for value in groups.offset.tolist()) == distances
    torch.testing.assert_close(groups.far_distance, groups.offset)
    assert not groups.near_distance.any()


@pytest.mark.parametrize("backend", sorted(available_backends()))
@pytest.mark.parametrize(("taps", "scale", "size"), KINDS)
@pytest.mark.parametrize("channels", [(1, 1), (2, 3)])
def test_vote_and_gradients_are_those_of_the_dense_kernel(
    taps: str, scale: int | None, size: tuple[int, ...], backend: str, channels: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    layer = HoughMatching(3, scale, "full", *channels, backend=backend, taps=taps)
    x = torch.rand(2, channels[0], *size, requires_grad=True)
    gradient = torch.randn(2, channels[1], *size)
    expected = conv_nd(x, layer.kernel(), layer.bias, backend="reference")
    wanted = torch.autograd.grad(expected, [x, *layer.parameters()], gradient)
    found = torch.autograd.grad(output := layer(x), [x, *layer.parameters()], gradient)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-6)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("taps", "scale", "size"), KINDS)
def test_parts_have_one_tap_along_the_other_side(taps: str, scale: int | None, size: tuple[int, ...]) -> None:
    layer = HoughMatching(5, scale, "full", taps=taps)
    source, target = split_pivot(layer.kernel(), joint=taps.endswith("joint"))
    assert source.shape[-2:] == target.shape[-4:-2] == (1, 1)
    joint = taps.endswith("joint") and scale is not None
    assert source.numel() + target.numel() == int((layer.index >= 0).sum()) + (1 if joint or not scale else 9)


def test_exchanging_the_pictures_exchanges_the_votes() -> None:
    layer = HoughMatching(5, taps="center-pivot")
    x = torch.rand(1, 1, 4, 5, 6, 3)
    exchanged = layer(x.permute(0, 1, 4, 5, 2, 3)).permute(0, 1, 4, 5, 2, 3)
    torch.testing.assert_close(exchanged, layer(x))


def test_kernels_with_more_taps_are_refused() -> None:
    source, target = split_pivot(torch.rand(1, 1, 5, 5, 5, 5))
    x = torch.rand(1, 1, 4, 4, 4, 4)
    with pytest.raises(InputError, match="the source kernel must have one tap on the other side"):
        conv_pivot(x, target, target)
    with pytest.raises(InputError, match="the target kernel must have one tap on the other side"):
        conv_pivot(x, source, source)


def test_unknown_taps() -> None:
    with pytest.raises(InputError, match=r"taps must be one of dense, .*, center-pivot-joint, got 'some'"):
        tap_groups(5, taps="some")


@pytest.mark.parametrize("backend", ["auto", "reference", "folded"])
def test_rows_are_those_of_the_whole_vote(backend: str) -> None:
    x, parts = torch.rand(2, 1, 7, 4, 5, 6), split_pivot(torch.rand(1, 1, 5, 5, 5, 5))
    bias = torch.rand(1)
    whole = conv_pivot(x, *parts, bias, backend=backend)
    for rows in (slice(0, 3), slice(2, 6), slice(6, 7)):
        found = conv_pivot(x, *parts, bias, rows=rows, backend=backend)
        assert torch.equal(found, whole[:, :, rows])
