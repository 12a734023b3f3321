"""Each function of the compiled module against the specification, called as ``native.py`` calls it."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from chmnet.ops import native, reference

from .exact import Exact
from .test_conv_nd import Shape, strided

if find_spec("chmnet._native") is None:
    pytest.skip("the package was built without its compiled kernels", allow_module_level=True)

from chmnet import _native

every_instruction_set = pytest.mark.parametrize("instructions", native.instruction_sets())
NONE = -1

# (shape of x, taps, which kernel joins an output with an input, kernels in a family, symmetric)
CASES: dict[str, tuple[Shape, Shape, list[list[int]], int, bool]] = {
    "one kernel": ((2, 1, 4, 6, 4, 8), (5, 5, 5, 5), [[0]], 1, False),
    "symmetric": ((1, 1, 7, 9, 5, 11), (5, 5, 5, 5), [[0]], 1, True),
    "whole vectors": ((1, 1, 6, 4, 6, 32), (3, 5, 3, 5), [[0]], 1, True),
    "one position": ((1, 1, 1, 1, 1, 1), (5, 5, 5, 5), [[0]], 1, True),
    "one row": ((1, 1, 1, 1, 1, 17), (5, 5, 5, 5), [[0], [1]], 1, False),
    "long and thin": ((1, 1, 2, 1, 40, 2), (3, 3, 3, 7), [[0]], 1, True),
    "one tap": ((2, 3, 2, 3, 2, 3), (1, 1, 1, 1), [[0, 1, 2], [3, 4, 5]], 3, False),
    "other kernels for all": ((1, 2, 3, 5, 7, 1), (3, 1, 5, 3), [[0, 1], [2, 3], [4, 5]], 1, False),
    "shared kernels": ((2, 3, 4, 3, 4, 5), (3, 3, 3, 3), [[1, 0, 1], [0, 1, 0]], 1, False),
    "shared and symmetric": ((1, 3, 4, 3, 4, 5), (5, 5, 5, 5), [[1, 0, 2], [0, 1, 0], [2, 2, 1]], 3, True),
    "pairs without a kernel": ((1, 3, 4, 3, 4, 5), (3, 3, 3, 3), [[1, 0, NONE], [NONE, 1, 0]], 2, False),
    "an output without kernels": ((1, 2, 3, 3, 3, 3), (3, 3, 3, 3), [[NONE, NONE], [0, 1]], 1, False),
    "many channels": ((1, 7, 3, 4, 3, 5), (5, 5, 5, 5), [[*range(7)], [*range(7, 14)]], 7, False),
}


def weight_of(kernels: Tensor, table: Tensor) -> Tensor:
    """The kernel ``[outputs, inputs, *taps]`` that a table stands for."""
    return kernels[table.clamp(min=0).long()] * (table >= 0)[:, :, None, None, None, None]


def joined_by(table: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda x, kernels, bias: reference.conv_nd(x, weight_of(kernels, table), bias)


@cache
def case(name: str) -> tuple[Exact, Tensor, int]:
    """What the specification gives, the table, and the size of a family, whose last kernels are equal."""
    shape, taps, rows, family, symmetric = CASES[name]
    generator = torch.Generator().manual_seed(2)
    table = torch.tensor(rows, dtype=torch.int32)
    kernels = torch.randn(int(table.max()) + 1, *taps, generator=generator)
    if symmetric:  # as kernels that share weights among offsets
        kernels = (kernels + kernels.flip(1, 3)) / 2
        kernels = (kernels + kernels.flip(2, 4)) / 2
    if family > 1:
        kernels[family - 1] = kernels[family - 2]
    x = torch.randn(shape, generator=generator)
    bias = torch.randn(len(rows), generator=generator)
    incoming = torch.randn(shape[0], len(rows), *shape[2:], generator=generator)
    return Exact(joined_by(table), [x, kernels, bias], incoming), table, family


def called(
    exact: Exact, table: Tensor, family: int, instructions: str, threads: int, layout: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Output and gradients of input, kernels and bias, by the compiled functions alone."""
    x, kernels, bias = exact.arguments
    output, of_x, of_kernels = (
        torch.full_like(exact.incoming, torch.nan),
        torch.full_like(x, torch.nan),
        kernels.clone(),
    )
    options = {"instructions": instructions, "threads": threads}
    _native.convolve(layout(x), kernels, table, family=family, bias=bias, result=output, first=0, **options)
    turned = kernels.flip(1, 2, 3, 4).contiguous()
    back = table.T.contiguous()
    nothing = torch.zeros(0)
    _native.convolve(
        layout(exact.incoming), turned, back, family=family, bias=nothing, result=of_x, first=0, **options
    )
    _native.kernel_gradient(layout(x), layout(exact.incoming), table, halved=False, result=of_kernels, **options)
    return [output, of_x, of_kernels, exact.incoming.sum((0, 2, 3, 4, 5))]


