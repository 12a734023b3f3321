"""Model files: safetensors that carry their configuration. Nothing in them is ever executed."""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from chmnet import __version__
from chmnet.config import ModelConfig
from chmnet.errors import WeightsError
from chmnet.files import atomic_path, load_exactly, read_tensors
from chmnet.nn.backbones import Backbone
from chmnet.nn.chmnet import CHMNet
from chmnet.weights.backbones import load_backbone_weights

FORMAT = "chmnet-model-1"
_BACKBONES = ("backbone.", "target_backbone.")


def save_model(
    model: CHMNet,
    path: str | Path,
    notes: dict[str, Any] | None = None,
    overwrite: bool = True,
    half: bool = False,
    backbone_weights: str = "",
) -> None:
    """Write a model with its configuration, whole or not at all.

    Args:
        model: the network.
        path: a file name that ends in ``.safetensors``.
        notes: anything JSON can hold: training data, measured figures, licences.
        overwrite: whether an existing file may be replaced.
        half: keep numbers in half precision; they are read back in single precision.
        backbone_weights: leave the backbone out, and say where its weights come from: ``"package"``, or a name
            for people to read.

    Raises:
        WeightsError: the name ends otherwise, the network was made ready for inference, or its numbers do not fit
            into half precision.
    """
    if Path(path).suffix != ".safetensors":
        raise WeightsError(f"a model file must end in .safetensors, got {Path(path).name!r}")
    with torch.device("meta"):
        expected = CHMNet(model.config).state_dict().keys()
    if model.state_dict().keys() != expected:
        raise WeightsError("a network made ready for inference cannot be saved; save the model it was made from")
    metadata = {
        "format": FORMAT,
        "chmnet_version": __version__,
        "config": json.dumps(model.config.to_dict()),
        "notes": json.dumps(notes or {}),
        **({"backbone_weights": backbone_weights} if backbone_weights else {}),
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    if backbone_weights:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(_BACKBONES)}
    if half:
        tensors = {name: _halved(name, tensor) for name, tensor in tensors.items()}
    _write(tensors, metadata, path, overwrite)


def _write(tensors: dict[str, Tensor], metadata: dict[str, str], path: str | Path, overwrite: bool) -> None:
    with atomic_path(path, overwrite) as temporary:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:  # how safetensors reports a full disk
            raise WeightsError(f"cannot write {path}: {error}") from None


def _halved(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    half = tensor.half()
    if not half.isfinite().all():
        raise WeightsError(f"{name} holds numbers beyond half precision; write the model without it")
    return half


def load_model_file(path: str | Path, backbone_weights: str | Path = "") -> CHMNet:
    """Read a model that :func:`save_model` wrote, ready for inference.

    Args:
        path: the file.
        backbone_weights: where the backbone's weights are, for a file without them; see
            :func:`chmnet.weights.load_backbone_weights`. Those of the default backbone are found by themselves.

    Raises:
        WeightsError: the file is missing, broken, of another kind, or its tensors do not fit its
            configuration.
    """
    tensors, metadata = read_tensors(path)
    model = _empty_model(path, metadata)
    origin = metadata.get("backbone_weights")
    if origin is None:
        if backbone_weights:
            raise WeightsError(f"{path} has its own backbone; leave the backbone's weights out")
        load_exactly(model, tensors, path)
        return model.eval()
    if not backbone_weights and origin != "package":
        raise WeightsError(
            f"{Path(path).name} comes without its backbone ({origin}); name the file with its weights "
            "(--backbone-weights)"
        )
    load_exactly(model.head, {name.removeprefix("head."): tensor for name, tensor in tensors.items()}, path)
    for backbone in (model.backbone, model.target_backbone):
        if backbone is not None:
            backbone.to_empty(device="cpu")
            for buffer in backbone.buffers():  # a weight file may lack the number of batches, which nothing uses
                buffer.zero_()
            load_backbone_weights(backbone, backbone_weights or origin)
    return model.eval()


def _empty_model(path: str | Path, metadata: dict[str, str]) -> CHMNet:
    """The network that a file's metadata describes, shapes only: nothing is allocated before tensors fit it."""
    if metadata.get("format") != FORMAT:
        raise WeightsError(
            f"{path} is not a chmnet model: its format is {metadata.get('format', 'not given')!r}, expected "
            f"{FORMAT!r}; `chmnet convert` turns the authors' checkpoints into one"
        )
    if "config" not in metadata:
        raise WeightsError(f"{path} holds no usable configuration: its metadata has no `config`")
    try:
        config = ModelConfig.from_dict(json.loads(metadata["config"]), where="its configuration")
        with torch.device("meta"):
            return CHMNet(config)
    except (ValueError, RecursionError) as error:  # broken JSON, or a ConfigError
        raise WeightsError(f"{path} holds no usable configuration: {error}") from None


def shrink_model_file(
    path: str | Path, output: str | Path, half: bool, backbone_weights: str = "", overwrite: bool = False
) -> None:
    """Write a model file again with fewer bytes, its notes with it; see :func:`save_model`.

    Raises:
        WeightsError: the file cannot be used, or its backbone is not that of the package it should come from.
    """
    model = load_model_file(path)
    if backbone_weights == "package":
        for backbone in (model.backbone, model.target_backbone):
            if backbone is not None and not _is_packaged(backbone):
                raise WeightsError(
                    f"the backbone of {path} is not the package's: it was trained further, or kept in half "
                    "precision; keep it in the file"
                )
    save_model(model, output, read_notes(path), overwrite, half, backbone_weights)


def save_calibrated(
    path: str | Path, calibration: tuple[float, ...], output: str | Path, origin: str, overwrite: bool = False
) -> None:
    """Write a model file again with another calibration of its confidence; nothing else changes.

    Args:
        path: a model file.
        calibration: four numbers, see :class:`chmnet.config.TransferConfig`.
        output: the file to write.
        origin: what the calibration was fitted to, for people to read.
        overwrite: whether an existing file may be replaced.

    Raises:
        WeightsError: the file cannot be used.
    """
    tensors, metadata = read_tensors(path)
    config = _empty_model(path, metadata).config.replace(transfer={"calibration": calibration})
    notes = {**read_notes(path), "calibration": origin}
    _write(
        tensors,
        {**metadata, "config": json.dumps(config.to_dict()), "notes": json.dumps(notes)},
        output,
        overwrite,
    )


def _is_packaged(backbone: Backbone) -> bool:
    plain = copy.deepcopy(backbone)
    load_backbone_weights(plain, "package")
    mine, packaged = backbone.state_dict(), plain.state_dict()
    return all(torch.equal(mine[name], tensor) for name, tensor in packaged.items())


def read_notes(path: str | Path) -> dict[str, Any]:
    """What a model file says of itself: training data, measured figures, licences.

    Raises:
        WeightsError: the file cannot be read, or its notes are no JSON table.
    """
    try:
        notes = json.loads(read_tensors(path)[1].get("notes", "{}"))
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} holds notes that are not JSON: {error}") from None
    if not isinstance(notes, dict):
        raise WeightsError(f"{path} holds notes that are no table; it was not written by chmnet")
    return notes
