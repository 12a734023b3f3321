"""n-dimensional convolution: the public function that checks a call and picks a back-end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from chmnet.errors import BackendError, InputError
from chmnet.ops import folded, native, reference

MAX_DIMENSIONS = 8


@dataclass(frozen=True)
class Backend:
    """One way to compute :func:`conv_nd`."""

    run: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    description: str
    refusals: Callable[[Tensor, Tensor], list[str]]
    """The reasons why this back-end cannot take an input and a kernel; empty when it can."""


_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _refusals(x: Tensor, weight: Tensor) -> list[str]:
    reasons = []
    if x.dtype not in _DTYPES:
        reasons.append(f"no arithmetic for {str(x.dtype).removeprefix('torch.')}")
    if x.layout != torch.strided or weight.layout != torch.strided:
        reasons.append("no sparse tensors")
    return reasons


BACKENDS: Mapping[str, Backend] = {
    "native": Backend(
        native.conv_nd, "compiled kernels for the CPU, float32, from four dimensions on", native.refusals
    ),
    "folded": Backend(folded.conv_nd, "PyTorch's own convolutions, any device", _refusals),
    "reference": Backend(reference.conv_nd, "the specification, slow", _refusals),
}
"""All back-ends by name, the fastest first: ``backend="auto"`` takes the first that does not refuse, but see
:data:`MANY_CHANNELS`."""

MANY_CHANNELS = 16
"""From so many channels on both sides, PyTorch's convolutions are faster in four dimensions: they run at the
processor's full rate there. docs/performance.md has the times."""


def available_backends() -> dict[str, str]:
    """Name and description of each back-end that can be asked for, the fastest first.

    Example:
        >>> {"folded", "reference"} <= set(available_backends())
        True
    """
    missing = unavailable_backends()
    return {name: backend.description for name, backend in BACKENDS.items() if name not in missing}


def unavailable_backends() -> dict[str, str]:
    """Name of each back-end that cannot be used on this machine, and why."""
    reason = native.unavailable()
    return {} if reason is None else {"native": reason}


def conv_nd(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, backend: str = "auto") -> Tensor:
    """Convolve over N dimensions (as in deep learning: the kernel is not turned round).

    ``y[b, o, p] = bias[o] + sum over i, d of weight[o, i, d] * x[b, i, p + d - k // 2]``, stride 1, zero
    padding that keeps the size.

    Args:
        x: ``[b, c_in, d1, …, dN]``, N from 1 to 8, any floating dtype and device.
        weight: ``[c_out, c_in, k1, …, kN]``, every ``k`` odd, dtype and device of ``x``.
        bias: ``[c_out]`` or nothing.
        backend: ``"auto"``, or one of :func:`available_backends`.

    Returns:
        ``[b, c_out, d1, …, dN]``, differentiable in all three arguments (twice with ``"reference"``).

    Raises:
        InputError: the shapes, dtypes or devices do not fit together.
        BackendError: the back-end does not exist or refuses this call; the message says why.

    Example:
        >>> import torch
        >>> correlation = torch.rand(1, 1, 3, 3, 4, 4, 4, 4)
        >>> kernel = torch.rand(2, 1, 3, 3, 5, 5, 5, 5)
        >>> conv_nd(correlation, kernel).shape
        torch.Size([1, 2, 3, 3, 4, 4, 4, 4])
    """
    _check(x, weight, bias)
    with torch.autocast(x.device.type, enabled=False):  # the dtype of x is the dtype of the result
        return BACKENDS[choose_backend(x, weight, backend)].run(x, weight, bias)


def conv_shared(
    x: Tensor, weight: Tensor, index: Tensor, bias: Tensor | None = None, *, backend: str = "auto"
) -> Tensor:
    """:func:`conv_nd` with a kernel whose taps share weights: ``conv_nd(x, weight[..., index], bias)``.

    The same numbers; with compiled kernels the gradient of the weights takes less time than that of every tap.

    Args:
        x: ``[b, c_in, d1, …, dN]``.
        weight: ``[c_out, c_in, n]``.
        index: ``[k1, …, kN]``, the number of each tap's weight.
        bias: ``[c_out]`` or nothing.
        backend: see :func:`conv_nd`, as for what is raised.

    Example:
        >>> weight, index = torch.tensor([[[1.0, 10.0]]]), torch.tensor([0, 1, 0])
        >>> conv_shared(torch.tensor([[[1.0, 2.0, 4.0]]]), weight, index).tolist()
        [[[12.0, 25.0, 42.0]]]
    """
    kernel = native.expand(weight, index)
    _check(x, kernel, bias)
    with torch.autocast(x.device.type, enabled=False):
        chosen = choose_backend(x, kernel, backend)
        if chosen == "native":
            return native.conv_shared(x, weight, index, bias)
        return BACKENDS[chosen].run(x, kernel, bias)


