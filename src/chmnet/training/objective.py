"""What training minimises: the distance of transferred keypoints (section 4.4 of the paper), and cross-entropy.

The cross-entropy is of true matches, or of a Gaussian around them; of scores, and of features before any vote.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from chmnet.config import TransferConfig
from chmnet.errors import InputError
from chmnet.geometry import Size, grid_axis
from chmnet.nn.chmnet import CHMNet, Pyramid
from chmnet.ops.correlation import exchange, normalise
from chmnet.ops.transfer import sample_grid, transfer_by_rows
from chmnet.training.config import TrainingConfig
from chmnet.training.crossing import Crossing

NARROWEST = 0.5
"""Of a Gaussian on a grid, in its cells: below, a place between grid points would have no neighbours."""
_TINY = 1e-12


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


def bell(points: Float[Tensor, "b n 2"], size: Size, sigma: float) -> Float[Tensor, "b n cells"]:
    """A Gaussian around each normalised point on a grid of ``size``, ``sigma`` in cells, each of sum 1.

    Example:
        >>> [round(value, 2) for value in bell(torch.zeros(1, 1, 2), (1, 3), 0.5)[0, 0].tolist()]
        [0.11, 0.79, 0.11]
    """
    height, width = size
    dx = (points[..., :1] - grid_axis(width, like=points)) * ((width - 1) / 2)
    dy = (points[..., 1:] - grid_axis(height, like=points)) * ((height - 1) / 2)
    squares = (dy.square()[..., :, None] + dx.square()[..., None, :]).flatten(-2)
    return (-squares / (2 * sigma**2)).softmax(-1)


def spread_loss(
    correlation: Float[Tensor, "b 1 hs ws ht wt"],
    source: Float[Tensor, "b n 2"],
    target: Float[Tensor, "b n 2"],
    mask: Bool[Tensor, "b n"],
    transfer: TransferConfig,
    temperature: float,
    sigma: float,
) -> Float[Tensor, ""]:
    """Divergence of ``softmax(C / temperature)`` from a Gaussian around each true match: 0 where they are equal.

    Args:
        correlation: scores of all pairs of grid positions.
        source: normalised keypoints, padded.
        target: where they should be.
        mask: which entries are keypoints; a pair without any counts as 0.
        transfer: how scores between grid points of the source are read.
        temperature: divides the scores.
        sigma: of the Gaussian, in cells of the target.

    Example:
        >>> flat, corner = torch.zeros(1, 1, 2, 2, 3, 3), torch.ones(1, 1, 2)
        >>> spread_loss(flat, corner, corner, corner[..., 0] > 0, TransferConfig(), 1.0, 100.0).item() < 1e-3
        True
    """
    rows = sample_grid(rearrange(correlation, "b 1 hs ws ht wt -> b hs ws (ht wt)"), source, transfer)
    wanted = bell(torch.where(mask[..., None], target, 0.0), (correlation.shape[4], correlation.shape[5]), sigma)
    return _divergence(rows / temperature, wanted, mask)


def feature_loss(
    source: Float[Tensor, "b c hs ws"],
    target: Float[Tensor, "b c ht wt"],
    source_points: Float[Tensor, "b n 2"],
    target_points: Float[Tensor, "b n 2"],
    mask: Bool[Tensor, "b n"],
    temperature: float,
    sigma: float,
) -> Float[Tensor, ""]:
    """As :func:`spread_loss`, of the cosines of a keypoint's feature with all features of the target."""
    places = torch.where(mask[..., None], source_points, 0.0)[:, :, None]
    read = F.grid_sample(source, places, mode="bilinear", padding_mode="border", align_corners=True)
    cosines = normalise(read)[..., 0].mT @ normalise(target).flatten(2)
    wanted = bell(torch.where(mask[..., None], target_points, 0.0), (target.shape[2], target.shape[3]), sigma)
    return _divergence(cosines / temperature, wanted, mask)


