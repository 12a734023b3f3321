"""Tensors out of safetensors files, and into modules that they fit exactly."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from chmnet.errors import WeightsError


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a safetensors file, and its metadata."""
    path = Path(path)
    try:
        if not path.is_file():
            raise WeightsError(f"there is no weight file {path}")
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is not a whole safetensors file: {error}") from None
    return tensors, metadata


def load_exactly(module: torch.nn.Module, tensors: dict[str, Tensor], origin: str | Path) -> None:
    """Give a module its tensors; every name and shape must fit, every number must be finite."""
    expected = module.state_dict()
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    for names, what in ((missing, "lacks"), (unknown, "has unknown")):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise WeightsError(f"{origin} {what} {', '.join(names[:3])}{more}; it belongs to another model")
    loaded = {}
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise WeightsError(
                f"{origin}: {name} has shape {list(tensor.shape)}, expected {list(expected[name].shape)}; "
                "it belongs to another model"
            )
        device = "cpu" if expected[name].is_meta else expected[name].device
        try:
            loaded[name] = tensor.to(device, expected[name].dtype)
        except (RuntimeError, NotImplementedError):
            raise WeightsError(f"{origin}: {name} is of type {tensor.dtype}, which cannot be converted") from None
        if not loaded[name].isfinite().all():
            raise WeightsError(f"{origin}: {name} holds values that are not finite; the file is damaged")
    trainable = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
    module.load_state_dict(loaded, assign=True)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(trainable[name])
