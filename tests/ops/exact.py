"""The specification in double precision, and how far from it an implementation may be."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from chmnet.ops import reference

Convolution = Callable[..., Tensor]
EPSILON = torch.finfo(torch.float32).eps


def forward_and_gradients(convolve: Convolution, arguments: list[Tensor], incoming: Tensor) -> list[Tensor]:
    """The output, and the gradient of each argument."""
    inputs = [tensor.detach().requires_grad_() for tensor in arguments]
    output = convolve(*inputs)
    return [output.detach(), *torch.autograd.grad(output, inputs, incoming)]


def leading_as_channels(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The specification of more than four dimensions by that of four: positions of the leading ones are channels.

    Far fewer taps than :func:`chmnet.ops.reference.conv_nd` adds up in six dimensions.
    """
    sizes, taps = x.shape[2:-4], weight.shape[2:-4]
    positions = list(product(*map(range, sizes)))
    rows = []
    for output in positions:
        row = []
        for source in positions:
            tap = [s - o + k // 2 for o, s, k in zip(output, source, taps, strict=True)]
            inside = all(0 <= t < k for t, k in zip(tap, taps, strict=True))
            row.append(weight[(slice(None), slice(None), *(tap if inside else [0] * len(tap)))] * inside)
        rows.append(torch.stack(row, 2))
    joined = torch.stack(rows, 1).flatten(2, 3).flatten(0, 1)  # [c_out × positions, c_in × positions, …]
    output = reference.conv_nd(x.flatten(1, -5), joined, bias.repeat_interleave(len(positions)))
    return output.view(x.shape[0], weight.shape[0], *x.shape[2:])


class Exact:
    """What an input, a kernel and a bias give in double precision, and how far plain single precision is off."""

    def __init__(self, specification: Convolution, arguments: list[Tensor], incoming: Tensor) -> None:
        self.arguments, self.incoming = arguments, incoming
        double = [argument.double() for argument in arguments]
        self.values = forward_and_gradients(specification, double, incoming.double())
        plain = forward_and_gradients(specification, arguments, incoming)
        scales = [float(exact.abs().max()) for exact in self.values]
        errors = [float((one - exact).abs().max()) for one, exact in zip(plain, self.values, strict=True)]
        self.bounds = [2 * max(error, scale * EPSILON / 2) for error, scale in zip(errors, scales, strict=True)]
        """Twice the error of the specification in single precision; its last rounding counts in any case."""
        self.bounds[3] = 1e-5 * scales[3]  # the bias: PyTorch's own sum, whose error depends on the layout

    def assert_holds(self, actual: list[Tensor]) -> None:
        """Output and gradients in single precision, each within its bound."""
        assert len(actual) == len(self.values)
        for found, exact, bound in zip(actual, self.values, self.bounds, strict=True):
            assert found.dtype == torch.float32
            torch.testing.assert_close(found.double(), exact, rtol=0, atol=bound)
