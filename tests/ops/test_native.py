"""The compiled kernels, with every set of instructions that this processor can run."""

import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from chmnet.errors import BackendError
from chmnet.nn import HoughMatching
from chmnet.nn.taps import tap_groups
from chmnet.ops import available_backends, conv_nd, folded, native, reference, unavailable_backends

from .exact import Convolution, Exact, forward_and_gradients, leading_as_channels
from .test_conv_nd import CASES, LARGE_CASES, Shape, cases, random, strided

if find_spec("chmnet._native") is None:
    pytest.skip("the package was built without its compiled kernels", allow_module_level=True)

every_instruction_set = pytest.mark.parametrize("instructions", native.instruction_sets())
HIGH_CASES = {name: shapes for name, shapes in {**CASES, **LARGE_CASES}.items() if len(shapes[0]) >= 6}


def misaligned(values: Tensor) -> Tensor:
    """The same numbers one byte away from where floats belong."""
    shifted = torch.empty(values.numel() * 4 + 4, dtype=torch.uint8)
    shifted[1:-3] = values.contiguous().view(-1).view(torch.uint8)
    return torch.frombuffer(shifted.numpy(), dtype=torch.float32, offset=1, count=values.numel()).view(
        values.shape
    )


def off_the_border(values: Tensor) -> Tensor:
    """The same numbers one float away from where vectors begin."""
    return torch.empty(values.numel() + 1)[1:].view(values.shape).copy_(values)


def made(*shapes: Shape) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def exactly(arguments: list[Tensor], specification: Convolution = reference.conv_nd) -> Exact:
    x, weight = arguments[:2]
    return Exact(specification, arguments, *made((x.shape[0], weight.shape[0], *x.shape[2:])))


@cache
def exact_case(x_shape: Shape, weight_shape: Shape) -> Exact:
    return exactly(made(x_shape, weight_shape, weight_shape[:1]))


@cache
def exact_hough(sharing: str, sizes: Shape) -> Exact:
    layer = HoughMatching(scale=3 if len(sizes) == 6 else None, sharing=sharing)
    x, votes, bias = made((2, 1, *sizes), tuple(layer.weight.shape), (1,))
    with torch.no_grad():
        layer.weight.copy_(votes)
        kernel = layer.kernel()
    return exactly([x, kernel, bias], leading_as_channels if len(sizes) == 6 else reference.conv_nd)


def assert_holds(instructions: str, exact: Exact, layout: Callable[[Tensor], Tensor] = Tensor.contiguous) -> None:
    """Output and all gradients of the compiled kernels against the specification."""
    exact.assert_holds(
        forward_and_gradients(
            lambda *tensors: native.conv_nd(*tensors, instructions=instructions),
            [layout(argument) for argument in exact.arguments],
            layout(exact.incoming),
        )
    )


def test_leading_dimensions_as_channels_are_the_specification() -> None:
    """What six dimensions of the paper's size are compared with, since the definition itself takes minutes."""
    for x_shape, weight_shape in HIGH_CASES.values():
        if len(x_shape) > 6:
            arguments = [argument.double() for argument in made(x_shape, weight_shape, weight_shape[:1])]
            torch.testing.assert_close(leading_as_channels(*arguments), reference.conv_nd(*arguments))


@every_instruction_set
@cases(HIGH_CASES)
@pytest.mark.parametrize("layout", [Tensor.contiguous, strided, off_the_border, misaligned])
def test_any_layout(
    instructions: str, x_shape: Shape, weight_shape: Shape, layout: Callable[[Tensor], Tensor]
) -> None:
    assert_holds(instructions, exact_case(x_shape, weight_shape), layout)


@every_instruction_set
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
@pytest.mark.parametrize(
    "sizes",
    [
        (9, 7, 8, 6),
        (1, 9, 1, 9),
        (1, 1, 1, 33),
        (2, 3, 2, 3),
        (3, 3, 6, 5, 4, 7),
        (3, 3, 2, 1, 2, 1),
        (2, 4, 3, 6, 5, 3),
    ],
    ids=str,
)
def test_hough_kernels(instructions: str, sharing: str, sizes: Shape) -> None:
    """Kernels with symmetries, and 6D kernels whose slices repeat, take shorter ways to the same numbers."""
    assert_holds(instructions, exact_hough(sharing, sizes))


