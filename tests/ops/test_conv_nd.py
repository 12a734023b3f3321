from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from chmnet.errors import BackendError, InputError
from chmnet.ops import available_backends, conv_nd, conv_shared, folded
from chmnet.ops.conv_nd import choose_backend

BACKENDS = [name for name in available_backends() if name != "native"]  # that one has tests of its own
FAST_BACKENDS = [name for name in BACKENDS if name != "reference"]
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}

# (shape of x, shape of weight). A first dimension of five or six is folded into the channels when it is
# shorter than twice its taps, and summed over otherwise.
CASES = {
    "1d": ((2, 3, 7), (2, 3, 3)),
    "1d size 1": ((2, 1, 1), (1, 1, 5)),
    "2d": ((2, 2, 4, 5), (3, 2, 1, 3)),
    "3d": ((1, 2, 3, 4, 6), (2, 2, 3, 1, 5)),
    "4d": ((2, 2, 4, 3, 5, 6), (3, 2, 3, 5, 1, 3)),
    "4d even": ((1, 1, 4, 4, 4, 4), (1, 1, 5, 5, 3, 3)),
    "4d sizes 1": ((2, 1, 1, 4, 1, 3), (2, 1, 3, 3, 5, 1)),
    "4d kernel 1": ((2, 2, 3, 2, 4, 3), (2, 2, 1, 1, 1, 1)),
    "5d folded": ((2, 2, 3, 3, 4, 2, 3), (2, 2, 3, 3, 1, 3, 3)),
    "5d summed": ((2, 1, 7, 2, 3, 3, 2), (2, 1, 3, 3, 3, 1, 3)),
    "5d size 1": ((2, 2, 1, 3, 2, 3, 2), (1, 2, 5, 1, 3, 3, 1)),
    "6d folded folded": ((2, 1, 3, 3, 3, 2, 4, 3), (2, 1, 3, 3, 3, 3, 1, 3)),
    "6d folded summed": ((1, 2, 3, 6, 2, 3, 1, 2), (2, 2, 3, 3, 3, 1, 3, 3)),
    "6d summed folded": ((2, 1, 6, 2, 3, 2, 2, 3), (1, 1, 3, 5, 1, 3, 3, 1)),
    "6d summed summed": ((1, 1, 3, 7, 2, 2, 3, 2), (2, 1, 1, 3, 3, 3, 1, 3)),
}
LARGE_CASES = {
    "7d": ((1, 1, 2, 2, 1, 2, 2, 3, 2), (2, 1, 1, 3, 1, 3, 3, 1, 3)),
    "8d": ((1, 1, 2, 1, 2, 2, 1, 2, 2, 3), (2, 1, 1, 3, 3, 1, 3, 1, 1, 3)),
}

Shape = tuple[int, ...]


