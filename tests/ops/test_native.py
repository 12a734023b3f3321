"""The compiled kernels, with every set of instructions that this processor can run."""

import sys
from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from chmnet.errors import BackendError
from chmnet.nn import HoughMatching
from chmnet.ops import available_backends, conv_nd, folded, native, unavailable_backends

from .test_conv_nd import CASES, LARGE_CASES, Shape, assert_near, cases, random, strided

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


def forward_and_gradients(
    convolve: Callable[[Tensor, Tensor, Tensor | None], Tensor], arguments: list[Tensor], incoming: Tensor
) -> list[Tensor]:
    inputs = [tensor.detach().requires_grad_() for tensor in arguments]
    output = convolve(*inputs)
    return [output.detach(), *torch.autograd.grad(output, inputs, incoming)]


def assert_agrees(
    instructions: str, arguments: list[Tensor], layout: Callable[[Tensor], Tensor] = Tensor.contiguous
) -> None:
    """Output and gradients against another back-end in double precision, itself held against the specification."""
    x, weight = arguments[:2]
    incoming = random(x.shape[0], weight.shape[0], *x.shape[2:], dtype=torch.float32)
    expected = forward_and_gradients(
        folded.conv_nd, [argument.double() for argument in arguments], incoming.double()
    )
    actual = forward_and_gradients(
        lambda *tensors: native.conv_nd(*tensors, instructions=instructions),
        [layout(a) for a in arguments],
        layout(incoming),
    )
    assert_near(actual, expected, 1e-5)


@every_instruction_set
@cases(HIGH_CASES)
@pytest.mark.parametrize("layout", [Tensor.contiguous, strided, off_the_border, misaligned])
def test_any_layout(
    instructions: str, x_shape: Shape, weight_shape: Shape, layout: Callable[[Tensor], Tensor]
) -> None:
    shapes = (x_shape, weight_shape, weight_shape[:1])
    assert_agrees(instructions, [random(*shape, dtype=torch.float32) for shape in shapes], layout)


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
    layer = HoughMatching(scale=3 if len(sizes) == 6 else None, sharing=sharing)
    torch.nn.init.normal_(layer.weight)
    assert_agrees(instructions, [random(2, 1, *sizes, dtype=torch.float32), layer.kernel(), layer.bias])


@every_instruction_set
@pytest.mark.parametrize(("channels_in", "channels_out"), [(7, 2), (2, 7), (16, 1)])
def test_many_channels(instructions: str, channels_in: int, channels_out: int) -> None:
    weight = random(channels_out, channels_in, 5, 5, 5, 5, dtype=torch.float32)
    assert_agrees(
        instructions, [random(1, channels_in, 3, 4, 3, 4, dtype=torch.float32), weight, weight[:, 0, 0, 0, 0, 0]]
    )


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
        (torch.rand(1, 1, 4, 4, 4), "only from 4 dimensions on"),
        (torch.rand(1, 1, 3, 3, 3, 3).double(), "no arithmetic for float64"),
        (torch.rand(1, 1, 1025, 1, 1, 1, 1), "too many channels and positions before the last four dimensions"),
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


@pytest.mark.parametrize("bad", [{"instructions": "mmx"}, {"threads": 0}, {"family": 2}, {"bias": torch.zeros(3)}])
def test_the_compiled_module_checks_what_it_gets(bad: dict[str, object]) -> None:
    arguments = {
        "x": torch.rand(1, 1, 3, 3, 3, 3),
        "kernels": torch.rand(1, 3, 3, 3, 3),
        "table": torch.zeros(1, 1, dtype=torch.int32),
        "family": 1,
        "bias": torch.zeros(0),
        "result": torch.empty(1, 1, 3, 3, 3, 3),
        "instructions": "plain",
        "threads": 1,
    }
    library = native._library()
    library.convolve(**arguments)
    with pytest.raises(ValueError, match=r"instruction set|threads|families|bias"):
        library.convolve(**{**arguments, **bad})
    for name, value in (("kernels", torch.rand(1, 2, 3, 3, 3)), ("table", torch.ones(1, 1, dtype=torch.int32))):
        with pytest.raises(ValueError, match=r"odd|no such kernel"):
            library.convolve(**{**arguments, name: value})
    with pytest.raises(ValueError, match="wrong shape"):
        library.convolve(**{**arguments, "result": torch.empty(1, 1, 3, 3, 3, 4)})
