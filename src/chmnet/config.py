"""Configurations: frozen dataclasses, as TOML in and out. An unknown key is an error.

>>> ModelConfig.preset("reference").mutual_filter
True
"""

import dataclasses
import difflib
import math
import sys
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from chmnet.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_CELLS = 20_000
"""Largest grid of a configuration: its correlation takes 1.6 GB."""

CONFIDENT = 0.5
"""Matches of at least this confidence count as sure: they are drawn filled, and not marked for review."""

Config = TypeVar("Config", bound="TomlConfig")


class TomlConfig:
    """Conversion between a dataclass, plain dictionaries and TOML."""

    @classmethod
    def from_dict(cls: type[Config], data: dict[str, Any], where: str = "configuration") -> Config:
        """Build a configuration; keys left out have their defaults.

        Raises:
            ConfigError: an unknown key, a value of the wrong type or out of range.
        """
        if not isinstance(data, dict):
            raise ConfigError(f"{where} must be a table, got {data!r}")
        hints = typing.get_type_hints(cls)
        values = {}
        for key, value in data.items():
            if key not in hints:
                close = difflib.get_close_matches(key, hints, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(sorted(hints))}"
                raise ConfigError(f"unknown key {key!r} in {where}; {hint}")
            values[key] = _convert(value, hints[key], f"{key!r} in {where}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings and numbers."""
        return _plain(dataclasses.asdict(self))  # type: ignore[call-overload]

    @classmethod
    def from_toml(cls: type[Config], path: str | Path) -> Config:
        """Read a configuration from a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the configuration {path}: {error}") from None
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: too many digits, too deep
            raise ConfigError(f"{path} is not valid TOML: {error}") from None
        return cls.from_dict(data, where=str(path))

    def to_toml(self) -> str:
        """The configuration as TOML text."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())

    def check_types(self) -> None:
        """Refuse values that do not fit their fields; lists become tuples, dictionaries nested tables."""
        for key, hint in typing.get_type_hints(type(self)).items():
            object.__setattr__(self, key, _convert(getattr(self, key), hint, repr(key)))

    def replace(self: Config, **changes: Any) -> Config:
        """A copy with some fields changed; a dictionary changes single fields of a nested table.

        Raises:
            ConfigError: a field does not exist, or its new value has the wrong type.
        """
        fields = vars(self)
        for key, value in changes.items():
            if isinstance(value, dict) and isinstance(fields.get(key), TomlConfig):
                changes[key] = fields[key].replace(**value)
        return type(self).from_dict({**fields, **changes}, where=type(self).__name__)


@dataclass(frozen=True)
class BackboneConfig(TomlConfig):
    """Where features come from."""

    name: Literal["resnet18", "resnet34", "resnet50", "resnet101", "efficientnet-lite0"] = "resnet101"
    layers: tuple[str, ...] = ()
    """Layers joined at the stride-16 grid, each scaled to length one when there are several; empty: the
    backbone's usual one (``layer3`` of a ResNet, ``blocks.10`` of EfficientNet-Lite0)."""
    stride_on: Literal["conv1", "conv2"] = "conv2"
    """Which convolution of a bottleneck block strides: torchvision's 3×3 (``conv2``), or He et al.'s first
    1×1 (``conv1``). Weights are made for one of the two."""
    branches: Literal["shared", "separate"] = "shared"
    """One backbone for both images, or one each (pseudo-siamese: the authors' released checkpoints)."""
    frozen: bool = False
    """Keep the weights and batch statistics as they are while the rest of the network trains."""

    def __post_init__(self) -> None:
        self.check_types()
        if len(self.layers) > 64:
            raise ConfigError(f"layers must be at most 64 names, got {len(self.layers)}")


@dataclass(frozen=True)
class TransferConfig(TomlConfig):
    """From correlation to positions (section 4.3 of the paper)."""

    gaussian_sigma: float = 17.0
    """Standard deviation of the kernel G around the best match, in cells of a 30×30 grid; 0: without G."""
    sampler: Literal["soft", "nearest"] = "soft"
    """How a keypoint reads the transferred grid: the soft sampler, or its nearest grid point."""
    sampler_threshold: float = 0.1
    """τ of the soft sampler, in normalised coordinates of a 30×30 grid."""
    scale_with_grid: bool = True
    """Keep G and τ at the same share of any grid; off: fixed numbers whatever the grid, as the authors."""
    temperature: float = 1.0
    """Divides the scores before the softmax; the paper has none (1)."""
    calibration: tuple[float, ...] = ()
    """Turns what speaks against a match into the probability that it is right: four numbers from ``chmnet
    calibrate``, see :func:`chmnet.nn.confidence.calibrated`. Empty: confidence is consistency alone."""

    def __post_init__(self) -> None:
        self.check_types()
        if self.gaussian_sigma != 0:
            check_range("gaussian_sigma", self.gaussian_sigma, minimum=1e-3)
        check_range("sampler_threshold", self.sampler_threshold, above=0)
        check_range("temperature", self.temperature, minimum=1e-6)
        if len(self.calibration) not in (0, 4):
            raise ConfigError(f"calibration must be four numbers or none, got {len(self.calibration)}")
        for number in self.calibration:
            check_range("calibration", number, minimum=-100, maximum=100)


@dataclass(frozen=True)
class FineConfig(TomlConfig):
    """A second correlation on the finer grid, from early layers of the backbone; see :mod:`chmnet.nn.fine`."""

    layers: tuple[str, ...] = ()
    """Early layers, such as ``blocks.4`` of EfficientNet-Lite0 or ``layer2`` of a ResNet (stride 8), brought to
    the grid of the last vote; several are scaled to length one each and joined. Empty: no fine branch (the
    paper)."""
    channels: int = 64
    """What the 3×3 convolution makes of them."""
    hidden: int = 0
    """Width of a block (1×1, depth-wise 5×5, 1×1) that mixes them with the enlarged coarse features and starts as
    no change at all; 0: none."""

    def __post_init__(self) -> None:
        self.check_types()
        if len(self.layers) > 64:
            raise ConfigError(f"layers must be at most 64 names, got {len(self.layers)}")
        check_range("channels of fine", self.channels, minimum=1, maximum=4096)
        check_range("hidden of fine", self.hidden, minimum=0, maximum=4096)


@dataclass(frozen=True)
class ModelConfig(TomlConfig):
    """A whole network. The defaults are the preset ``paper``."""

    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    image_size: tuple[int, int] = (240, 240)
    """(height, width) that pictures are resized to before matching; the network itself takes any size."""
    matching: Literal["hough", "regularised-hough", "consensus", "none"] = "hough"
    """Learned Hough layers (CHM); the global vote of section 3.1 (RHM); neighbourhood consensus, which always
    works on one scale and before upsampling; nothing. Fields about Hough layers say nothing for the others."""
    dimensions: Literal["6d-4d", "4d-4d"] = "6d-4d"
    """Whether the first vote runs over positions and scales, or over positions only."""
    first_sharing: Literal["psi", "iso", "full"] = "psi"
    last_sharing: Literal["psi", "iso", "full"] = "psi"
    last_layer: bool = True
    """Off: without the last Hough layer, after upsampling."""
    spatial_window: int = 5
    scale_window: int = 3
    channels: int = 1
    """Channels between the first and the last Hough layer."""
    consensus_channels: tuple[int, ...] = (16, 16, 1)
    scales: tuple[float, ...] = (math.sqrt(0.5), 1.0, math.sqrt(2.0))
    channel_reduction: int = 4
    """ρ: the 3×3 convolution of each scale keeps one ρ-th of the channels; 0: no convolution at all."""
    rectify: Literal["before-resize", "after-resize"] = "before-resize"
    """ReLU on the correlation before (the paper) or after (the authors' code) interpolation."""
    correlation_power: float = 1.0
    """Power that the rectified correlation is raised to before any vote: above 1, few good matches outvote many
    poor ones; the paper has none (1)."""
    keep_top: int = 0
    """Sparse correlation: only this many best matches of each position stay (the paper's K = 10); 0: all."""
    upsample: int = 2
    """How much finer the last vote's grid is."""
    fine: FineConfig = field(default_factory=FineConfig)
    """Off in the paper and the authors' code."""
    output: Literal["linear", "softplus"] = "linear"
    """Activation after the last vote: none (the paper) or softplus (the authors' code)."""
    mutual_filter: bool = False
    """Soft mutual-nearest-neighbour filter at the end (the authors' code)."""
    backend: Literal["auto", "native", "folded", "reference"] = "auto"
    """Who computes the votes of Hough layers. ``folded`` adds up in the order of the authors' code: where whole
    regions tie for the best match, the last bit decides."""
    initialisation: Literal["scaled", "reference"] = "scaled"
    """Weights times the number of taps sharing them, in both layers; or, as in the authors' code, in 6D."""
    loss: Literal["distance", "squared-distance"] = "distance"
    """Mean Euclidean distance of keypoints (the paper), or its square (the authors' code)."""

    def __post_init__(self) -> None:
        self.check_types()
        # The upper limits are far beyond use: a configuration may come out of a stranger's weight file.
        if len(self.image_size) != 2:
            raise ConfigError(f"image_size must be (height, width), got {self.image_size}")
        for side in self.image_size:
            check_range("image_size", side, minimum=1, maximum=4096)
        for name in ("spatial_window", "scale_window"):
            window = getattr(self, name)
            check_range(name, window, minimum=1, maximum=11)
            if window % 2 == 0:
                raise ConfigError(f"{name} must be odd, got {window}; use {window - 1} or {window + 1}")
        check_range("channels", self.channels, minimum=1, maximum=1024)
        check_range("upsample", self.upsample, minimum=1, maximum=16)
        cells = math.prod(math.ceil(side / 16) * self.upsample for side in self.image_size)
        if cells > MAX_CELLS:
            raise ConfigError(
                f"image_size and upsample make a grid of {cells} positions, more than {MAX_CELLS}; "
                "all pairs of them would not fit into memory"
            )
        check_range("channel_reduction", self.channel_reduction, minimum=0)
        # Below 1 the slope at a correlation of zero would be infinite.
        check_range("correlation_power", self.correlation_power, minimum=1, maximum=16)
        check_range("keep_top", self.keep_top, minimum=0)
        if not 1 <= len(self.scales) <= 9:
            raise ConfigError(f"scales must be 1 to 9 numbers, got {len(self.scales)}")
        for scale in self.scales:
            check_range("scales", scale, above=0, maximum=16)
        if not 1 <= len(self.consensus_channels) <= 9 or self.consensus_channels[-1] != 1:
            raise ConfigError(
                "consensus_channels must be 1 to 9 numbers that end with 1, the scores themselves, "
                f"got {list(self.consensus_channels)}"
            )
        for width in self.consensus_channels:
            check_range("consensus_channels", width, minimum=1, maximum=1024)
        if self.channels > 1 and not (self.matching == "hough" and self.last_layer):
            raise ConfigError(
                f"channels = {self.channels} needs both Hough layers: the last one joins the channels; "
                "use channels = 1"
            )
        if self.fine.layers and not (self.matching == "hough" and self.last_layer):
            raise ConfigError(
                "a fine branch adds to the votes of the last Hough layer; "
                'use matching = "hough" with last_layer = true, or no fine layers'
            )

    @staticmethod
    def preset(name: str = "paper", **changes: Any) -> "ModelConfig":
        """A named configuration, with some fields changed.

        ``paper`` follows the text of the paper, ``reference`` the authors' code where the two differ.

        Example:
            >>> ModelConfig.preset("paper", dimensions="4d-4d").loss
            'distance'
        """
        if name not in PRESETS:
            raise ConfigError(f"unknown preset {name!r}; use one of {', '.join(PRESETS)}")
        return PRESETS[name].replace(**changes)


def parse_changes(words: list[str]) -> dict[str, Any]:
    """Turn ``key=value`` words into nested values for :meth:`replace` or :meth:`from_dict`.

    A value is read as TOML, and as plain text where it is none.

    Example:
        >>> parse_changes(["mutual_filter=true", "matching=none", "transfer.temperature=0.01"])
        {'mutual_filter': True, 'matching': 'none', 'transfer': {'temperature': 0.01}}
    """
    changes: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise ConfigError(f"a change must be written key=value, got {word!r}")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except ValueError:
            value = text.strip()
        table = changes
        for part in parts[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{part!r} in {word!r} is a value already, not a table")
        table[parts[-1]] = value
    return changes


def check_range(
    name: str,
    value: float,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
) -> None:
    """Refuse a number that is not finite, or outside of the limits that are given.

    Example:
        >>> check_range("patience", -1, minimum=0)
        Traceback (most recent call last):
        chmnet.errors.ConfigError: patience must be at least 0, got -1
    """
    if not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number, got {value}")
    if maximum is not None and value > maximum:
        raise ConfigError(f"{name} must be at most {maximum}, got {value}")
    if minimum is not None and value < minimum:
        raise ConfigError(f"{name} must be at least {minimum}, got {value}")
    if above is not None and value <= above:
        raise ConfigError(f"{name} must be above {above}, got {value}")


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Check ``value`` against a type annotation; lists become tuples, tables become dataclasses."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where} must be one of {', '.join(map(str, arguments))}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} must be a list, got {value!r}")
        return tuple(_convert(item, arguments[0], where) for item in value)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, dict):
            return hint.from_dict(value, where=where)  # type: ignore[union-attr]
        if not isinstance(value, hint):  # type: ignore[arg-type]
            raise ConfigError(f"{where} must be a table, got {value!r}")
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{where} must fit in 64 bits")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where} must be of type {hint.__name__}, got {value!r}")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


PRESETS: dict[str, ModelConfig] = {
    "paper": ModelConfig(),
    "reference": ModelConfig(
        backbone=BackboneConfig(branches="separate"),
        transfer=TransferConfig(scale_with_grid=False),
        rectify="after-resize",
        output="softplus",
        mutual_filter=True,
        backend="folded",
        initialisation="reference",
        loss="squared-distance",
    ),
}
