from torch import Tensor

def instruction_sets() -> list[str]: ...
def convolve(
    x: Tensor,
    kernels: Tensor,
    table: Tensor,
    family: int,
    bias: Tensor,
    result: Tensor,
    first: int,
    instructions: str,
    threads: int,
) -> None: ...
def convolve_pivot(
    x: Tensor,
    source: Tensor,
    target: Tensor,
    bias: float,
    result: Tensor,
    first: int,
    instructions: str,
    threads: int,
) -> None: ...
def kernel_gradient(
    x: Tensor, gradient: Tensor, table: Tensor, halved: bool, result: Tensor, instructions: str, threads: int
) -> None: ...
