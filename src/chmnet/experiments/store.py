"""Trained models, predictions, costs and example pictures of experiments; each is computed once and kept."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image

from chmnet import data
from chmnet.benchmark import Plan
from chmnet.benchmark import run as measure_cost
from chmnet.config import ModelConfig
from chmnet.data import Pair
from chmnet.data.examples import PAIRS
from chmnet.errors import InputError
from chmnet.evaluation import Header, PredictionFile, check_pairs, evaluate, open_predictions, predict
from chmnet.evaluation.predict import describe_model
from chmnet.experiments.recipe import RECIPE, training_config
from chmnet.experiments.synthetic_set import SIZE, write_synthetic_set
from chmnet.features import FeatureCache
from chmnet.matcher import Matcher
from chmnet.metrics import DEFAULT_PROTOCOLS, Protocol, per_pair
from chmnet.nn.chmnet import CHMNet
from chmnet.outputs import atomic_path
from chmnet.pictures import to_picture
from chmnet.training.config import TrainingConfig
from chmnet.training.loop import CONFIG, LAST, train
from chmnet.weights import load_model

Say = Callable[[str], None]
Track = Callable[[Sequence[Pair]], Iterable[Pair]]

SPAIR_SUBSET = "SPair-71k-subset"
"""Folder of 360 test pairs in the layout of SPair-71k, below the folder of the data sets."""
QUICK_CATEGORIES = 2
QUICK_RECIPE: dict[str, Any] = {
    **RECIPE,
    "model": {
        "backbone": {"name": "efficientnet-lite0"},
        "transfer": {"temperature": 0.003},
        "image_size": list(SIZE),
    },
    "batch_size": 4,
    "warmup_steps": 1,
}
"""The recipe of quick mode: few and small pictures of the synthetic set, two steps."""


@dataclass(frozen=True)
class Benchmark:
    """Test pairs, and how they are scored."""

    label: str
    """What tables call it."""
    dataset: str
    root: Path
    protocol: Protocol
    ablations: bool = True
    """Whether variants of the network are measured on it."""


@dataclass(frozen=True)
class Setting:
    """The data of a whole set of experiments, and how models are trained on it."""

    benchmarks: dict[str, Benchmark]
    root: Path
    """The folder that holds the training data."""
    recipe: dict[str, Any]
    quick: bool = False

    @staticmethod
    def real(root: Path) -> "Setting":
        """PF-PASCAL and PF-WILLOW below a root, and the 360-pair subset of SPair-71k where it is there.

        Raises:
            InputError: one of the first two folders is missing.
        """
        places = {"pf-pascal": ("PF-PASCAL", root), "pf-willow": ("PF-WILLOW", root)}
        if (root / SPAIR_SUBSET).is_dir():
            places["spair-71k"] = ("SPair 360-pair subset", root / SPAIR_SUBSET)
        for name, (_, folder) in places.items():
            data.find_dataset(name, folder, "test")
        benchmarks = {
            name: Benchmark(label, name, folder, DEFAULT_PROTOCOLS[name], ablations=name != "pf-willow")
            for name, (label, folder) in places.items()
        }
        return Setting(benchmarks, root, RECIPE)

    @staticmethod
    def synthetic(folder: Path) -> "Setting":
        """Quick mode: the small synthetic set, written below ``folder``. An experiment takes seconds."""
        root = write_synthetic_set(folder / "synthetic", QUICK_CATEGORIES)
        source = {"dataset": "coco", "count": 8}  # below the setting's root: the folder may be moved
        protocol = DEFAULT_PROTOCOLS["coco"]
        return Setting(
            {"synthetic": Benchmark("synthetic set", "coco", root, protocol)},
            root,
            {**QUICK_RECIPE, "data": [source]},
            quick=True,
        )

    def seeds(self, number: int) -> tuple[int, ...]:
        """The seeds of repeated runs: as many as asked for; in quick mode one fewer, but at least one.

        Example:
            >>> Setting({}, Path(), {}, quick=True).seeds(3), Setting({}, Path(), {}, quick=True).seeds(1)
            ((0, 1), (0,))
        """
        return tuple(range(max(1, number - 1) if self.quick else number))


@dataclass(frozen=True)
class Model:
    """A model to evaluate or draw, and what tables call it."""

    label: str
    name: str
    """A name from ``chmnet models``, or a model file."""
    backbone: str = ""
    backbone_weights: str = ""
    changes: dict[str, Any] = field(default_factory=dict)

    def load(self) -> CHMNet:
        """The network, ready for inference."""
        return load_model(self.name, self.backbone, self.backbone_weights, self.changes)


class ExamplePair(NamedTuple):
    """Two pictures of things of one kind."""

    title: str
    source: Image.Image
    target: Image.Image


def open_pair(pair: Pair) -> tuple[Image.Image, Image.Image]:
    """The pictures of a pair."""
    return to_picture(pair.source.path), to_picture(pair.target.path)


class Store:
    """Computes what experiments need and keeps it: nothing is computed twice.

    Args:
        folder: for ``runs`` (trained models), ``predictions`` and ``costs``; experiments share what is in it.
        setting: data and recipe.
        resnet50: file with the weights of ResNet-50; empty: models on ResNet-50 are left out.
        examples: folder of chmnet's example pictures.
        channels: numbers of channels to compare.
        say: called with a line about each computation.
        track: goes through pairs, for progress.
        device: where models match; see :class:`chmnet.Matcher`. Costs are those of the CPU.
    """

    def __init__(
        self,
        folder: Path,
        setting: Setting,
        resnet50: str = "",
        examples: Path = Path("examples"),
        channels: Sequence[int] = (1, 2, 4, 8, 16),
        say: Say = lambda text: None,
        track: Track = iter,
        device: str = "auto",
    ) -> None:
        self.folder, self.setting, self.resnet50, self.examples = folder, setting, resnet50, examples
        self.channels = tuple(channels)
        self.say, self.track, self.device = say, track, device
        self._features = FeatureCache[torch.Tensor](memory_bytes=3 * 2**30, dtype=torch.float16)
        self._pairs: dict[str, list[Pair]] = {}

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *exception: Any) -> None:
        self._features.__exit__(*exception)

    @property
    def benchmarks(self) -> dict[str, Benchmark]:
        """The setting's benchmarks by name."""
        return self.setting.benchmarks

    def pairs(self, benchmark: str) -> list[Pair]:
        """The test pairs of a benchmark."""
        if benchmark not in self._pairs:
            wanted = self.benchmarks[benchmark]
            self._pairs[benchmark] = data.load_pairs(wanted.dataset, wanted.root, "test")
        return self._pairs[benchmark]

    def trained(self, variant: str, seed: int = 0) -> Model:
        """The model of a variant of the recipe; its training is run, resumed, or was completed before.

        Raises:
            InputError: the folder holds a run of another recipe.
        """
        config = training_config(variant, seed, self.setting.recipe)
        name = f"{variant}-seed-{seed}"
        run = self.folder / "runs" / name
        if (run / CONFIG).exists() and TrainingConfig.from_toml(run / CONFIG) != config:
            raise InputError(f"{run} was trained by another recipe; remove it, or name another folder")
        if not (run / LAST).exists():
            self.say(f"training {name}")
            train(config, run, self.setting.root, resume=True, cache=self._features, device=self.device)
        return Model(name, str(run / LAST))

    def matcher(self, model: Model) -> Matcher:
        """A matcher of a model, on the store's device."""
        return Matcher(model.load(), self.device, poses="upright")

    def check_examples(self) -> None:
        """Check the example pictures before any long computation.

        Raises:
            InputError: a picture is missing.
        """
        if self.setting.quick:
            return
        for name in (name for pair in PAIRS for name in (pair.source, pair.target)):
            if not (self.examples / name).is_file():
                raise InputError(
                    f"there is no {self.examples / name}; name the folder of chmnet's example pictures "
                    "with --examples"
                )

    def example_pairs(self) -> list[ExamplePair]:
        """The example pictures of the project; in quick mode, pairs of the synthetic set.

        Raises:
            InputError: a picture is missing.
        """
        if self.setting.quick:
            pairs = self.pairs(next(iter(self.benchmarks)))
            return [ExamplePair(pair.category, *open_pair(pair)) for pair in pairs[:: len(pairs) // 4 or 1][:4]]
        self.check_examples()
        return [
            ExamplePair(
                " and ".join(Path(name).stem.replace("-", " ") for name in (pair.source, pair.target)),
                to_picture(self.examples / pair.source),
                to_picture(self.examples / pair.target),
            )
            for pair in PAIRS
        ]

    def evaluated(self, model: Model, benchmark: str, **protocol: Any) -> dict[str, Any]:
        """PCK of a model on a benchmark, and its robustness to clutter where objects have boxes.

        Args:
            model: the model.
            benchmark: name of one of the setting's.
            protocol: changes of the benchmark's protocol.
        """
        pairs, wanted = self.pairs(benchmark), self.benchmarks[benchmark]
        return evaluate(pairs, self.predictions(model, benchmark), wanted.protocol.replace(**protocol))

    def pair_scores(self, model: Model, benchmark: str) -> dict[str, dict[float, float]]:
        """PCK of each pair with keypoints, by its name and α."""
        found = self.predictions(model, benchmark).predictions.values()
        return per_pair(self.pairs(benchmark), found, self.benchmarks[benchmark].protocol)

    def predictions(self, model: Model, benchmark: str) -> PredictionFile:
        """Predictions of a model for all pairs of a benchmark, computed now or before."""
        pairs, wanted = self.pairs(benchmark), self.benchmarks[benchmark]
        with_boxes = all(side.box or side.mask for pair in pairs for side in (pair.source, pair.target))
        check_pairs(pairs, wanted.protocol, with_boxes)
        network = model.load()
        header = Header.of(wanted.dataset, "test", pairs, describe_model(model.label, network), with_boxes)
        folder = self.folder / "predictions"
        folder.mkdir(parents=True, exist_ok=True)
        file = open_predictions(
            header, folder / f"{model.label}-{benchmark}-{header.model['weights_sha256'][:8]}.jsonl"
        )
        if not file.complete:
            self.say(f"{model.label} on {wanted.label}: {len(pairs) - len(file.predictions)} pairs")
        predict(pairs, network, file, header, self.track, self.device)
        return file

    def cost(self, label: str, config: ModelConfig, part: str) -> dict[str, Any]:
        """What a model costs, as ``chmnet benchmark --only PART`` measures it.

        Times are only reliable while the machine has nothing else to do.

        Args:
            label: what the report calls the model.
            config: its configuration; the weights are random.
            part: ``head`` or ``pair``.
        """
        file = self.folder / "costs" / f"{label}-{part}.json"
        if file.exists():
            kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            if kept["model"]["config"] == config.to_dict():
                return kept
        self.say(f"measuring the cost of {label}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = CHMNet(config).eval()
        size = (config.image_size[0], config.image_size[1])
        repeats = 1 if self.setting.quick else 9
        report = measure_cost(Plan(network, label, size, parts=(part,), repeats=repeats, reference=False))
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as temporary:
            temporary.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        return report
