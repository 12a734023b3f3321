"""Training: the objective."""

from chmnet.training.loss import keypoint_loss

__all__ = ["keypoint_loss"]
