"""n-dimensional convolution by the compiled kernels of ``native/``, with gradients; for CPUs, float32.

The last four dimensions are convolved by compiled code. Dimensions before them, such as the scales of a 6D
correlation, become channels: a table says which kernel joins which of them. Where the package was built
without a compiler this back-end is absent, and nothing else changes.
"""

from functools import lru_cache
from importlib import import_module
from itertools import product
from types import ModuleType
from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from torch.autograd.function import once_differentiable

MIN_DIMENSIONS = 4
MAX_CONNECTIONS = 2**20
"""Most pairs of channels, where each position before the last four dimensions is a channel of its own."""


@lru_cache(maxsize=1)
def _library() -> ModuleType | str:
    """The compiled module, or why there is none."""
    try:
        return import_module("chmnet._native")
    except ModuleNotFoundError:
        return "chmnet was installed without its compiled kernels; install it again where there is a C++ compiler"
    except ImportError as error:
        return f"the compiled kernels cannot be loaded: {error}"


def unavailable() -> str | None:
    """Why there are no compiled kernels here; ``None`` when there are."""
    library = _library()
    return library if isinstance(library, str) else None


def instruction_sets() -> list[str]:
    """The sets of instructions this processor can run the kernels with, the fastest first."""
    library = _library()
    return [] if isinstance(library, str) else library.instruction_sets()


def refusals(x: Tensor, weight: Tensor) -> list[str]:
    """The reasons why the compiled kernels cannot take an input and a kernel; empty when they can."""
    reasons = []
    if (missing := unavailable()) is not None:
        reasons.append(missing)
    if x.device.type != "cpu":
        reasons.append(f"no kernels for {x.device.type}")
    if x.dtype != torch.float32:
        reasons.append(f"no arithmetic for {str(x.dtype).removeprefix('torch.')}")
    if x.layout != torch.strided or weight.layout != torch.strided:
        reasons.append("no sparse tensors")
    if x.dim() - 2 < MIN_DIMENSIONS:
        reasons.append(f"only from {MIN_DIMENSIONS} dimensions on")
    elif weight.shape[:2].numel() * x.shape[2:-4].numel() ** 2 > MAX_CONNECTIONS:
        reasons.append("too many channels and positions before the last four dimensions")
    return reasons


def conv_nd(x: Tensor, weight: Tensor, bias: Tensor | None = None, instructions: str | None = None) -> Tensor:
    """Convolve; see :func:`chmnet.ops.conv_nd` for arguments, result and an example.

    Args:
        x: as there.
        weight: as there.
        bias: as there.
        instructions: one of :func:`instruction_sets`; the fastest if ``None``.
    """
    return _Convolution.apply(x, weight, bias, instructions or instruction_sets()[0])


class _Convolution(torch.autograd.Function):
    """Convolution and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, instructions: str) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.instructions = instructions
        return _convolve(x, weight, bias, instructions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias, _ = ctx.needs_input_grad
        of_x = of_weight = of_bias = None
        if wants_x:
            turned = weight.flip(*range(2, weight.dim())).transpose(0, 1)
            of_x = _convolve(gradient, turned, None, ctx.instructions)
        if wants_weight:
            of_weight = _weight_gradient(x, gradient, weight.shape, ctx.instructions)
        if wants_bias:
            of_bias = gradient.sum([0, *range(2, gradient.dim())])
        return of_x, of_weight, of_bias, None


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, instructions: str) -> Tensor:
    library = _library()
    assert not isinstance(library, str), library
    leading = x.shape[2:-4]
    output = x.new_empty(x.shape[0], weight.shape[0], *x.shape[2:])
    library.convolve(
        _channels(x),
        _kernels(weight),
        _table(weight.shape[:2], leading, weight.shape[2:-4]),
        family=weight.shape[2:-4].numel(),
        bias=x.new_empty(0) if bias is None else _plain(bias).repeat_interleave(leading.numel()),
        result=_channels(output),
        instructions=instructions,
        threads=torch.get_num_threads(),
    )
    return output


def _weight_gradient(x: Tensor, gradient: Tensor, shape: torch.Size, instructions: str) -> Tensor:
    library = _library()
    assert not isinstance(library, str), library
    output = x.new_empty(shape)
    library.kernel_gradient(
        _channels(x),
        _channels(gradient),
        _table(shape[:2], x.shape[2:-4], shape[2:-4]),
        result=_kernels(output),
        instructions=instructions,
        threads=torch.get_num_threads(),
    )
    return output


def _channels(x: Tensor) -> Tensor:
    """Positions along the leading dimensions as channels."""
    return _plain(x).reshape(x.shape[0], x.shape[1:-4].numel(), *x.shape[-4:])


def _kernels(weight: Tensor) -> Tensor:
    return _plain(weight).reshape(-1, *weight.shape[-4:]).contiguous()


def _plain(x: Tensor) -> Tensor:
    """The numbers themselves: no pending change of sign, and at addresses where floats belong."""
    x = x.detach().resolve_neg()
    return x if x.data_ptr() % x.element_size() == 0 else x.clone()


@lru_cache(maxsize=8)
def _table(channels: tuple[int, int], sizes: tuple[int, ...], taps: tuple[int, ...]) -> Tensor:
    """Which four-dimensional kernel lies between an output and an input channel; −1 where none reaches.

    Kernels are numbered as in a weight of shape ``[c_out, c_in, *taps, …]``, channels as in ``[c, *sizes, …]``.
    """
    outputs, inputs = channels
    positions = list(product(*map(range, sizes)))
    number = torch.full((outputs, len(positions), inputs, len(positions)), -1, dtype=torch.int32, device="cpu")
    pairs = torch.arange(outputs * inputs, dtype=torch.int32, device="cpu").view(outputs, inputs)
    for (row, there), (column, here) in product(enumerate(positions), enumerate(positions)):
        tap = [source - place + k // 2 for place, source, k in zip(there, here, taps, strict=True)]
        if all(0 <= t < k for t, k in zip(tap, taps, strict=True)):
            flat = 0
            for t, k in zip(tap, taps, strict=True):
                flat = flat * k + t
            number[:, row, :, column] = pairs * torch.Size(taps).numel() + flat
    return rearrange(number, "o p i q -> (o p) (i q)").contiguous()
