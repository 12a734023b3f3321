"""What training minimises: the distance of transferred keypoints (section 4.4 of the paper), and cross-entropy."""

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from chmnet.config import TransferConfig
from chmnet.errors import InputError
from chmnet.geometry import grid_axis
from chmnet.nn.chmnet import CHMNet
from chmnet.ops.transfer import sample_grid


def keypoint_loss(
    predicted: Float[Tensor, "b n 2"],
    truth: Float[Tensor, "b n 2"],
    mask: Bool[Tensor, "b n"],
    kind: str = "distance",
) -> Float[Tensor, ""]:
    """Mean over pairs of the mean over a pair's keypoints of their (squared) distance.

    Args:
        predicted: keypoints, padded.
        truth: where they should be.
        mask: which entries are keypoints and not padding; a pair without any counts as 0.
        kind: ``"distance"`` (the paper) or ``"squared-distance"`` (the authors' code).

    Example:
        >>> zero, mask = torch.zeros(1, 2, 2), torch.tensor([[True, False]])
        >>> keypoint_loss(zero, zero + torch.tensor([3.0, 4.0]), mask, "distance").item()
        5.0
    """
    # Padding may hold anything, NaN too: take it out before it touches a gradient.
    difference = torch.where(mask[..., None], predicted - truth, 0.0)
    errors = difference.square().sum(-1)
    if kind == "distance":
        positive = errors > 0
        errors = torch.where(positive, torch.where(positive, errors, 1.0).sqrt(), 0.0)
    elif kind != "squared-distance":
        raise InputError(f"kind must be distance or squared-distance, got {kind!r}")
    return (errors.sum(-1) / mask.sum(-1).clamp(min=1)).mean()


def match_loss(
    correlation: Float[Tensor, "b 1 hs ws ht wt"],
    source: Float[Tensor, "b n 2"],
    target: Float[Tensor, "b n 2"],
    mask: Bool[Tensor, "b n"],
    config: TransferConfig = TransferConfig(),
    temperature: float | None = None,
) -> Float[Tensor, ""]:
    """Cross-entropy of the true matches: the mean of ``−log softmax(C / temperature)`` at the true positions.

    It goes beyond the paper. The distance of :func:`keypoint_loss` has almost no gradient while a keypoint is
    confidently in a wrong place; this loss has. The true distribution of a place between grid points is bilinear:
    the shares of the four points around it.

    Args:
        correlation: scores of all pairs of grid positions.
        source: normalised keypoints, padded.
        target: where they should be.
        mask: which entries are keypoints; a pair without any counts as 0.
        config: temperature, and how scores between grid points of the source are read.
        temperature: another one than the transfer's.

    Example:
        >>> identity = torch.eye(9).view(1, 1, 3, 3, 3, 3) * 20
        >>> corner, mask = -torch.ones(1, 1, 2), torch.ones(1, 1, dtype=torch.bool)
        >>> match_loss(identity, corner, corner, mask) < 0.01 < match_loss(identity, corner, -corner, mask)
        tensor(True)
    """
    height, width = correlation.shape[4:]
    scores = sample_grid(rearrange(correlation, "b 1 hs ws ht wt -> b hs ws (ht wt)"), source, config)
    costs = -(scores / (temperature or config.temperature)).log_softmax(-1)
    truth = torch.where(mask[..., None], target, 0.0).clamp(-1, 1)
    rows = _bilinear_weights(truth[..., 1], height, like=scores)
    columns = _bilinear_weights(truth[..., 0], width, like=scores)
    errors = (costs.unflatten(-1, (height, width)) * rows[..., :, None] * columns[..., None, :]).sum((-1, -2))
    errors = torch.where(mask, errors, 0.0)
    return (errors.sum(-1) / mask.sum(-1).clamp(min=1)).mean()


def _bilinear_weights(places: Float[Tensor, "b n"], length: int, like: Tensor) -> Float[Tensor, "b n length"]:
    """Shares of the two grid points around each place."""
    if length == 1:
        return torch.ones_like(places)[..., None]
    step = 2 / (length - 1)
    return (1 - (places[..., None] - grid_axis(length, like=like)).abs() / step).clamp(min=0)


class Objective(nn.Module):
    """A model and its loss as one module: one call forward and one backward for a batch.

    Args:
        model: the network.
        cached: batches hold features, not images.
        loss: of the distances of keypoints; see :func:`keypoint_loss`.
        match_weight: weight of :func:`match_loss` beside it.
        match_temperature: its temperature; 0: the transfer's.
    """

    def __init__(
        self,
        model: CHMNet,
        cached: bool,
        loss: str = "distance",
        match_weight: float = 0.0,
        match_temperature: float = 0.0,
    ) -> None:
        super().__init__()
        self.model, self.cached, self.loss = model, cached, loss
        self.match_weight, self.match_temperature = match_weight, match_temperature

    def forward(
        self, source: Tensor, target: Tensor, source_points: Tensor, target_points: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the transferred keypoints."""
        correlation = self.model.head(source, target) if self.cached else self.model(source, target)
        predicted = self.model.transfer(correlation, source_points)
        loss = keypoint_loss(predicted, target_points, mask, self.loss)
        if self.match_weight:
            transfer, temperature = self.model.config.transfer, self.match_temperature or None
            loss = loss + self.match_weight * match_loss(
                correlation, source_points, target_points, mask, transfer, temperature
            )
        return loss, predicted
