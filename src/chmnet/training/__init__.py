"""Training: :func:`chmnet.training.loop.train` runs a :class:`TrainingConfig`; the objective."""

from chmnet.training.config import TrainingConfig
from chmnet.training.objective import keypoint_loss

__all__ = ["TrainingConfig", "keypoint_loss"]
