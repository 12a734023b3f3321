"""Models: by name or from files, which are safetensors that describe themselves. Nothing in them is executed."""

import copy
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chmnet import __version__
from chmnet.config import (
    BackboneConfig,
    CalibrationConfig,
    CorrelationConfig,
    ModelConfig,
    NoVotesConfig,
    OutputConfig,
    TransferConfig,
)
from chmnet.errors import WeightsError
from chmnet.files import load_exactly, read_metadata, read_tensors, write_tensors
from chmnet.nn.backbones import Backbone
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.facing import Facing
from chmnet.nn.foreground import Foreground
from chmnet.nn.prior import HoughPrior, apply_hough_prior
from chmnet.weights.backbones import load_backbone_weights, read_backbone_file

DEFAULT_MODEL = "chmnet-lite"
FORMAT = "chmnet-model-1"
_FOLDER = Path(__file__).parent.parent / "models"
_BACKBONES = ("backbone.", "target_backbone.")
PROBES = ("foreground", "facing")
"""Parts of a network that are fitted to its features after training."""


@dataclass(frozen=True)
class KnownModel:
    """A model that can be asked for by name. A trained one is described by its file, and by nothing else."""

    file: str = ""
    """Its trained weights, a file in the package's folder ``models``; empty: nothing was trained."""
    untrained: ModelConfig = field(default_factory=ModelConfig)
    """The configuration of a model that learned nothing."""
    words: str = ""
    """What a model that learned nothing is."""
    prior: HoughPrior | None = None
    """What its Hough layers know; ``None``: there are none."""

    @property
    def path(self) -> Path:
        """Where the trained weights lie."""
        return _FOLDER / self.file

    @cached_property
    def _metadata(self) -> dict[str, str]:
        return read_metadata(self.path) if self.file else {}

    @cached_property
    def config(self) -> ModelConfig:
        """The network's configuration."""
        return _read_config(self.path, self._metadata) if self.file else self.untrained

    @property
    def notes(self) -> dict[str, Any]:
        """What its file says of it: training data, measured figures, licences."""
        return read_notes(self.path) if self.file else {}

    @property
    def description(self) -> str:
        """One line for people."""
        return str(self.notes.get("description", "")) if self.file else self.words


def load_model(
    model: str | Path = DEFAULT_MODEL,
    backbone: str = "",
    backbone_weights: str | Path = "",
    changes: Mapping[str, Any] | None = None,
    backend: str = "auto",
) -> CHMNet:
    """A model by name, or from a ``.safetensors`` file, ready for inference.

    Args:
        model: a name from ``MODELS``, or a path.
        backbone: another backbone for a model that learned nothing, such as ``"resnet50"``.
        backbone_weights: that backbone's weights: a file, ``"package"`` or ``"published"``.
        changes: other fields of the configuration, for a model that learned nothing.
        backend: who computes the votes; see :class:`chmnet.CHMNet`.

    Example:
        >>> load_model("nearest-neighbour").config.matching.kind
        'none'
    """
    if not isinstance(model, str | Path) or not str(model) or model == Path():
        raise WeightsError(f"a model must be a name or a file's path, got {model!r}")
    untrained = ", ".join(name for name, known in MODELS.items() if not known.file)
    if str(model) in MODELS:
        known = MODELS[str(model)]
        if known.file:
            if backbone not in ("", known.config.backbone.name) or changes:
                raise WeightsError(f"{model} was trained as it is; only {untrained} take changes")
            return load_model_file(known.path, backbone_weights, backend)
        chosen = _choose_backbone(known.config, backbone, backbone_weights)
        config = known.config.replace(backbone=chosen)
        if chosen != known.config.backbone:  # other features, other scores
            config = config.replace(calibration=CalibrationConfig())
        return _build(config.replace(**(changes or {})), backbone_weights, known.prior, backend)
    if not (Path(model).suffix or Path(model).exists()):
        raise WeightsError(f"there is no model {str(model)!r}; use one of {', '.join(MODELS)}, or a file's path")
    if backbone or changes:
        raise WeightsError(f"{model} has its own backbone and configuration; only {untrained} take others")
    return load_model_file(model, backbone_weights, backend)