def _divergence(
    scores: Float[Tensor, "b n cells"], wanted: Float[Tensor, "b n cells"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, ""]:
    """Mean over pairs of the mean over their keypoints of KL(wanted, softmax of scores)."""
    errors = (wanted * (wanted.clamp(min=_TINY).log() - scores.log_softmax(-1))).sum(-1)
    errors = torch.where(mask, errors, 0.0)
    return (errors.sum(-1) / mask.sum(-1).clamp(min=1)).mean()


class Objective(nn.Module):
    """A model and its loss as one module: one call forward and one backward for a batch.

    Args:
        model: the network.
        config: weights and temperatures of the losses; whether batches hold features, because the backbone is
            frozen, or images.

    ``done`` is the share of the run that is over: set it before each step, for what changes during a run.
    """

    def __init__(self, model: CHMNet, config: TrainingConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.done = 0.0

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_points: Tensor,
        target_points: Tensor,
        mask: Tensor,
        crossing: Crossing | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the transferred keypoints."""
        points = source_points, target_points
        if not self.config.feature_loss:
            correlation = self.model.head(source, target) if self.config.frozen else self.model(source, target)
            return self._loss_of_scores(correlation, *points, mask)
        pyramids = self._pyramids(source, target)
        loss, predicted = self._loss_of_scores(self.model.head.match(*pyramids)[0], *points, mask)
        features = self._loss_of_features(*pyramids, *points, mask)
        if crossing is not None:
            share = len(crossing.mask) / (len(crossing.mask) + len(mask))
            features = (1 - share) * features + share * self._loss_across(*pyramids, crossing)
        return loss + self.config.feature_loss * features, predicted

    def sigma(self) -> float | None:
        """Width of the Gaussian around true matches by now, in cells of the finer grid; ``None``: a point."""
        if not self.config.match_sigma:
            return None
        first, last = self.config.match_sigma
        return float(first * (last / first) ** self.done)

    def _pyramids(self, source: Tensor, target: Tensor) -> tuple[Pyramid, Pyramid]:
        model, head = self.model, self.model.head
        if self.config.frozen:
            return head.pyramid(source), head.pyramid(target)
        batch_statistics = self.config.batch_statistics and self.training  # then each side has its own
        if not model.sides_alike or source.shape != target.shape or batch_statistics:
            return head.pyramid(model.features(source)), head.pyramid(model.features(target, "target"))
        # One larger batch: with one thread PyTorch takes its fast convolutions from 16 pictures on.
        levels, size = head.pyramid(model.features(torch.cat([source, target])))
        halves = [level.tensor_split([len(source)]) for level in levels]
        return Pyramid([half[0] for half in halves], size), Pyramid([half[1] for half in halves], size)

    def _loss_of_scores(
        self, correlation: Tensor, source: Tensor, target: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        loss, predicted = self._one_way(correlation, source, target, mask)
        if self.config.both_ways:
            loss = (loss + self._one_way(exchange(correlation), target, source, mask)[0]) / 2
        return loss, predicted

    def _one_way(self, correlation: Tensor, source: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        config, transfer = self.config, self.model.config.transfer
        predicted = transfer_by_rows(correlation, source, transfer)
        loss = keypoint_loss(predicted, target, mask, config.loss)
        if config.match_loss:
            sigma, temperature = self.sigma(), config.match_temperature or transfer.temperature
            if sigma is None:
                improbable = match_loss(correlation, source, target, mask, transfer, temperature)
            else:
                improbable = spread_loss(correlation, source, target, mask, transfer, temperature, sigma)
            loss = loss + config.match_loss * improbable
        return loss, predicted

    def _loss_of_features(
        self, source: Pyramid, target: Pyramid, source_points: Tensor, target_points: Tensor, mask: Tensor
    ) -> Tensor:
        """Mean over the levels and both directions."""
        sigma, temperature = self.sigma() or NARROWEST, self.config.feature_temperature
        finest = self.model.head.fine_size(source.size)[0]
        losses = []
        for here, there in zip(source.levels, target.levels, strict=False):  # turned targets are left out
            width = max(NARROWEST, sigma * here.shape[2] / finest)
            losses.append(feature_loss(here, there, source_points, target_points, mask, temperature, width))
            losses.append(feature_loss(there, here, target_points, source_points, mask, temperature, width))
        return torch.stack(losses).mean()

    def _loss_across(self, source: Pyramid, target: Pyramid, crossing: Crossing) -> Tensor:
        """The same for pairs across the batch's own."""
        levels = [torch.cat(pair) for pair in zip(source.levels, target.levels, strict=False)]
        here = Pyramid([level[crossing.source] for level in levels], source.size)
        there = Pyramid([level[crossing.target] for level in levels], target.size)
        return self._loss_of_features(here, there, crossing.source_points, crossing.target_points, crossing.mask)
