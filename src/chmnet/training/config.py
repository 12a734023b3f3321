"""What a training run is: network, data, optimisation. The defaults are the paper's; a TOML file names the rest.

>>> TrainingConfig.from_dict({"model": {"correlation": {"scales": [1.0]}}}).learning_rate
0.001
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from chmnet.config import CalibrationConfig, ModelConfig
from chmnet.errors import ConfigError
from chmnet.nn.prior import HoughPrior
from chmnet.tables import TomlConfig, check_range

ANNOTATED = ("pf-pascal", "pf-willow", "spair-71k", "animal-pose", "coco")
"""Data sets with keypoints; the other sources of pairs are ``list`` and ``synthetic``."""


_MOST = {
    "count": 10_000_000,
    "weight": 10_000,
    "rotation": 180,
    "minimum_common": 1000,
    "maximum_pairs": 10_000_000,
    "points": 10_000,
    "views": 1000,
}
"""What a file may ask for: more is a slip, and would not fit into memory."""


@dataclass(frozen=True)
class SourceConfig(TomlConfig):
    """One source of pairs."""

    dataset: Literal["pf-pascal", "pf-willow", "spair-71k", "animal-pose", "coco", "list", "synthetic"] = (
        "pf-pascal"
    )
    """A data set, a ``list`` of pairs that ``chmnet data list`` or ``label`` wrote, or ``synthetic`` pairs."""
    split: Literal["train", "val", "test"] = "train"
    """Test pairs are refused as training data."""
    path: str = ""
    """``synthetic``: a folder of pictures (empty: generated textures); ``coco``: the annotation file, or a folder
    with ``annotations_train.json``; ``list``: the file; else the folder that holds the data sets, instead of the
    command's."""
    folder: str = ""
    """``list``: the folder that its pictures were listed from, as it is or below the command's; empty: the
    command's."""
    count: int = 0
    """Pairs of an epoch, drawn anew each time; 0: every pair ``weight`` times, for ``synthetic`` 100."""
    weight: float = 1.0
    """How often each pair occurs in an epoch, where no ``count`` is given."""
    images: Literal["all", "training", "held-out"] = "all"
    """``coco``, ``animal-pose`` and ``synthetic``: all pictures, or the nine tenths and the one tenth of a fixed
    division."""
    layout: Literal["large", "small"] = "large"
    """Of SPair-71k."""
    minimum_common: int = 3
    """Keypoints that two objects must share, where pairs are made (``animal-pose``, ``coco``)."""
    maximum_pairs: int = 1000
    """Pairs that are made, where pairs are made; an epoch draws from them."""
    views: int = 8
    """``synthetic``: warped views of each picture; any two of them are a pair."""
    points: int = 20
    """``synthetic``: keypoints of a pair."""
    rotation: float = 20.0
    """``synthetic``: largest turn of a view, in degrees."""
    zoom: float = 1.3
    """``synthetic``: largest magnification of a view, and its inverse the smallest."""
    bend: float = 0.08
    """``synthetic``: standard deviation of the thin-plate spline's control points, in normalised coordinates."""
    colours: float = 0.4
    """``synthetic``: change of brightness, contrast and saturation of a view; hue turns by a quarter of it."""
    identity: float = 0.0
    """``synthetic``: share of the pairs that show one view twice, so that a picture stays its own best match."""
    balanced: bool = False
    """Draw every category as often as the others; for annotated pairs with a ``count``."""
    same_pose: float = 0.0
    """Chance that a pair of different poses, as its keypoints tell, is left out; see :mod:`chmnet.data.posing`."""
    mirror: float = 0.0
    """Chance that a pair of opposite poses has its target mirrored, left and right exchanged by name."""
    official: bool = False
    """``pf-pascal``: all rows of the training list, as in the paper, also those that stand in the test list too.
    Such a model's figures on the test list compare with published ones, and say less about new pictures."""
    avoid: tuple[str, ...] = ()
    """Folders, as they are or below the root, whose pictures are no training data: pairs with a picture of the
    same name are left out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("count", "weight", "rotation", "bend", "colours"):
            check_range(f"{name} of {self.dataset}", getattr(self, name), minimum=0, maximum=_MOST.get(name))
        for name in ("minimum_common", "maximum_pairs", "points"):
            check_range(f"{name} of {self.dataset}", getattr(self, name), minimum=1, maximum=_MOST[name])
        check_range("views of synthetic", self.views, minimum=2, maximum=_MOST["views"])
        check_range("zoom of synthetic", self.zoom, minimum=1, maximum=4)
        check_range("colours of synthetic", self.colours, maximum=1)
        check_range("bend of synthetic", self.bend, maximum=0.3)
        for name in ("identity", "same_pose", "mirror"):
            check_range(f"{name} of {self.dataset}", getattr(self, name), minimum=0, maximum=1)
        if self.official and (self.dataset, self.split) != ("pf-pascal", "train"):
            raise ConfigError(
                f"official is for the training list of pf-pascal, not for {self.dataset}, {self.split}"
            )
        if self.balanced and not self.count:
            raise ConfigError(f"balanced needs a count of pairs of an epoch; set count of {self.dataset}")


@dataclass(frozen=True)
class AugmentationConfig(TomlConfig):
    """Chance of each change of a training pair with annotated keypoints; the default is none."""

    swap: float = 0.0
    """Exchange source and target."""
    flip: float = 0.0
    """Mirror both pictures."""
    crop: float = 0.0
    """Cut each picture to a random area that holds its keypoints; not with a frozen backbone."""
    colour: float = 0.0
    """Change each picture's colours; not with a frozen backbone."""
    reduce: float = 0.0
    """Put each picture, smaller, on one of another category; not with a frozen backbone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in vars(self).items():
            check_range(name, value, minimum=0, maximum=1)


@dataclass(frozen=True)
class TrainingConfig(TomlConfig):
    """A training run. The defaults are the paper's: Adam, 1e-3 and 1e-5, batches of 16, PF-PASCAL."""

    preset: Literal["paper", "reference"] = "paper"
    """The model configuration that ``model`` changes. Instead of it, a file may say ``base``: a name of
    ``chmnet models`` or a model file. Its weights are then the first ones, unless ``init`` says otherwise;
    those of ``hough-prior`` are computed for ``model``, as sharp as that model is if no ``prior_sharpness`` is
    set."""
    model: ModelConfig = field(default_factory=ModelConfig)
    frozen: bool = False
    """Keep the backbone as it is: each picture goes through it once, and its features are kept."""
    loss: Literal["distance", "squared-distance"] = "distance"
    """Mean Euclidean distance of keypoints (the paper), or its square (the authors' code)."""
    initialisation: Literal["scaled", "reference"] = "scaled"
    """Random weights times the number of taps sharing them, in both layers; or, as in the authors' code, in 6D."""
    backbone_weights: str = ""
    """A file, ``package`` (EfficientNet-Lite0, its default), ``published`` (ResNets) or ``random`` (for tests)."""
    init: str = "random"
    """Of the matching layers: ``random``, ``hough-prior``, a model file, or a name of ``chmnet models``."""
    prior_sharpness: float = 350.0
    """Of ``hough-prior``: how far its scores go, in units of the transfer's temperature. The lower, the more of
    the map around the best match has a share in the gradient."""
    data: tuple[SourceConfig, ...] = (SourceConfig(),)
    validation: tuple[SourceConfig, ...] = (SourceConfig(split="val"),)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    match_loss: float = 0.0
    """Weight of the cross-entropy of the true matches beside the paper's loss."""
    match_temperature: float = 0.0
    """Divides the scores in that loss; 0: the transfer's. A higher one keeps the transfer sharp while scores stay
    far from saturated in training."""
    match_sigma: tuple[float, ...] = ()
    """Width of a Gaussian around the true match that the probabilities shall have in that loss, in cells: at the
    first step and at the last, falling evenly in its logarithm. Empty: all of it at the true match."""
    feature_loss: float = 0.0
    """Weight of the same loss on cosines of features, before any vote: at each scale and in the fine branch."""
    feature_temperature: float = 0.05
    """Divides the cosines in that loss."""
    crossed_pairs: int = 0
    """Most pairs of a batch that are formed across its own, between pictures of one category with keypoints of the
    same names: they add to ``feature_loss``, and cost little."""
    category_group: int = 4
    """With ``crossed_pairs``: how many pairs of one category follow each other."""
    both_ways: bool = False
    """Learn from target to source too, from the same scores: twice the labels of a step."""
    held_out_keypoints: str = ""
    """A TOML file of keypoints, ``category = ["name", …]``, that nothing is trained on: to measure what a model
    knows about points that it has never seen."""
    backbone_from: str = ""
    """First layer of the backbone that learns, such as ``blocks.3``; what comes before keeps its weights, which
    saves a third of a step. Empty: all of it learns, unless it is frozen."""
    batch_statistics: bool = True
    """Let batch norms of a trained backbone use and learn the statistics of a batch; off: they keep those they
    have, which suits small batches."""
    seed: int = 0
    epochs: int = 100
    batch_size: int = 16
    """Pairs of a step, over all processes and accumulated parts; a last, smaller batch is left out."""
    accumulate: int = 1
    """Parts a batch is divided into, one after the other, to save memory."""
    learning_rate: float = 1e-3
    backbone_learning_rate: float = 1e-5
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_steps: int = 0
    """Steps in which the learning rate rises from 0."""
    clip_norm: float = 0.0
    """Largest norm of the gradient; 0: any."""
    average_decay: float = 0.0
    """Of the moving average of the weights, which is validated and saved instead of them; 0: no average."""
    validate_every: int = 1
    """Epochs between validations; there is one before the first step, too."""
    patience: int = 0
    """Validations without a better PCK@0.1 after which the run ends; 0: never."""
    precision: Literal["auto", "no", "bf16", "fp16"] = "no"
    """Mixed precision of the backbone; ``auto``: where the device has it."""
    cache_precision: Literal["float16", "float32"] = "float16"
    """Of kept features."""
    cache_megabytes: int = 2048
    """Kept features that are in memory; the others wait in a temporary file."""
    checkpoint_minutes: float = 5.0
    """Time between checkpoints within an epoch; there is one at the end of each, too."""
    log_every: int = 10
    """Steps between lines of the log."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (
            "match_loss",
            "feature_loss",
            "crossed_pairs",
            "seed",
            "warmup_steps",
            "clip_norm",
            "patience",
            "cache_megabytes",
            "checkpoint_minutes",
        ):
            check_range(name, getattr(self, name), minimum=0)
        for name in ("epochs", "batch_size", "accumulate", "validate_every", "log_every", "category_group"):
            check_range(name, getattr(self, name), minimum=1, maximum=1_000_000)
        for name in ("learning_rate", "backbone_learning_rate"):
            check_range(name, getattr(self, name), minimum=0, maximum=1)
        check_range("prior_sharpness", self.prior_sharpness, minimum=1e-3, maximum=1e6)
        if self.crossed_pairs and not self.feature_loss:
            raise ConfigError("crossed_pairs are compared by their features; set feature_loss above 0")
        check_range("feature_temperature", self.feature_temperature, minimum=1e-4, maximum=10)
        if len(self.match_sigma) not in (0, 2):
            raise ConfigError(f"match_sigma must be the first and the last width, got {list(self.match_sigma)}")
        for sigma in self.match_sigma:
            check_range("match_sigma", sigma, minimum=0.1, maximum=100)
        check_range("average_decay", self.average_decay, minimum=0, maximum=0.99999)
        if not self.data:
            raise ConfigError("data must name at least one source of pairs")
        for source in self.data:
            if source.dataset in ANNOTATED and source.split == "test":
                raise ConfigError(
                    f'the test split of {source.dataset} is never training data; use split = "train"'
                )
            if source.dataset == "list" and not source.path:
                raise ConfigError("a list of pairs needs a path: the file that `chmnet data label` wrote")
        changes = self.augmentation
        if self.frozen and (changes.crop or changes.colour or changes.reduce):
            raise ConfigError(
                "a frozen backbone sees each picture once: crop, colour and reduce must be 0; flip and swap are "
                "possible"
            )

    @classmethod
    def from_dict(cls, data: dict[str, Any], where: str = "configuration") -> "TrainingConfig":
        """As :meth:`TomlConfig.from_dict`; ``model`` holds changes of the preset or the base, or all of it.

        What version 0.1 kept in the model's table and belongs to the run is understood until 0.3.
        """
        if isinstance(data, dict) and isinstance(data.get("model", {}), dict):
            data, changes = _run_settings(dict(data), dict(data.get("model", {})))
            base = data.pop("base", "")
            if base:
                data.setdefault("init", base)
            if base == "hough-prior":  # as it is; ``init`` alone begins less sharp
                data.setdefault("prior_sharpness", HoughPrior().sharpness)
            data["model"] = _base_model(base, data.get("preset", "paper")).replace(**changes)
            if data.get("preset") == "reference":
                data = {"loss": "squared-distance", "initialisation": "reference", **data}
        elif isinstance(data, dict) and "base" in data:
            raise ConfigError(
                "base chooses the model's configuration: write it into the training file, or set init instead"
            )
        return super().from_dict(data, where)

    def without_folders(self) -> dict[str, Any]:
        """The configuration for others to read: names of files, not where they lie on this computer."""
        config = self.to_dict()
        for source in (*config["data"], *config["validation"]):
            source["path"] = Path(source["path"]).name
            source["folder"] = Path(source["folder"]).name
            source["avoid"] = [Path(folder).name for folder in source["avoid"]]
        parts = ("init", "backbone_weights", "held_out_keypoints")
        names = {part: Path(config[part]).name for part in parts}
        return {**config, **names}


def _base_model(base: object, preset: str) -> ModelConfig:
    """The configuration that a run's model changes."""
    if not base:
        return ModelConfig.preset(preset)
    from chmnet.weights.models import read_model_config

    # A trained model is calibrated anew, and its features are others.
    return read_model_config(str(base)).replace(calibration=CalibrationConfig(), foreground=False, facing=0)


def _run_settings(data: dict[str, Any], model: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Move the run's settings out of a model's table of version 0.1."""
    for key in ("loss", "initialisation"):
        if key in model:
            data.setdefault(key, model.pop(key))
    if isinstance(model.get("backbone"), dict) and "frozen" in model["backbone"]:
        data.setdefault("frozen", model["backbone"]["frozen"])
    return data, model