def cases(chosen: dict[str, tuple[Shape, Shape]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("x_shape", "weight_shape"), list(chosen.values()), ids=list(chosen))


every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_fast_backend = pytest.mark.parametrize("backend", FAST_BACKENDS)


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def strided(values: Tensor) -> Tensor:
    """The same numbers with the axes reversed in memory and a hole after each."""
    holes = values.new_full([2 * size for size in reversed(values.shape)], torch.nan)
    view = holes.permute(*reversed(range(values.dim())))[(slice(None, None, 2),) * values.dim()]
    return view.copy_(values)


def forward_and_gradients(
    backend: str, x: Tensor, weight: Tensor, bias: Tensor | None, incoming: Tensor
) -> list[Tensor]:
    """The output, and the gradients of x, weight and, where there is one, bias."""
    inputs = [tensor.detach().requires_grad_() for tensor in (x, weight, bias) if tensor is not None]
    output = conv_nd(*inputs, backend=backend)
    return [output.detach(), *torch.autograd.grad(output, inputs, incoming)]


def assert_near(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """Agreement relative to the largest expected value of each tensor."""
    for one, other in zip(actual, expected, strict=True):
        scale = other.abs().max().item() if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * scale, check_dtype=False)


def by_loops(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The definition, number by number."""
    sizes, taps = x.shape[2:], weight.shape[2:]
    output = x.new_zeros(x.shape[0], weight.shape[0], *sizes)
    for item, channel_out, *position in product(*map(range, output.shape)):
        value = bias[channel_out].item()
        for channel_in, *tap in product(range(x.shape[1]), *map(range, taps)):
            read = [p + d - k // 2 for p, d, k in zip(position, tap, taps, strict=True)]
            if all(0 <= r < size for r, size in zip(read, sizes, strict=True)):
                value += (weight[(channel_out, channel_in, *tap)] * x[(item, channel_in, *read)]).item()
        output[(item, channel_out, *position)] = value
    return output


@pytest.mark.parametrize(
    ("x_shape", "weight_shape"),
    [((2, 2, 3, 4), (2, 2, 3, 5)), ((1, 2, 2, 3, 1, 2), (2, 2, 3, 1, 3, 3))],
    ids=["2d", "4d"],
)
def test_reference_is_the_definition(x_shape: Shape, weight_shape: Shape) -> None:
    x, weight, bias = random(*x_shape), random(*weight_shape), random(weight_shape[0])
    torch.testing.assert_close(conv_nd(x, weight, bias, backend="reference"), by_loops(x, weight, bias))


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_reference_is_pytorch_in_up_to_three_dimensions(dimensions: int) -> None:
    pytorch = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[dimensions]
    x, weight, bias = random(2, 3, *(5, 4, 6)[:dimensions]), random(4, 3, *(3, 5, 1)[:dimensions]), random(4)
    expected = pytorch(x, weight, bias, padding=(1, 2, 0)[:dimensions])
    torch.testing.assert_close(conv_nd(x, weight, bias, backend="reference"), expected)


@every_fast_backend
@cases(CASES)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("layout", [Tensor.contiguous, strided], ids=["contiguous", "strided"])
def test_backend_agrees_with_the_reference(
    backend: str, x_shape: Shape, weight_shape: Shape, dtype: torch.dtype, layout: Callable[[Tensor], Tensor]
) -> None:
    x, weight = random(*x_shape, dtype=dtype), random(*weight_shape, dtype=dtype)
    bias = random(weight_shape[0], dtype=dtype)
    incoming = random(x_shape[0], weight_shape[0], *x_shape[2:], dtype=dtype)
    arguments = [x, weight, bias, incoming]
    expected = forward_and_gradients("reference", *[tensor.double() for tensor in arguments])
    actual = forward_and_gradients(backend, *map(layout, arguments))
    assert {tensor.dtype for tensor in actual} == {dtype}
    assert_near(actual, expected, TOLERANCES[dtype])


@every_fast_backend
@cases(CASES)
def test_backend_without_bias(backend: str, x_shape: Shape, weight_shape: Shape) -> None:
    x, weight = random(*x_shape), random(*weight_shape)
    incoming = random(1).expand(x_shape[0], weight_shape[0], *x_shape[2:])  # as the gradient of a sum
    expected = forward_and_gradients("reference", x, weight, None, incoming)
    assert_near(forward_and_gradients(backend, x, weight, None, incoming), expected, 1e-10)


@every_fast_backend
@cases(LARGE_CASES)
def test_backend_in_seven_and_eight_dimensions(backend: str, x_shape: Shape, weight_shape: Shape) -> None:
    x, weight, bias = random(*x_shape), random(*weight_shape), random(weight_shape[0])
    expected = conv_nd(x, weight, bias, backend="reference")
    assert_near([conv_nd(x, weight, bias, backend=backend)], [expected], 1e-10)


@every_backend
@cases(CASES)
def test_empty_batch(backend: str, x_shape: Shape, weight_shape: Shape) -> None:
    x, weight, bias = random(0, *x_shape[1:]), random(*weight_shape), random(weight_shape[0])
    incoming = random(0, weight_shape[0], *x_shape[2:])
    output, *gradients = forward_and_gradients(backend, x, weight, bias, incoming)
    assert output.shape == incoming.shape
    expected = [x, torch.zeros_like(weight), torch.zeros_like(bias)]
    torch.testing.assert_close(gradients, expected)


@pytest.mark.parametrize("size", [2, 3, 6, 9])
def test_both_ways_to_remove_a_dimension_agree(size: int) -> None:
    arguments = random(2, 2, size, 3, 2, 3, 2), random(3, 2, 3, 3, 3, 1, 3), random(3)
    expected = conv_nd(*arguments, backend="reference")
    torch.testing.assert_close(folded._fold_first_dimension(*arguments), expected)
    torch.testing.assert_close(folded._sum_over_first_dimension(*arguments), expected)


@pytest.mark.parametrize(
    ("rows", "number"), [(0, 15), (1, 15), (2, 9), (5, 3), (11, 2), (15, 1)], ids=lambda value: str(value)
)
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, rows: int, number: int) -> None:
    """Room for a number of rows, of three items with five rows each: so many chunks, the same result."""
    x, weight, bias = random(3, 2, 5, 3, 4, 2), random(2, 2, 3, 3, 1, 3), random(2)
    incoming = random(3, 2, 5, 3, 4, 2)
    row_bytes = max(2 * 3, 2 * 3 * 1 * 3) * (3 * 4 * 2) * 8  # float64: every tap of the conv3d unfolded
    monkeypatch.setattr("chmnet.ops.folded.CHUNK_BYTES", rows * row_bytes)
    assert len(list(folded._chunks(x, weight.shape))) == number
    expected = forward_and_gradients("reference", x, weight, bias, incoming)
    assert_near(forward_and_gradients("folded", x, weight, bias, incoming), expected, 1e-10)


@every_backend
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@cases({name: CASES[name] for name in ("2d", "4d", "5d summed", "6d folded folded")})
def test_half_precision(backend: str, dtype: torch.dtype, x_shape: Shape, weight_shape: Shape) -> None:
    incoming = random(x_shape[0], weight_shape[0], *x_shape[2:], dtype=dtype)
    arguments = [random(*shape, dtype=dtype) for shape in (x_shape, weight_shape, weight_shape[:1])]
    arguments.append(incoming)
    expected = forward_and_gradients("reference", *[tensor.float() for tensor in arguments])
    actual = forward_and_gradients(backend, *arguments)
    assert {tensor.dtype for tensor in actual} == {dtype}
    assert_near(actual, expected, 0.01 if dtype == torch.float16 else 0.05)


@every_backend
@pytest.mark.parametrize(
    ("x_shape", "weight_shape"),
    [((1, 2, 2, 1, 3, 2), (2, 2, 3, 1, 3, 1)), ((1, 1, 2, 6, 1, 1, 2, 1), (1, 1, 3, 3, 1, 1, 3, 1))],
    ids=["4d", "6d"],
)
def test_gradients_are_those_of_small_changes(backend: str, x_shape: Shape, weight_shape: Shape) -> None:
    inputs = [random(*shape).requires_grad_() for shape in (x_shape, weight_shape, weight_shape[:1])]
    assert torch.autograd.gradcheck(lambda *tensors: conv_nd(*tensors, backend=backend), inputs)


def test_reference_can_be_differentiated_twice() -> None:
    inputs = [random(*shape).requires_grad_() for shape in ((1, 1, 2, 2, 1, 2), (1, 1, 3, 1, 1, 3), (1,))]
    assert torch.autograd.gradgradcheck(lambda *tensors: conv_nd(*tensors, backend="reference"), inputs)


@every_backend
@cases(CASES)
def test_linear_in_input_and_kernel(backend: str, x_shape: Shape, weight_shape: Shape) -> None:
    x, other_x = random(*x_shape), random(*x_shape)
    weight, other_weight = random(*weight_shape), random(*weight_shape)

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        return conv_nd(x, weight, backend=backend)

    combined = convolve(2 * x - 3 * other_x, weight)
    torch.testing.assert_close(combined, 2 * convolve(x, weight) - 3 * convolve(other_x, weight))
    combined = convolve(x, 2 * weight - 3 * other_weight)
    torch.testing.assert_close(combined, 2 * convolve(x, weight) - 3 * convolve(x, other_weight))


@every_backend
@pytest.mark.parametrize("dimensions", range(1, 9))
def test_delta_kernel_is_the_identity(backend: str, dimensions: int) -> None:
    taps = [3, 1, 3, 3, 1, 1, 3, 3][:dimensions]
    x = random(2, 2, *[3, 2, 2, 3, 1, 2, 2, 1][:dimensions])
    weight = torch.zeros(2, 2, *taps, dtype=torch.float64)
    for channel in range(2):
        weight[(channel, channel, *[size // 2 for size in taps])] = 1
    torch.testing.assert_close(conv_nd(x, weight, backend=backend), x)


@every_backend
def test_kernel_is_not_turned_round(backend: str) -> None:
    """The last tap of each axis reads the next position."""
    x = random(1, 1, 3, 3, 3, 3)
    weight = torch.zeros(1, 1, 3, 3, 3, 3, dtype=torch.float64)
    weight[0, 0, 2, 2, 2, 2] = 1
    output = conv_nd(x, weight, backend=backend)
    torch.testing.assert_close(output[..., :-1, :-1, :-1, :-1], x[..., 1:, 1:, 1:, 1:])
    assert output[..., -1].abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_auto_takes_the_first_backend_that_does_not_refuse(dtype: torch.dtype) -> None:
    x, weight = random(1, 1, 4, 4, 4, 4, dtype=dtype), random(1, 1, 3, 3, 3, 3, dtype=dtype)
    first = next(iter(available_backends())) if dtype == torch.float32 else "folded"
    assert torch.equal(conv_nd(x, weight), conv_nd(x, weight, backend=first))


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2)], ids=["0d", "9d"])
def test_too_few_or_too_many_dimensions(shape: Shape) -> None:
    with pytest.raises(InputError, match="from 1 to 8"):
        conv_nd(random(*shape), random(*shape))


def test_kernel_of_another_rank() -> None:
    with pytest.raises(InputError, match=r"2 dimensions.*\[1, 1, 3\]"):
        conv_nd(random(1, 1, 4, 4), random(1, 1, 3))


def test_even_kernel() -> None:
    with pytest.raises(InputError, match=r"odd.* 4\b"):
        conv_nd(random(1, 1, 4, 4), random(1, 1, 3, 4))


def test_mismatched_channels() -> None:
    with pytest.raises(InputError, match=r"3 input channels.* 2\b"):
        conv_nd(random(1, 2, 4, 4), random(1, 3, 3, 3))


@pytest.mark.parametrize(
    ("x_shape", "weight_shape"),
    [((1, 0, 4), (1, 0, 3)), ((1, 1, 0), (1, 1, 3)), ((1, 1, 4), (0, 1, 3))],
    ids=["channels in", "size", "channels out"],
)
def test_nothing_but_the_batch_may_be_empty(x_shape: Shape, weight_shape: Shape) -> None:
    with pytest.raises(InputError, match="empty"):
        conv_nd(random(*x_shape), random(*weight_shape))


@pytest.mark.parametrize("shape", [(1,), (2, 1), ()], ids=str)
def test_bias_of_another_shape(shape: Shape) -> None:
    with pytest.raises(InputError, match=r"bias.*2 output channels"):
        conv_nd(random(1, 1, 4), random(2, 1, 3), random(*shape))


def test_integers() -> None:
    with pytest.raises(InputError, match=r"floating-point.*int64"):
        conv_nd(torch.ones(1, 1, 4, dtype=torch.int64), torch.ones(1, 1, 3, dtype=torch.int64))


def test_mismatched_dtypes() -> None:
    x, weight, bias = random(1, 1, 4), random(1, 1, 3), random(1)
    with pytest.raises(InputError, match=r"weight.*float64.*float32"):
        conv_nd(x, weight.float())
    with pytest.raises(InputError, match=r"bias.*float64.*float16"):
        conv_nd(x, weight, bias.half())


def test_mismatched_devices() -> None:
    x, weight, bias = random(1, 1, 4), random(1, 1, 3), random(1)
    with pytest.raises(InputError, match=r"weight.*cpu.*meta"):
        conv_nd(x, weight.to("meta"))
    with pytest.raises(InputError, match=r"bias.*cpu.*meta"):
        conv_nd(x, weight, bias.to("meta"))


def test_unknown_backend() -> None:
    with pytest.raises(BackendError, match=r"'fastest'.*reference"):
        conv_nd(random(1, 1, 4), random(1, 1, 3), backend="fastest")


def test_auto_names_the_reason_of_every_backend() -> None:
    x, weight = torch.ones(1, 1, 4).to(torch.float8_e4m3fn), torch.ones(1, 1, 3).to(torch.float8_e4m3fn)
    with pytest.raises(BackendError, match="no back-end") as caught:
        conv_nd(x, weight)
    for backend in BACKENDS:
        assert f"{backend}: no arithmetic for float8_e4m3fn" in str(caught.value)


@every_backend
def test_backend_names_its_reason(backend: str) -> None:
    x, weight = torch.ones(1, 1, 4), torch.ones(1, 1, 3)
    with pytest.raises(BackendError, match=rf"\({backend}: no arithmetic for float8_e4m3fn\)"):
        conv_nd(x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn), backend=backend)
    with pytest.raises(BackendError, match=rf"\({backend}: no sparse tensors\)"):
        conv_nd(x.to_sparse(), weight, backend=backend)


@pytest.mark.parametrize("backend", ["auto", *available_backends()])
def test_shared_weights_are_a_kernel(backend: str) -> None:
    index = torch.arange(27).view(3, 3, 3) % 5
    x, weight, bias = random(2, 3, 4, 5, 6), random(2, 3, 5), random(2)
    if backend == "native":
        with pytest.raises(BackendError, match="only from 4"):
            conv_shared(x, weight, index, bias, backend=backend)
    else:
        expected = conv_nd(x, weight[..., index], bias, backend="reference")
        torch.testing.assert_close(conv_shared(x, weight, index, bias, backend=backend), expected)


def test_shared_weights_must_fit() -> None:
    with pytest.raises(InputError, match="3 input channels but x has 2"):
        conv_shared(random(2, 2, 4), random(2, 3, 5), torch.arange(3))


@pytest.mark.parametrize(
    ("channels_in", "channels_out", "leading", "fastest"),
    [(16, 16, (), "folded"), (16, 15, (), "native"), (1, 16, (), "native"), (16, 16, (3, 3), "native")],
)
def test_auto_takes_the_fastest(channels_in: int, channels_out: int, leading: Shape, fastest: str) -> None:
    x = torch.rand(1, channels_in, *leading, 2, 2, 2, 2)
    weight = torch.rand(channels_out, channels_in, *leading, 3, 3, 3, 3)
    assert choose_backend(x, weight) == (fastest if "native" in available_backends() else "folded")
    assert choose_backend(x.double(), weight.double()) == "folded"