@every_instruction_set
@pytest.mark.parametrize("sharing", ["psi", "iso", "full"])
@pytest.mark.parametrize(
    ("channels_in", "channels_out", "sizes"),
    [(1, 1, (9, 7, 8, 6)), (2, 3, (1, 5, 4, 9)), (3, 2, (3, 3, 6, 5, 4, 7)), (1, 2, (2, 4, 3, 6, 5, 3))],
    ids=str,
)
@pytest.mark.parametrize("same", [False, True], ids=["drawn", "all-equal"])
def test_shared_weights(
    instructions: str, sharing: str, channels_in: int, channels_out: int, sizes: Shape, same: bool
) -> None:
    """Gradients are those of the kernel, added up by weight, also where different weights have one value."""
    groups = tap_groups(5, 3 if len(sizes) == 6 else None, sharing)
    x, weight, bias = made((2, channels_in, *sizes), (channels_out, channels_in, groups.number), (channels_out,))
    if same:
        weight = torch.ones_like(weight)
    (incoming,) = made((2, channels_out, *sizes))
    expected = forward_and_gradients(
        lambda x, weight, bias: folded.conv_nd(x, weight[..., groups.index], bias),
        [x.double(), weight.double(), bias.double()],
        incoming.double(),
    )
    actual = forward_and_gradients(
        lambda x, weight, bias: native.conv_shared(x, weight, groups.index, bias, instructions),
        [x, weight, bias],
        incoming,
    )
    for found, exact in zip(actual, expected, strict=True):
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=3e-6 * float(exact.abs().max()))


@every_instruction_set
@pytest.mark.parametrize(("scale", "sizes"), [(None, (6, 5, 4, 33)), (3, (3, 3, 4, 5, 4, 7))], ids=str)
@pytest.mark.parametrize("taps", ["center-pivot", "center-pivot-joint"])
@pytest.mark.parametrize("sharing", ["psi", "full"])
def test_kernels_with_few_taps(
    instructions: str, scale: int | None, sizes: Shape, taps: str, sharing: str
) -> None:
    """Rows and columns of zeros are left out."""
    kernel = HoughMatching(scale=scale, sharing=sharing, taps=taps).kernel().detach()
    (x,) = made((1, 1, *sizes))
    assert_holds(
        instructions, exactly([x, kernel, torch.rand(1)], leading_as_channels if scale else reference.conv_nd)
    )


@every_instruction_set
def test_a_kernel_of_zeros_gives_the_bias(instructions: str) -> None:
    output = native.conv_nd(
        torch.rand(1, 1, 3, 3, 3, 3), torch.zeros(2, 1, 3, 3, 3, 3), torch.rand(2), instructions
    )
    assert (output.flatten(2).amax(2) == output.flatten(2).amin(2)).all()


def test_only_gradients_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("nobody asked for this")

    groups = tap_groups(3)
    x, weight = torch.rand(1, 1, 4, 4, 4, 4), torch.rand(1, 1, groups.number)
    monkeypatch.setattr(native, "_weight_gradient", forbidden)
    assert torch.autograd.grad(native.conv_shared(x.requires_grad_(), weight, groups.index).sum(), x)[0].all()
    monkeypatch.undo()
    monkeypatch.setattr(native, "_input_gradient", forbidden)
    output = native.conv_shared(x.detach(), weight.requires_grad_(), groups.index)
    assert torch.autograd.grad(output.sum(), weight)[0].all()


@every_instruction_set
@pytest.mark.parametrize(("channels_in", "channels_out"), [(7, 2), (2, 7), (16, 1)])
def test_many_channels(instructions: str, channels_in: int, channels_out: int) -> None:
    shapes = (1, channels_in, 3, 4, 3, 4), (channels_out, channels_in, 5, 5, 5, 5)
    assert_holds(instructions, exact_case(*shapes))


