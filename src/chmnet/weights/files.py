"""Model files: safetensors that carry their configuration. Nothing in them is ever executed."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from chmnet import __version__
from chmnet.atomic import atomic_path
from chmnet.config import ModelConfig
from chmnet.errors import WeightsError
from chmnet.nn.chmnet import CHMNet

FORMAT = "chmnet-model-1"


def save_model(
    model: CHMNet, path: str | Path, notes: dict[str, Any] | None = None, overwrite: bool = True
) -> None:
    """Write a model with its configuration, whole or not at all.

    Args:
        model: the network.
        path: a file name that ends in ``.safetensors``.
        notes: anything JSON can hold: training data, measured figures, licences.
        overwrite: whether an existing file may be replaced.
    """
    if Path(path).suffix != ".safetensors":
        raise WeightsError(f"a model file must end in .safetensors, got {Path(path).name!r}")
    metadata = {
        "format": FORMAT,
        "chmnet_version": __version__,
        "config": json.dumps(model.config.to_dict()),
        "notes": json.dumps(notes or {}),
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    with atomic_path(path, overwrite) as temporary:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:  # how safetensors reports a full disk
            raise WeightsError(f"cannot write {path}: {error}") from None


def load_model_file(path: str | Path) -> CHMNet:
    """Read a model that :func:`save_model` wrote, ready for inference.

    Raises:
        WeightsError: the file is missing, broken, of another kind, or its tensors do not fit its
            configuration.
    """
    tensors, metadata = read_tensors(path)
    if metadata.get("format") != FORMAT:
        raise WeightsError(
            f"{path} is not a chmnet model: its format is {metadata.get('format', 'not given')!r}, expected "
            f"{FORMAT!r}; `chmnet convert` turns the authors' checkpoints into one"
        )
    if "config" not in metadata:
        raise WeightsError(f"{path} holds no usable configuration: its metadata has no `config`")
    try:
        config = ModelConfig.from_dict(json.loads(metadata["config"]), where="its configuration")
        with torch.device("meta"):  # shapes only: nothing is allocated before they are known to fit
            model = CHMNet(config)
    except (ValueError, RecursionError) as error:  # broken JSON, or a ConfigError
        raise WeightsError(f"{path} holds no usable configuration: {error}") from None
    load_exactly(model, tensors, path)
    return model.eval()


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