def _choose_backbone(config: ModelConfig, name: str, weights: str | Path) -> BackboneConfig:
    if name in ("", config.backbone.name):
        return config.backbone
    chosen = BackboneConfig.from_dict({"name": name}, where="the backbone")
    if str(weights) not in ("", "package", "published"):
        stride_on = read_backbone_file(Path(weights))[1]
        if stride_on is not None:  # the file says for which of the two places it was made
            return chosen.replace(stride_on=stride_on)
    return chosen


def _build(config: ModelConfig, weights: str | Path, prior: HoughPrior | None, backend: str) -> CHMNet:
    if not weights and config.backbone.name != "efficientnet-lite0":
        what = "name a file, or `published` to download torchvision's"
        raise WeightsError(f"{config.backbone.name} needs weights: {what}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = CHMNet(config, backend)
    if prior is not None:
        apply_hough_prior(model.head, prior)
    for backbone in _backbones(model):
        load_backbone_weights(backbone, weights or "package")
    return model.eval()


def _backbones(model: CHMNet) -> list[Backbone]:
    """The one backbone, or that of each branch."""
    return [model.backbone] if model.target_backbone is None else [model.backbone, model.target_backbone]


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
    write_tensors(path, tensors, metadata, overwrite)


def _halved(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    half = tensor.half()
    if not half.isfinite().all():
        raise WeightsError(f"{name} holds numbers beyond half precision; write the model without it")
    return half


def load_model_file(path: str | Path, backbone_weights: str | Path = "", backend: str = "auto") -> CHMNet:
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
    config = _read_config(path, metadata)
    try:
        with torch.device("meta"):  # shapes only: nothing is allocated before the tensors fit
            model = CHMNet(config, backend)
    except ValueError as error:  # a ConfigError: layers that the backbone does not have
        raise WeightsError(f"{path} holds no usable configuration: {error}") from None
    origin = metadata.get("backbone_weights")
    if origin is None:
        if backbone_weights:
            raise WeightsError(f"{path} has its own backbone; leave the backbone's weights out")
        load_exactly(model, tensors, path)
        return model.eval()
    if not backbone_weights and origin != "package":
        name = f"{Path(path).name} comes without its backbone ({origin})"
        raise WeightsError(f"{name}; name the file with its weights (--backbone-weights)")
    probes = {name: probe for name in PROBES if (probe := getattr(model, name)) is not None}
    rest = nn.ModuleDict({"head": model.head, **probes})
    load_exactly(rest, tensors, path)
    for backbone in _backbones(model):
        backbone.to_empty(device="cpu")
        for buffer in backbone.buffers():  # a weight file may lack the number of batches, which nothing uses
            buffer.zero_()
        load_backbone_weights(backbone, backbone_weights or origin)
    return model.eval()


def read_model_config(model: str | Path) -> ModelConfig:
    """The configuration of a model by name, or of a model file.

    Raises:
        WeightsError: there is no such model.
    """
    if str(model) in MODELS:
        return MODELS[str(model)].config
    return _read_config(model, read_metadata(model))


def needs_backbone(model: str | Path) -> bool:
    """Whether a model file comes without its backbone's weights: they must be named. No model by name does."""
    if str(model) in MODELS or not Path(model).is_file():
        return False
    return read_metadata(model).get("backbone_weights", "package") != "package"


def _read_config(path: str | Path, metadata: dict[str, str]) -> ModelConfig:
    """The configuration that a file's metadata holds."""
    if metadata.get("format") != FORMAT:
        raise WeightsError(
            f"{path} is not a chmnet model: its format is {metadata.get('format', 'not given')!r}, expected "
            f"{FORMAT!r}; `chmnet convert` turns the authors' checkpoints into one"
        )
    if "config" not in metadata:
        raise WeightsError(f"{path} holds no usable configuration: its metadata has no `config`")
    try:
        with warnings.catch_warnings():  # a file of version 0.1 is nothing that its user could change
            warnings.simplefilter("ignore", DeprecationWarning)
            return ModelConfig.from_dict(json.loads(metadata["config"]), where="its configuration")
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
    if backbone_weights == "package" and not all(map(_is_packaged, _backbones(model))):
        raise WeightsError(
            f"the backbone of {path} is not the package's: it was trained further, or kept in half precision; "
            "keep it in the file"
        )
    save_model(model, output, read_notes(path), overwrite, half, backbone_weights)


def save_calibrated(
    path: str | Path, calibration: CalibrationConfig, output: str | Path, origin: str, overwrite: bool = False
) -> None:
    """Write a model file again with another calibration of its confidence; nothing else changes.

    Args:
        path: the model file to read.
        calibration: all of it; see :func:`chmnet.evaluation.calibrate.fit_calibration`.
        output: the file to write.
        origin: what the calibration was fitted to, for people to read.
        overwrite: whether an existing file may be replaced.

    Raises:
        WeightsError: the file cannot be used.
    """
    tensors, metadata = read_tensors(path)
    config = _read_config(path, metadata).replace(calibration=calibration)
    notes = {**read_notes(path), "calibration": origin}
    metadata |= {"config": json.dumps(config.to_dict()), "notes": json.dumps(notes)}
    write_tensors(output, tensors, metadata, overwrite)


def save_probe(
    path: str | Path, probe: Foreground | Facing, output: str | Path, origin: str, overwrite: bool = False
) -> None:
    """Write a model file again with another probe of its features; nothing else changes.

    Args:
        path: the model file to read.
        probe: see :func:`chmnet.evaluation.foreground.fit_foreground` and
            :func:`chmnet.evaluation.facing.fit_facing`.
        output: the file to write.
        origin: what the probe was fitted to, for people to read.
        overwrite: whether an existing file may be replaced.

    Raises:
        WeightsError: the file cannot be used.
    """
    tensors, metadata = read_tensors(path)
    name, setting = ("foreground", True) if isinstance(probe, Foreground) else ("facing", probe.width)
    config = _read_config(path, metadata).replace(**{name: setting})
    tensors |= {f"{name}.{part}": tensor.half() for part, tensor in probe.state_dict().items()}
    notes = {**read_notes(path), name: origin}
    metadata |= {"config": json.dumps(config.to_dict()), "notes": json.dumps(notes)}
    write_tensors(output, tensors, metadata, overwrite)


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
        notes = json.loads(read_metadata(path).get("notes", "{}"))
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} holds notes that are not JSON: {error}") from None
    if not isinstance(notes, dict):
        raise WeightsError(f"{path} holds notes that are no table; it was not written by chmnet")
    return notes


_PRIOR = ModelConfig(
    backbone=BackboneConfig("efficientnet-lite0", ("blocks.8", "blocks.10", "blocks.14")),
    correlation=CorrelationConfig(scales=(1.0,), reduction=0, power=1.5),
    output=OutputConfig(mutual_filter=True),
    # On PF-PASCAL's 209 validation pairs that are not in its training list (weight 4) and the SPair subset's 360.
    calibration=CalibrationConfig(
        match=(6.885, 0.305, 0.0, 1.018, 0.0, 4.314, 1.787, 0.0, 0.0, 0.906, 0.745, 0.0, 0.0, 0.0),
        unmatched=(10.163, 0.289, 2.742, 0.088, 4.225, 6.491, 0.0, 0.0, 0.0, 0.994, 0.0, 0.0, 0.0, 0.0),
        same_kind=(19.634, 25.681, 1.032),
    ),
)

MODELS: dict[str, KnownModel] = {
    "chmnet-lite": KnownModel("chmnet-lite.safetensors"),
    "chmnet-official": KnownModel("chmnet-official.safetensors"),
    "hough-prior": KnownModel(
        "", _PRIOR, "EfficientNet-Lite0 features, Gaussian Hough votes, nothing learned", HoughPrior()
    ),
    "nearest-neighbour": KnownModel(
        "",
        ModelConfig(
            backbone=BackboneConfig("efficientnet-lite0"),
            correlation=CorrelationConfig(scales=(1.0,), reduction=0),
            matching=NoVotesConfig(),
            transfer=TransferConfig(temperature=1 / 200),
        ),
        "EfficientNet-Lite0 features, best match of each position, nothing learned",
    ),
}
