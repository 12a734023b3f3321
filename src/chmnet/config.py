"""Configurations of networks: frozen dataclasses, as TOML in and out. An unknown key is an error.

>>> ModelConfig.preset("reference").output.mutual_filter
True
"""

import math
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from chmnet.errors import ConfigError
from chmnet.tables import TomlConfig, check_range

MAX_CELLS = 20_000
"""Largest grid of a configuration: its correlation takes 1.6 GB."""

PLAIN_CALIBRATION = 4
"""How many numbers the calibration of a match had at first: position maps alone were its evidence."""
CALIBRATION_NUMBERS = {
    "match": (PLAIN_CALIBRATION, 14),
    "unmatched": (14,),
    "same_kind": (3,),
    "pose": (4, 5),
    "turn": (4,),
    "place": (1,),
}
"""How many numbers each calibration may have, if it has any. The fifth of ``pose``, in older files, is ignored."""

CONFIDENCE_THRESHOLD = 0.5
"""Matches of at least this confidence are confident: they are drawn filled, and not marked for review."""


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

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.layers) > 64:
            raise ConfigError(f"layers must be at most 64 names, got {len(self.layers)}")


@dataclass(frozen=True)
class CorrelationConfig(TomlConfig):
    """From features to the correlation that is voted on (section 4.1 of the paper)."""

    scales: tuple[float, ...] = (math.sqrt(0.5), 1.0, math.sqrt(2.0))
    """Of the feature maps. With several, the first vote runs over positions and scales (6D); with one over
    positions only (4D)."""
    reduction: int = 4
    """ρ: the 3×3 convolution of each scale keeps one ρ-th of the channels; 0: no convolution at all."""
    rectify: Literal["before-resize", "after-resize"] = "before-resize"
    """ReLU on the correlation before (the paper) or after (the authors' code) interpolation."""
    power: float = 1.0
    """Power that the rectified correlation is raised to before any vote: above 1, few good matches outvote many
    poor ones; the paper has none (1)."""
    keep_top: int = 0
    """Sparse correlation: only this many best matches of each position stay (the paper's K = 10); 0: all."""

    rotations: tuple[float, ...] = (0.0,)
    """Degrees, counter-clockwise, that the target is seen turned by; 0 comes first. With several, each match has
    the score of its best turn; see :mod:`chmnet.nn.turned`. The paper has none (0 alone)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.rotations) <= 36 or self.rotations[0] != 0:
            raise ConfigError(f"rotations must be 1 to 36 numbers, first of them 0, got {list(self.rotations)}")
        for degrees in self.rotations:
            check_range("rotations", degrees, above=-360, maximum=360)
        if len({round(degrees % 360, 3) % 360 for degrees in self.rotations}) < len(self.rotations):
            raise ConfigError(f"rotations must differ, got {list(self.rotations)}")
        if not 1 <= len(self.scales) <= 9:
            raise ConfigError(f"scales must be 1 to 9 numbers, got {len(self.scales)}")
        for scale in self.scales:
            check_range("scales", scale, above=0, maximum=16)
        check_range("reduction", self.reduction, minimum=0)
        # Below 1 the slope at a correlation of zero would be infinite.
        check_range("power", self.power, minimum=1, maximum=16)
        check_range("keep_top", self.keep_top, minimum=0)


@dataclass(frozen=True)
class HoughConfig(TomlConfig):
    """Learned convolutional Hough matching (CHM; section 3.2 of the paper)."""

    kind: Literal["hough"] = "hough"
    first_sharing: Literal["psi", "iso", "full"] = "psi"
    last_sharing: Literal["psi", "iso", "full"] = "psi"
    last_layer: bool = True
    """Off: without the last Hough layer, after upsampling."""
    taps: Literal["dense", "center-pivot", "center-pivot-joint"] = "dense"
    """Which taps the kernels of all Hough layers have: every pair of offsets (the paper), or only those whose
    source or target is the centre, in position at all pairs of scales, or in position and scale at once."""
    spatial_window: int = 5
    scale_window: int = 3
    scale_borders: Literal["zero", "present", "replicate"] = "zero"
    """What votes hear beyond the first and the last scale: nothing (the paper and the authors' code); nothing, but
    divided by the share of scale pairs that there are; or the nearest scale."""
    rotation_window: int = 1
    """Of the first vote over ``correlation.rotations``; 1: every turn votes by itself."""
    channels: int = 1
    """Channels between the first and the last Hough layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_window("spatial_window", self.spatial_window)
        _check_window("scale_window", self.scale_window)
        _check_window("rotation_window", self.rotation_window)
        check_range("channels", self.channels, minimum=1, maximum=1024)
        if self.channels > 1 and not self.last_layer:
            raise ConfigError(
                f"channels = {self.channels} needs both Hough layers: the last one joins the channels; "
                "use channels = 1"
            )


@dataclass(frozen=True)
class RegularisedHoughConfig(TomlConfig):
    """The global vote of section 3.1 of the paper (RHM): nothing is learned."""

    kind: Literal["regularised-hough"] = "regularised-hough"
    last_layer: bool = True
    """Off: without a second vote, after upsampling."""


@dataclass(frozen=True)
class ConsensusConfig(TomlConfig):
    """Neighbourhood consensus (Rocco et al., 2018): on one scale, and before upsampling."""

    kind: Literal["consensus"] = "consensus"
    spatial_window: int = 5
    channels: tuple[int, ...] = (16, 16, 1)
    """Output channels of each layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_window("spatial_window", self.spatial_window)
        if not 1 <= len(self.channels) <= 9 or self.channels[-1] != 1:
            raise ConfigError(
                f"channels must be 1 to 9 numbers that end with 1, the scores, got {list(self.channels)}"
            )
        for width in self.channels:
            check_range("channels", width, minimum=1, maximum=1024)


@dataclass(frozen=True)
class NoVotesConfig(TomlConfig):
    """The correlation as it is."""

    kind: Literal["none"] = "none"


MatchingConfig = HoughConfig | RegularisedHoughConfig | ConsensusConfig | NoVotesConfig


@dataclass(frozen=True)
class OutputConfig(TomlConfig):
    """From votes to scores."""

    upsample: int = 2
    """How much finer the last vote's grid is."""
    activation: Literal["linear", "softplus"] = "linear"
    """After the last vote: none (the paper) or softplus (the authors' code)."""
    mutual_filter: bool = False
    """Soft mutual-nearest-neighbour filter at the end (the authors' code)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("upsample", self.upsample, minimum=1, maximum=16)


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
        super().__post_init__()
        if len(self.layers) > 64:
            raise ConfigError(f"layers must be at most 64 names, got {len(self.layers)}")
        check_range("channels of fine", self.channels, minimum=1, maximum=4096)
        check_range("hidden of fine", self.hidden, minimum=0, maximum=4096)


@dataclass(frozen=True)
class TransferConfig(TomlConfig):
    """From scores to positions (section 4.3 of the paper)."""

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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gaussian_sigma != 0:
            check_range("gaussian_sigma", self.gaussian_sigma, minimum=1e-3)
        check_range("sampler_threshold", self.sampler_threshold, above=0)
        check_range("temperature", self.temperature, minimum=1e-6)


@dataclass(frozen=True)
class CalibrationConfig(TomlConfig):
    """What ``chmnet calibrate`` found: each a logit without evidence, and slopes; empty: not fitted."""

    match: tuple[float, ...] = ()
    """That a match is right. Empty: confidence is cycle consistency; see :mod:`chmnet.ops.evidence`."""
    unmatched: tuple[float, ...] = ()
    """That a point has a match at all."""
    same_kind: tuple[float, ...] = ()
    """That two pictures show the same kind of thing."""
    pose: tuple[float, ...] = ()
    """That the mirrored target is the right one."""
    turn: tuple[float, ...] = ()
    """By how much pictures agree that are not turned; then, that a turned target is the right one."""
    place: tuple[float, ...] = ()
    """One number: by how much pictures agree that show the thing at sizes that can be matched."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, numbers in vars(self).items():
            lengths = CALIBRATION_NUMBERS[name]
            if numbers and len(numbers) not in lengths:
                known = " or ".join(map(str, lengths))
                raise ConfigError(f"calibration.{name} must be {known} numbers or none, got {len(numbers)}")
            for number in numbers:
                check_range(f"calibration.{name}", number, minimum=-100, maximum=100)


@dataclass(frozen=True)
class ModelConfig(TomlConfig):
    """A whole network. The defaults are the preset ``paper``."""

    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    image_size: tuple[int, int] = (240, 240)
    """(height, width) that pictures are resized to before matching; the network itself takes any size."""
    correlation: CorrelationConfig = field(default_factory=CorrelationConfig)
    matching: MatchingConfig = field(default_factory=HoughConfig)
    """One of four kinds, each with fields of its own."""
    fine: FineConfig = field(default_factory=FineConfig)
    """Off in the paper and the authors' code."""
    output: OutputConfig = field(default_factory=OutputConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    foreground: bool = False
    """Whether there is a probe that tells things from background; see :mod:`chmnet.nn.foreground`."""
    facing: int = 0
    """Width of the network that sees which way things face; 0: none. See :mod:`chmnet.nn.facing`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # The upper limits are far beyond use: a configuration may come out of a stranger's weight file.
        if len(self.image_size) != 2:
            raise ConfigError(f"image_size must be (height, width), got {self.image_size}")
        for side in self.image_size:
            check_range("image_size", side, minimum=1, maximum=4096)
        check_range("facing", self.facing, minimum=0, maximum=1024)
        cells = math.prod(math.ceil(side / 16) * self.output.upsample for side in self.image_size)
        if cells > MAX_CELLS:
            raise ConfigError(
                f"image_size and upsample make a grid of {cells} positions, more than {MAX_CELLS}; "
                "all pairs of them would not fit into memory"
            )
        if len(self.correlation.rotations) > 1 and self.fine.layers:
            raise ConfigError("a fine branch sees no turned targets; set correlation.rotations = [0.0]")
        if self.matching.kind == "consensus" and len(self.correlation.scales) > 1:
            raise ConfigError("consensus works on one scale; set correlation.scales = [1.0]")
        if self.fine.layers and not (isinstance(self.matching, HoughConfig) and self.matching.last_layer):
            raise ConfigError(
                "a fine branch adds to the votes of the last Hough layer; "
                'use matching.kind = "hough" with last_layer = true, or no fine.layers'
            )

    @classmethod
    def from_dict(cls, data: dict[str, Any], where: str = "configuration") -> "ModelConfig":
        """As :meth:`TomlConfig.from_dict`; keys of version 0.1 are understood until 0.3."""
        if isinstance(data, dict):
            data = _upgraded(data)
        return super().from_dict(data, where)

    def replace(self, **changes: Any) -> "ModelConfig":
        """As :meth:`TomlConfig.replace`; keys of version 0.1 are understood until 0.3."""
        return super().replace(**_upgraded(changes))

    @staticmethod
    def preset(name: str = "paper", **changes: Any) -> "ModelConfig":
        """A named configuration, with some fields changed.

        ``paper`` follows the text of the paper, ``reference`` the authors' code where the two differ.

        Example:
            >>> ModelConfig.preset("paper", correlation={"scales": [1.0]}).matching.kind
            'hough'
        """
        if not isinstance(name, str) or name not in PRESETS:
            raise ConfigError(f"unknown preset {name!r}; use one of {', '.join(PRESETS)}")
        return PRESETS[name].replace(**changes)


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """A table whose keys of version 0.1, if it has any, have become those of today."""
    if isinstance(data.get("calibration"), list | tuple):  # of matches alone, as 0.1 had it
        data = {**data, "calibration": {"match": data["calibration"]}}
    flat = data.keys() - typing.get_type_hints(ModelConfig).keys()
    words = [key for key in ("matching", "output") if isinstance(data.get(key), str)]
    tables = ((data.get("transfer"), "calibration"), (data.get("backbone"), "frozen"))
    if not (flat or words or any(isinstance(table, dict) and key in table for table, key in tables)):
        return data
    from chmnet.upgrade import upgrade_model

    return upgrade_model(data)


def _check_window(name: str, window: int) -> None:
    check_range(name, window, minimum=1, maximum=11)
    if window % 2 == 0:
        raise ConfigError(f"{name} must be odd, got {window}; use {window - 1} or {window + 1}")


PRESETS: dict[str, ModelConfig] = {
    "paper": ModelConfig(),
    "reference": ModelConfig(
        backbone=BackboneConfig(branches="separate"),
        correlation=CorrelationConfig(rectify="after-resize"),
        output=OutputConfig(activation="softplus", mutual_filter=True),
        transfer=TransferConfig(scale_with_grid=False),
    ),
}
