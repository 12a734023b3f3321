"""The training loop, on accelerate: one process or many, the same global batch and the same curve."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chmnet.data.held_out import read_held_out
from chmnet.errors import ConfigError, InputError
from chmnet.features import FeatureCache, hash_weights
from chmnet.outputs import atomic_path, held
from chmnet.training.batches import Batch, Batches
from chmnet.training.checkpoint import Checkpoint, Progress, hash_of_version_0_1, save_checkpoint
from chmnet.training.choosing import below_root
from chmnet.training.config import TrainingConfig
from chmnet.training.crossing import in_groups
from chmnet.training.datasets import epoch_plan, open_sources
from chmnet.training.initialise import backbone_from_init, build_model, initialise
from chmnet.training.log import Record, RunLog
from chmnet.training.objective import Objective
from chmnet.training.optimisation import (
    WeightAverage,
    build_optimiser,
    learning_rate_factor,
    set_learning_rate,
    trainable,
)
from chmnet.training.processes import start_accelerator
from chmnet.training.validation import CRITERION, Validation, protocol
from chmnet.weights import save_model

CONFIG, CHECKPOINT, BEST, LAST = "config.toml", "checkpoint.safetensors", "best.safetensors", "last.safetensors"
_VALIDATION_SEED = 1_000_003
_EQUAL_PCK = 1e-6
_FROZEN = ("backbone.", "target_backbone.")
Report = Callable[[Record], None]


def train(
    config: TrainingConfig,
    folder: str | Path,
    root: str | Path | None = None,
    resume: bool = False,
    report: Report = lambda record: None,
    cache: FeatureCache[Tensor] | None = None,
    device: str = "auto",
) -> Progress:
    """Train a model; everything about the run goes into ``folder``.

    Args:
        config: the run.
        folder: for checkpoints, logs, the curve, ``best.safetensors`` and ``last.safetensors``.
        root: the folder that holds the data sets.
        resume: from the folder's checkpoint, if there is one.
        report: called with every record, for a progress bar.
        cache: features that earlier runs with the same frozen backbone and image size have kept; the run adds to
            them. ``None``: it keeps its own, until it ends.
        device: where the network runs; see :func:`start_accelerator`.

    Returns:
        How the run ended.

    Raises:
        ChmnetError: the run cannot start or continue; files that it wrote before stay complete.
    """
    place = Path(root) if root is not None else None
    with Run(config, Path(folder), place, resume, report, cache, device) as run:
        return run.train()


class Run:
    """One training run; see :func:`train`."""

    def __init__(
        self,
        config: TrainingConfig,
        folder: Path,
        root: Path | None,
        resume: bool,
        report: Report,
        cache: FeatureCache[Tensor] | None = None,
        device: str = "auto",
    ) -> None:
        self.config, self.folder, self.report = config, folder, report
        self.stack = ExitStack()
        self.accelerator = start_accelerator(config, device)
        with ExitStack() as undone:
            undone.callback(self.stack.close)
            self.holds_folder = False
            self._hold_folder()
            hidden = (
                read_held_out(below_root(config.held_out_keypoints, root)) if config.held_out_keypoints else None
            )
            self.sources = open_sources(config.data, root, config.seed, config.augmentation, hidden)
            held_out = open_sources(config.validation, root, config.seed + _VALIDATION_SEED)
            self.model = build_model(config)
            if not config.frozen:
                cache = None
            elif cache is None:
                dtype = getattr(torch, config.cache_precision)
                cache = self.stack.enter_context(FeatureCache(config.cache_megabytes * 2**20, dtype=dtype))
            self.batches = Batches(self.sources, self.model, cache, config.seed, config.crossed_pairs)
            validation_batches = Batches(held_out, self.model, cache, config.seed)
            plan = epoch_plan(held_out, config.seed + _VALIDATION_SEED, 0)
            self.validation = Validation(validation_batches, plan, config.batch_size // config.accumulate)
            self.notes = {
                "data": [source.describe() for source in self.sources],
                "validation": [source.describe() for source in held_out],
            }
            self.steps_an_epoch = len(epoch_plan(self.sources, config.seed, 0)) // config.batch_size
            if not self.steps_an_epoch:
                raise ConfigError(
                    f"an epoch has fewer pairs than batch_size = {config.batch_size}; make it smaller"
                )
            self._start(folder / CHECKPOINT if resume and (folder / CHECKPOINT).exists() else None)
            undone.pop_all()  # from here on, __exit__ closes the stack

    def _start(self, checkpoint: Path | None) -> None:
        """Give the model its weights, from the initialisation or a checkpoint; prepare everything for steps."""
        saved = Checkpoint(checkpoint) if checkpoint else None
        frozen = _FROZEN if self.config.frozen else ()
        # A resumed run does not need the model that it started from: then the checkpoint holds its backbone.
        self.left_out = () if backbone_from_init(self.config) else frozen
        self.model.to(self.accelerator.device)
        if saved is None or (frozen and not self.left_out and not saved.holds(frozen)):
            initialise(self.model, self.config, self._some_features)
        if saved is not None:
            saved.load_model(self.model, frozen)
        hashes = [h(self.model.backbone) for h in (hash_weights, hash_of_version_0_1)] if frozen else [""]
        if saved is not None and saved.progress.backbone_sha256 not in hashes:
            raise InputError(
                f"the frozen backbone's weights are not those that {self.folder} was trained with; "
                "set backbone_weights to the same file"
            )
        self.progress = saved.progress if saved else Progress(backbone_sha256=hashes[0])
        if self.config.backbone_from and not self.config.frozen:
            for backbone in (self.model.backbone, self.model.target_backbone):
                if backbone is not None:
                    backbone.freeze_before(self.config.backbone_from)
        self.optimiser = build_optimiser(self.model, self.config)
        decay = self.config.average_decay
        self.average = WeightAverage(trainable(self.model), decay) if decay else None
        if saved is not None:
            saved.load_optimiser(self.optimiser, self.model)
            if self.average is not None:
                saved.load_average(self.average)
        self.plain_objective = Objective(self.model, self.config)
        self.objective, self.wrapped_optimiser = self.accelerator.prepare(self.plain_objective, self.optimiser)
        if self.accelerator.scaler is not None and self.progress.scaler:
            self.accelerator.scaler.load_state_dict(self.progress.scaler)
        self.log: RunLog | None = None
        if self.accelerator.is_main_process:
            self._open_folder(resumed=saved is not None)

    def _hold_folder(self) -> None:
        """Keep other runs out of the folder, from when it exists on."""
        if self.accelerator.is_main_process and not self.holds_folder and self.folder.is_dir():
            self.stack.enter_context(held(self.folder, "training in"))
            self.holds_folder = True

    def _open_folder(self, resumed: bool) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {self.folder}: {error.strerror}") from None
        self._hold_folder()
        with atomic_path(self.folder / CONFIG) as temporary:
            temporary.write_text(self.config.to_toml(), encoding="utf-8")
        last = (self.progress.step, self.progress.validated_step) if resumed else None
        self.log = RunLog(self.folder, last)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stack.close()
        if self.log is not None:
            self.log.close()

    def _some_features(self) -> Tensor:
        """Backbone features of the first pictures of the first epoch."""
        plan = epoch_plan(self.sources, self.config.seed, 0)[:64]
        parts = list(self.batches.parts(plan, 0, 8, parts=1, part=0, whole=False))
        inputs = torch.cat([tensor for batch in parts for tensor in (batch.source, batch.target)])
        inputs = inputs.to(self.accelerator.device)
        if self.config.frozen:
            return inputs
        self.model.eval()  # looking at pictures must not move the batch statistics
        with torch.no_grad():
            return torch.cat([self.model.features(images) for images in inputs.split(8)])

    # ------------------------------------------------------------ the loop

    def train(self) -> Progress:
        """All epochs that remain; a validation before the first step and after the last."""
        progress, config = self.progress, self.config
        self.saved_at = self.logged_at = time.monotonic()
        self._record({"kind": "start", "step": progress.step, "steps": config.epochs * self.steps_an_epoch})
        if progress.planned_epochs != config.epochs:
            progress.finished, progress.planned_epochs = False, config.epochs
        if progress.validated_step < 0:
            self._validate()
            self._save()
        while progress.epoch < config.epochs and not progress.finished:
            self._epoch()
            progress.epoch, progress.batch = progress.epoch + 1, 0
            if progress.epoch == config.epochs or progress.epoch % config.validate_every == 0:
                self._validate()
            progress.finished = 0 < config.patience <= progress.stale
            self._save()
        if progress.validated_step < progress.step:  # a run that was shortened to where it stood
            self._validate()
        with self._weights_to_show():
            self._save_model(LAST)
        progress.finished = True
        self._save()
        self.accelerator.wait_for_everyone()
        return progress

    def _epoch(self) -> None:
        config, progress = self.config, self.progress
        plan = epoch_plan(self.sources, config.seed, progress.epoch)
        if config.crossed_pairs:
            plan = in_groups(plan, self.sources, config.category_group, [config.seed, progress.epoch, 2])
        shares = [
            self.batches.parts(
                plan,
                progress.epoch,
                config.batch_size,
                self.accelerator.num_processes * config.accumulate,
                self.accelerator.process_index * config.accumulate + number,
                first=progress.batch,
            )
            for number in range(config.accumulate)
        ]
        self.objective.train()
        for part in self.objective.modules():  # what does not learn keeps its statistics too
            if isinstance(part, nn.BatchNorm2d) and not (config.batch_statistics and part.weight.requires_grad):
                part.eval()
        for parts in zip(*shares, strict=True):
            loss = self._step(parts)
            progress.step, progress.batch = progress.step + 1, progress.batch + 1
            progress.losses, progress.losses_number = progress.losses + loss, progress.losses_number + 1
            if progress.step % config.log_every == 0 or progress.batch == self.steps_an_epoch:
                self._log_steps()
            self.report({"kind": "step", "step": progress.step, "loss": loss})
            if time.monotonic() - self.saved_at > 60 * config.checkpoint_minutes:
                self._save()

    def _step(self, parts: tuple[Batch, ...]) -> float:
        """One step of the optimiser on one batch; its loss, as this process sees it."""
        total_steps = self.config.epochs * self.steps_an_epoch
        self.plain_objective.done = self.progress.step / total_steps
        set_learning_rate(self.optimiser, learning_rate_factor(self.progress.step, total_steps, self.config))
        self.wrapped_optimiser.zero_grad()
        total = 0.0
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.objective):
                loss, _ = self.objective(*part.to(self.accelerator.device))
                self.accelerator.backward(loss / len(parts))
            total += float(loss.detach()) / len(parts)
        if not math.isfinite(total):
            raise InputError(
                f"the loss of step {self.progress.step + 1} is not a finite number; "
                "start again with a lower learning_rate, or with clip_norm"
            )
        if self.config.clip_norm:
            self.accelerator.clip_grad_norm_(self.objective.parameters(), self.config.clip_norm)
        self.wrapped_optimiser.step()
        if self.average is not None:
            self.average.update()
        return total

    # ------------------------------------------------------------ records

    def _record(self, record: Record) -> None:
        if self.log is not None:
            if record["kind"] != "start":
                self.log.add(record)
            self.report(record)

    def _log_steps(self) -> None:
        progress = self.progress
        mean = torch.tensor(progress.losses / progress.losses_number, dtype=torch.float64)
        if self.accelerator.num_processes > 1:
            mean = self.accelerator.reduce(mean.to(self.accelerator.device), "mean")
        seconds = (time.monotonic() - self.logged_at) / progress.losses_number
        record = {
            "kind": "steps",
            "step": progress.step,
            "epoch": progress.epoch,
            "loss": float(mean),
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            "seconds_a_step": round(seconds, 4),
        }
        progress.losses, progress.losses_number = 0.0, 0
        self.logged_at = time.monotonic()
        self._record(record)

    def _weights_to_show(self) -> Any:
        return self.average.applied() if self.average is not None else nullcontext()

    def _validate(self) -> None:
        """Measure the present weights, keep them if they are the best so far, draw the curve."""
        if not self.config.validation:
            return
        progress, started = self.progress, time.monotonic()
        self.objective.eval()
        with self._weights_to_show():
            # Without the wrapper of several processes: their shares may differ in number.
            figures = self.validation.run(self.plain_objective, self.accelerator)
            if not figures["pairs"]:
                raise InputError("the validation has no pairs with keypoints")
            progress.validated_step, progress.latest = progress.step, figures["pck"]
            pck = figures["pck"][CRITERION]
            better = pck > progress.best_pck + _EQUAL_PCK
            progress.stale = 0 if better else progress.stale + 1
            if better:
                progress.best_pck, progress.best_step, progress.best = pck, progress.step, figures["pck"]
                self._save_model(BEST)
        seconds = round(time.monotonic() - started, 3)
        self._record(
            {"kind": "validation", "step": progress.step, "epoch": progress.epoch, **figures, "seconds": seconds}
        )
        if self.log is not None:
            self.log.draw()
        self.logged_at = time.monotonic()

    # ------------------------------------------------------------ files

    def _save(self) -> None:
        """Write the checkpoint."""
        self.saved_at = time.monotonic()
        if not self.accelerator.is_main_process:
            return
        scaler = self.accelerator.scaler
        self.progress.scaler = scaler.state_dict() if scaler is not None else None
        path = self.folder / CHECKPOINT
        save_checkpoint(path, self.model, self.optimiser, self.average, self.progress, self.left_out)

    def _save_model(self, name: str) -> None:
        """Write a model file, with where it comes from."""
        if not self.accelerator.is_main_process:
            return
        progress = self.progress
        training = {
            **self.notes,
            "config": self.config.without_folders(),
            "seed": self.config.seed,
            "step": progress.step,
            "epoch": progress.epoch,
            "validation_pck": progress.latest,
            "best_step": progress.best_step,
            "best_validation_pck": progress.best,
            "protocol": protocol(self.batches.size).describe(),
        }
        save_model(self.model, self.folder / name, {"training": training})