@every_instruction_set
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("layout", [Tensor.contiguous, strided], ids=["contiguous", "strided"])
@pytest.mark.parametrize("threads", [1, 3])
def test_output_and_gradients(
    instructions: str, name: str, layout: Callable[[Tensor], Tensor], threads: int
) -> None:
    """At most twice the error of the specification in single precision."""
    exact, table, family = case(name)
    exact.assert_holds(called(exact, table, family, instructions, threads, layout))


def test_the_fastest_instruction_set_comes_first_and_the_plain_one_last() -> None:
    names = _native.instruction_sets()
    assert names[-1] == "plain"
    assert names == [name for name in ("avx512", "avx2", "plain") if name in names]


def arguments() -> dict[str, object]:
    return {
        "x": torch.rand(1, 1, 3, 3, 3, 3),
        "kernels": torch.rand(1, 3, 3, 3, 3),
        "table": torch.zeros(1, 1, dtype=torch.int32),
        "family": 1,
        "bias": torch.zeros(0),
        "result": torch.empty(1, 1, 3, 3, 3, 3),
        "first": 0,
        "instructions": "plain",
        "threads": 1,
    }


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("instructions", "mmx", "instruction set"),
        ("threads", 0, "threads"),
        ("family", 2, "families"),
        ("family", 0, "families"),
        ("bias", torch.zeros(3), "bias"),
        ("kernels", torch.rand(1, 2, 3, 3, 3), "odd"),
        ("table", torch.ones(1, 1, dtype=torch.int32), "no such kernel"),
        ("table", torch.full((1, 1), -2, dtype=torch.int32), "no such kernel"),
        ("table", torch.zeros(1, 2, dtype=torch.int32), "column"),
        ("result", torch.empty(1, 1, 3, 3, 3, 4), "wrong shape"),
        ("result", torch.empty(2, 1, 3, 3, 3, 3), "wrong shape"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_convolve_checks_what_it_gets(name: str, value: object, fact: str) -> None:
    _native.convolve(**arguments())
    with pytest.raises(ValueError, match=fact):
        _native.convolve(**{**arguments(), name: value})


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("instructions", "mmx", "instruction set"),
        ("threads", 0, "table"),
        ("table", torch.ones(1, 1, dtype=torch.int32), "no such kernel"),
        ("table", torch.zeros(2, 1, dtype=torch.int32), "row"),
        ("gradient", torch.rand(1, 1, 3, 3, 3, 4), "size"),
        ("gradient", torch.rand(2, 1, 3, 3, 3, 3), "table"),
        ("result", torch.empty(1, 3, 4, 3, 3), "odd"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kernel_gradient_checks_what_it_gets(name: str, value: object, fact: str) -> None:
    good = {key: arguments()[key] for key in ("x", "table", "instructions", "threads")}
    good |= {"gradient": torch.rand(1, 1, 3, 3, 3, 3), "halved": False, "result": torch.empty(1, 3, 3, 3, 3)}
    _native.kernel_gradient(**good)
    with pytest.raises(ValueError, match=fact):
        _native.kernel_gradient(**{**good, name: value})
