"""The training objective (section 4.4 of the paper)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from chmnet.errors import InputError


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