@every_instruction_set
def test_empty_batch(instructions: str) -> None:
    x, weight = torch.rand(0, 1, 3, 3, 3, 3, requires_grad=True), torch.rand(1, 1, 3, 3, 3, 3, requires_grad=True)
    output = native.conv_nd(x, weight, None, instructions)
    assert output.shape == x.shape
    gradients = torch.autograd.grad(output, [x, weight], torch.rand(0, 1, 3, 3, 3, 3))
    torch.testing.assert_close(gradients, (torch.zeros_like(x), torch.zeros_like(weight)))


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, so that training can be repeated."""
    arguments = [random(2, 2, 5, 6, 7, 8, dtype=torch.float32), random(2, 2, 5, 3, 3, 5, dtype=torch.float32)]
    incoming = random(2, 2, 5, 6, 7, 8, dtype=torch.float32)
    outcomes = []
    for threads in (1, 2, 7):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        outcomes.append(forward_and_gradients(native.conv_nd, arguments, incoming))
    for outcome in outcomes[1:]:
        assert all(torch.equal(one, other) for one, other in zip(outcome, outcomes[0], strict=True))


@pytest.mark.parametrize("sharing", ["psi", "full"])
def test_as_precise_as_pytorch(sharing: str) -> None:
    """The error against double precision is at most twice that of PyTorch's own convolutions."""
    kernel = HoughMatching(sharing=sharing).kernel().detach()
    x = torch.rand(1, 1, 12, 12, 12, 12)
    exact = folded.conv_nd(x.double(), kernel.double())
    ours, theirs = (convolve(x, kernel) - exact for convolve in (native.conv_nd, folded.conv_nd))
    assert ours.abs().max() <= 2 * theirs.abs().max()


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.rand(1, 1, 4, 4, 4), "only from 4"),
        (torch.rand(1, 1, 3, 3, 3, 3).double(), "no .*float64"),
        (torch.rand(1, 1, 1025, 1, 1, 1, 1), "too many channels"),
    ],
    ids=["3d", "double", "long"],
)
def test_refusals(x: Tensor, reason: str) -> None:
    weight = torch.ones([1] * x.dim(), dtype=x.dtype, device=x.device)
    with pytest.raises(BackendError, match=f"native: {reason}"):
        conv_nd(x, weight, backend="native")


def test_other_devices_are_refused() -> None:
    x = torch.rand(1, 1, 3, 3, 3, 3, device="meta")
    assert native.refusals(x, x) == ["no kernels for meta"]


def test_absent_kernels_change_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_library", native._library.__wrapped__)
    monkeypatch.setitem(sys.modules, "chmnet._native", None)  # as if it were not there
    assert "native" not in available_backends()
    assert "C++ compiler" in unavailable_backends()["native"]
    assert native.instruction_sets() == []
    x, weight = torch.rand(1, 1, 3, 3, 3, 3), torch.rand(1, 1, 3, 3, 3, 3)
    assert torch.equal(conv_nd(x, weight), folded.conv_nd(x, weight))
    with pytest.raises(BackendError, match="without its compiled kernels"):
        conv_nd(x, weight, backend="native")


def test_kernels_that_cannot_be_loaded_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError("undefined symbol")

    monkeypatch.setattr(native, "import_module", fail)
    monkeypatch.setattr(native, "_library", native._library.__wrapped__)
    assert native.unavailable() == "the compiled kernels cannot be loaded: undefined symbol"


def test_a_pending_change_of_sign_is_made() -> None:
    x = torch.rand(1, 1, 3, 3, 3, 3, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    weight = torch.rand(1, 1, 3, 3, 3, 3)
    torch.testing.assert_close(native.conv_nd(x, weight), folded.conv_nd(x, weight))


@every_instruction_set
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("sizes", "source", "target"),
    [
        ((7, 9, 5, 11), 5, 5),
        ((2, 1, 3, 2), 5, 5),
        ((1, 1, 1, 1), 3, 5),
        ((4, 19, 6, 30), 5, 3),
        ((6, 3, 1, 17), 1, 7),
    ],
)
def test_center_pivot(
    instructions: str, threads: int, sizes: Shape, source: int, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    x, one, other, bias = made((2, 1, *sizes), (1, 1, source, source, 1, 1), (1, 1, 1, 1, target, target), (1,))
    expected = reference.conv_nd(x, one, bias) + reference.conv_nd(x, other)
    for layout in (Tensor.contiguous, strided, off_the_border, misaligned):
        found = native.conv_pivot(layout(x), one, other, bias, instructions=instructions)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    rows = slice(sizes[0] // 3, sizes[0] // 3 + (sizes[0] + 1) // 2)
    found = native.conv_pivot(x, one, other, bias, rows, instructions)
    torch.testing.assert_close(found, expected[:, :, rows], rtol=1e-5, atol=1e-5)
    assert native.conv_pivot(x[:0], one, other, instructions=instructions).shape == x[:0].shape