def conv_rows(x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice, *, backend: str = "auto") -> Tensor:
    """Some rows of :func:`conv_nd`, along the first of the last four dimensions, without gradients.

    Compiled kernels compute these rows only: a large input can be cut into pieces that overlap, at no more work.

    Args:
        x: as in :func:`conv_nd`, with at least four dimensions.
        weight: as there.
        bias: as there.
        rows: which, from a start to a stop within ``x``.
        backend: as there.

    Example:
        >>> x, weight = torch.rand(1, 1, 6, 4, 3, 5), torch.rand(1, 1, 3, 3, 3, 3)
        >>> torch.allclose(conv_rows(x, weight, None, slice(2, 4)), conv_nd(x, weight)[:, :, 2:4])
        True
    """
    _check(x, weight, bias)
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        chosen = choose_backend(x, weight, backend)
        if chosen == "native":
            return native.conv_rows(x, weight, bias, rows)
        return BACKENDS[chosen].run(x, weight, bias).narrow(-4, rows.start, rows.stop - rows.start)


def choose_backend(x: Tensor, weight: Tensor, backend: str = "auto") -> str:
    """Name of the back-end asked for, or of the fastest that takes the call.

    Raises:
        BackendError: there is none.

    Example:
        >>> choose_backend(torch.rand(1, 16, 4, 4, 4, 4), torch.rand(16, 16, 3, 3, 3, 3))
        'folded'
    """
    if backend != "auto" and backend not in BACKENDS:
        raise BackendError(f"unknown back-end {backend!r}; use one of auto, {', '.join(BACKENDS)}")
    candidates = list(BACKENDS) if backend == "auto" else [backend]
    if backend == "auto" and x.dim() == 6 and min(weight.shape[:2]) >= MANY_CHANNELS:
        candidates.sort(key=lambda name: name != "folded")
    refusals = {}
    for candidate in candidates:
        refusals[candidate] = BACKENDS[candidate].refusals(x, weight)
        if not refusals[candidate]:
            return candidate
    reasons = "; ".join(f"{candidate}: {', '.join(why)}" for candidate, why in refusals.items())
    raise BackendError(f"no back-end takes this convolution ({reasons}); convert the tensors")


def _check(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    dimensions = x.dim() - 2
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise InputError(
            f"x must be [b, c_in, d1, …, dN] with N from 1 to {MAX_DIMENSIONS}, got shape {list(x.shape)}"
        )
    if weight.dim() != x.dim():
        raise InputError(
            f"weight must be [c_out, c_in, k1, …, kN] with the {dimensions} dimensions of x, "
            f"got shape {list(weight.shape)} for x of shape {list(x.shape)}"
        )
    for size in weight.shape[2:]:
        if size % 2 == 0:
            raise InputError(f"kernel sizes must be odd, got {size}; use {abs(size - 1)} or {size + 1}")
    if weight.shape[1] != x.shape[1]:
        raise InputError(
            f"weight takes {weight.shape[1]} input channels but x has {x.shape[1]}; make the two equal"
        )
    if 0 in x.shape[1:] or weight.shape[0] == 0:
        raise InputError(
            f"only the batch may be empty, got x of shape {list(x.shape)}, weight {list(weight.shape)}"
        )
    if bias is not None and bias.shape != (weight.shape[0],):
        raise InputError(
            f"bias must have one value for each of the {weight.shape[0]} output channels, "
            f"got shape {list(bias.shape)}"
        )
    if not x.is_floating_point():
        raise InputError(f"x must be a floating-point tensor, got {x.dtype}; convert it with x.float()")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is None:
            continue
        if tensor.dtype != x.dtype:
            raise InputError(f"{name} must have the dtype of x ({x.dtype}), got {tensor.dtype}; convert one")
        if tensor.device != x.device:
            raise InputError(f"{name} must be on the device of x ({x.device}), got {tensor.device}; move one")
