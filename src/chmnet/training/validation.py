"""PCK during training: resized pixels, longer side of the image, mean over pairs."""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from chmnet.geometry import Size
from chmnet.metrics import Protocol, hits
from chmnet.metrics.protocol import alpha_key
from chmnet.training.batches import Batches, Plan

ALPHAS = (0.05, 0.1)
CRITERION = alpha_key(0.1)
"""The α whose PCK decides which weights are the best."""
Figures = dict[str, Any]


def protocol(size: Size) -> Protocol:
    """What the figures of a validation mean."""
    return Protocol(space="resized", threshold="img", average="pair", alphas=ALPHAS, image_size=size)


def correct_share(
    predicted: Float[Tensor, "b n 2"], truth: Float[Tensor, "b n 2"], mask: Bool[Tensor, "b n"], size: Size
) -> Float[Tensor, "alphas b"]:
    """Share of each pair's keypoints that lie within α · max(height, width), for each α.

    Args:
        predicted: normalised.
        truth: normalised.
        mask: which are keypoints; a pair without any has the share 0.
        size: (height, width) of the resized pictures.

    Example:
        >>> truth, mask = torch.zeros(1, 2, 2), torch.ones(1, 2, dtype=torch.bool)
        >>> found = torch.tensor([[[0.0, 0.15], [0.5, 0.0]]])  # 18 and 60 px of 240
        >>> correct_share(found, truth, mask, (240, 240)).tolist()
        [[0.0], [0.5]]
    """
    height, width = size
    pixels = (predicted - truth) * predicted.new_tensor([width / 2, height / 2])
    distances = pixels.square().sum(-1).sqrt()
    limits = distances.new_tensor(ALPHAS)[:, None, None] * max(size)
    correct = hits(distances, limits) & mask
    # In double precision, so that equal figures are equal whatever the order of their sum.
    return correct.sum(-1).cpu().double() / mask.sum(-1).cpu().clamp(min=1)


class Validation:
    """The same pairs every time.

    Args:
        batches: makes them.
        plan: which pairs.
        batch_size: pairs computed together by all processes.
    """

    def __init__(self, batches: Batches, plan: Plan, batch_size: int) -> None:
        self.batches, self.plan, self.batch_size = batches, plan, batch_size

    def run(self, objective: nn.Module, accelerator: Any) -> Figures:
        """Loss and PCK in percent of all pairs, over all processes; of several sources, also of each."""
        numbers = sorted({number for number, _ in self.plan})
        parts = [
            self._totals([entry for entry in self.plan if entry[0] == number], objective, accelerator)
            for number in numbers
        ]
        whole = _figures(torch.stack(parts).sum(0)) if parts else _figures(torch.zeros(2 + len(ALPHAS)))
        return {**whole, "sources": [_figures(part) for part in parts]} if len(parts) > 1 else whole

    @torch.no_grad()
    def _totals(self, plan: Plan, objective: nn.Module, accelerator: Any) -> Float[Tensor, " numbers"]:
        """Sums over the pairs of a plan: pairs, losses, and shares of correct keypoints for each α."""
        totals = torch.zeros(2 + len(ALPHAS), dtype=torch.float64)
        processes, process = accelerator.num_processes, accelerator.process_index
        for part in self.batches.parts(plan, 0, self.batch_size, processes, process, whole=False):
            batch = part.to(accelerator.device)
            loss, predicted = objective(*batch)
            shares = correct_share(predicted.float(), batch.target_points, batch.mask, self.batches.size)
            pairs = int(batch.mask.any(-1).sum())
            found = [pairs, float(loss) * len(batch.mask), *shares.sum(-1).tolist()]
            totals += torch.tensor(found, dtype=torch.float64)
        if processes > 1:
            totals = accelerator.reduce(totals.to(accelerator.device), "sum").cpu()
        return totals


def _figures(totals: Float[Tensor, " numbers"]) -> Figures:
    pairs, loss_sum, *sums = totals.tolist()
    number = max(1.0, pairs)
    loss_mean = loss_sum / number
    return {
        "loss": loss_mean if math.isfinite(loss_mean) else None,
        "pairs": int(pairs),
        "pck": {alpha_key(alpha): 100 * part / number for alpha, part in zip(ALPHAS, sums, strict=True)},
    }
