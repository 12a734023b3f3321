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


def conv_shared(
    x: Tensor, weight: Tensor, index: Tensor, bias: Tensor | None = None, instructions: str | None = None
) -> Tensor:
    """Convolve with a kernel whose taps share weights; see :func:`chmnet.ops.conv_shared`.

    The gradient of the weights needs no gradient of every tap: where taps that are each other's mirror images, or
    whole slices of the leading dimensions, share their weights, planes are added up before they are multiplied.
    """
    return _SharedConvolution.apply(x, weight, index, bias, instructions or instruction_sets()[0])


def conv_rows(x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice) -> Tensor:
    """Some rows of :func:`conv_nd`, without gradients; see :func:`chmnet.ops.conv_nd.conv_rows`."""
    return _convolve(x, weight, bias, instruction_sets()[0], rows)


def conv_pivot(
    x: Tensor,
    source: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    rows: slice | None = None,
    instructions: str | None = None,
) -> Tensor:
    """Convolve one channel by the sum of two kernels, over the source and over the target, without gradients.

    Args:
        x: ``[b, 1, hs, ws, ht, wt]``.
        source: ``[1, 1, k, k, 1, 1]``.
        target: ``[1, 1, 1, 1, k, k]``.
        bias: ``[1]`` or nothing.
        rows: positions along ``hs`` that are wanted; all if ``None``.
        instructions: one of :func:`instruction_sets`; the fastest if ``None``.
    """
    library = _library()
    assert not isinstance(library, str), library
    first, last = (0, x.shape[2]) if rows is None else (rows.start, rows.stop)
    output = x.new_empty(len(x), 1, last - first, *x.shape[3:])
    library.convolve_pivot(
        _plain(x),
        _plain(source)[0, 0, :, :, 0, 0].contiguous(),
        _plain(target)[0, 0, 0, 0].contiguous(),
        bias=0.0 if bias is None else bias.item(),
        result=output,
        first=first,
        instructions=instructions or instruction_sets()[0],
        threads=torch.get_num_threads(),
    )
    return output


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
            of_x = _input_gradient(weight, gradient, ctx.instructions)
        if wants_weight:
            of_weight = _weight_gradient(x, gradient, weight.shape, ctx.instructions)
        if wants_bias:
            of_bias = _bias_gradient(gradient)
        return of_x, of_weight, of_bias, None


class _SharedConvolution(torch.autograd.Function):
    """Convolution with shared weights and its gradients."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, index: Tensor, bias: Tensor | None, instructions: str
    ) -> Tensor:
        ctx.save_for_backward(x, weight, index)
        ctx.instructions = instructions
        return _convolve(x, expand(weight, index), bias, instructions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, Tensor | None, None]:
        x, weight, index = ctx.saved_tensors
        wants_x, wants_weight, _, wants_bias, _ = ctx.needs_input_grad
        of_x = of_weight = of_bias = None
        if wants_x:
            of_x = _input_gradient(expand(weight, index), gradient, ctx.instructions)
        if wants_weight:
            shape = torch.Size((*weight.shape[:2], *index.shape))
            of_taps = _weight_gradient(x, gradient, shape, ctx.instructions, index)
            of_weight = torch.zeros_like(weight).index_add_(2, index.flatten(), of_taps.flatten(2))
        if wants_bias:
            of_bias = _bias_gradient(gradient)
        return of_x, of_weight, None, of_bias, None


def expand(weight: Tensor, index: Tensor) -> Tensor:
    """The kernel ``[c_out, c_in, *taps]`` of weights ``[c_out, c_in, n]`` and the number of each tap's weight."""
    return weight.index_select(-1, index.flatten()).unflatten(-1, index.shape)


def _input_gradient(weight: Tensor, gradient: Tensor, instructions: str) -> Tensor:
    return _convolve(gradient, weight.flip(*range(2, weight.dim())).transpose(0, 1), None, instructions)


def _bias_gradient(gradient: Tensor) -> Tensor:
    return gradient.sum([0, *range(2, gradient.dim())])


def _convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, instructions: str, rows: slice | None = None
) -> Tensor:
    library = _library()
    assert not isinstance(library, str), library
    leading = x.shape[2:-4]
    first, last = (0, x.shape[-4]) if rows is None else (rows.start, rows.stop)
    output = x.new_empty(x.shape[0], weight.shape[0], *leading, last - first, *x.shape[-3:])
    library.convolve(
        _channels(x),
        _kernels(weight),
        _table(weight.shape[:2], leading, weight.shape[2:-4]),
        family=weight.shape[2:-4].numel(),
        bias=x.new_empty(0) if bias is None else _plain(bias).repeat_interleave(leading.numel()),
        result=_channels(output),
        first=first,
        instructions=instructions,
        threads=torch.get_num_threads(),
    )
    return output


def _weight_gradient(
    x: Tensor, gradient: Tensor, shape: torch.Size, instructions: str, index: Tensor | None = None
) -> Tensor:
    """Gradient of a kernel. With the number of each tap's weight only its sums over a weight's taps are right."""
    library = _library()
    output = x.new_empty(shape)
    table, halved = _table(shape[:2], x.shape[2:-4], shape[2:-4]), False
    assert not isinstance(library, str), library
    if index is not None:
        slices = index.reshape(-1, *index.shape[-4:])
        halved = all(torch.equal(slices, slices.flip(axes)) for axes in ((1, 3), (2, 4)))
        table = _merged(table, slices)
    library.kernel_gradient(
        _channels(x),
        _channels(gradient),
        table,
        halved=halved,
        result=_kernels(output),
        instructions=instructions,
        threads=torch.get_num_threads(),
    )
    return output


def _merged(table: Tensor, slices: Tensor) -> Tensor:
    """A table in which slices whose taps have the same weights count as the first of them."""
    family = [next(i for i in range(len(slices)) if torch.equal(slices[i], each)) for each in slices]
    if family == list(range(len(slices))):
        return table
    first = table.new_tensor(family)
    number = table.div(len(slices), rounding_mode="floor") * len(slices) + first[table % len(slices)]
    return torch.where(table < 0, table, number)


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
