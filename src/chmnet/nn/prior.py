"""The Hough prior: what a matcher knows before it has seen one label, written into the network's own weights.

Two things are known. A match is likely where neighbouring matches move alike: the votes start as a Gaussian of
the triplet (‖p′ − p‖, ‖p‖, ‖p′‖) that psi kernels are made of. And most directions of a feature space are empty:
the projections start as a principal component analysis. Both leave an ordinary network, ready to match or to
train.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from chmnet.errors import ConfigError, InputError
from chmnet.nn.chmnet import MatchingHead
from chmnet.nn.hough import HoughMatching
from chmnet.nn.taps import tap_groups
from chmnet.ops.correlation import level_size, normalise, resize_features


@dataclass(frozen=True)
class HoughPrior:
    """How neighbouring matches vote for each other, and how strongly.

    The defaults were chosen on the validation pairs of PF-PASCAL. Lengths are in cells of the layer's own grid,
    or in steps of scale.
    """

    first_offset_sigma: float = 0.4
    """σ of ‖p′ − p‖ in the first vote: how differently a neighbour may move and still be heard."""
    last_offset_sigma: float = 0.7
    """The same in the last vote, on the finer grid."""
    distance_sigma: float = 3.0
    """σ of the distances ‖p‖ and ‖p′‖, in both votes: how far away a neighbour is heard."""
    scale_offset_sigma: float = 0.5
    """σ of the difference between a neighbour's change of scale and the match's own."""
    scale_distance_sigma: float = 1.0
    """σ of the distances between scales."""
    gain: float = 15.0
    """Slope of the sigmoid after the first vote, whose votes are means of correlations: 0 … 1."""
    threshold: float = 0.25
    """The vote that the sigmoid turns into ½."""
    sharpness: float = 1000.0
    """The last vote's scores go from 0 to this many times the transfer's temperature."""
    channel_noise: float = 0.05
    """Relative standard deviation by which the weights of several channels differ; one channel has none."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (0 if field.name in ("threshold", "channel_noise") else 1e-3) <= value <= 1e6:
                raise ConfigError(f"{field.name} of a Hough prior must be a positive number, got {value}")


def apply_hough_prior(head: MatchingHead, prior: HoughPrior = HoughPrior(), seed: int = 0) -> None:
    """Give both Hough layers their prior weights and biases; projections stay as they are.

    With v the mean of the neighbouring correlations under the first Gaussian, the first layer and its sigmoid
    give ``s = sigmoid(gain · (v − threshold))``. The last layer gives ``sharpness · temperature · (mean of s −
    s₀)``, where s₀ is what no correlation at all would give: whatever temperature the configuration has, the
    softmax of the transfer sees the same numbers.

    Args:
        head: a head with Hough layers, of any sharing, window, scales and number of channels.
        prior: the numbers.
        seed: of the small differences between channels.

    Raises:
        ConfigError: the head does not vote with Hough layers.

    Example:
        >>> from chmnet.config import ModelConfig
        >>> head = MatchingHead(ModelConfig(), in_channels=8)
        >>> apply_hough_prior(head)
        >>> kernel = head.last.kernel()[0, 0]
        >>> bool(kernel[2, 2, 2, 2] == kernel.max()), round(kernel.sum().item(), 3)
        (True, 1000.0)
    """
    first, last = head.first, head.last
    if not isinstance(first, HoughMatching):
        raise ConfigError(f"a Hough prior needs matching.kind = hough, got {head.config.matching.kind}")
    generator = torch.Generator().manual_seed(seed)
    noise = prior.channel_noise if first.out_channels > 1 else 0.0
    _set_votes(first, gaussian_kernel(first, prior, prior.first_offset_sigma), prior.gain, noise, generator)
    assert first.bias is not None
    nn.init.constant_(first.bias, -prior.gain * prior.threshold)
    if isinstance(last, HoughMatching):
        gain = prior.sharpness * head.config.transfer.temperature
        _set_votes(last, gaussian_kernel(last, prior, prior.last_offset_sigma), gain, noise, generator)
        assert last.bias is not None
        nothing = torch.sigmoid(torch.tensor(-prior.gain * prior.threshold)).item()
        nn.init.constant_(last.bias, -gain * nothing)


def gaussian_kernel(layer: HoughMatching, prior: HoughPrior, offset_sigma: float) -> Float64[Tensor, " *taps"]:
    """The discretised Gaussian that a layer's votes start as, of sum 1, before any weights are shared.

    ``exp(−‖p′ − p‖² / 2σ² − (‖p‖² + ‖p′‖²) / 4σ_d²)``, and with scales and rotations the same of their distances.
    The 4 makes σ_d the standard deviation of the distance of taps that move alike, for which the two distances
    are equal. Where a layer has no tap the kernel is 0.
    """
    taps = tap_groups(layer.spatial, layer.scale, "full", rotation=layer.rotation)  # of every single tap
    exponent = taps.offset.double().square() / (2 * offset_sigma**2)
    exponent += _squares(taps.far_distance, taps.near_distance) / (4 * prior.distance_sigma**2)
    exponent += taps.scale_offset.double().square() / (2 * prior.scale_offset_sigma**2)
    exponent += _squares(taps.scale_far_distance, taps.scale_near_distance) / (4 * prior.scale_distance_sigma**2)
    exponent += taps.rotation_offset.double().square() / (2 * prior.scale_offset_sigma**2)
    exponent += _squares(taps.rotation_far_distance, taps.rotation_near_distance) / (
        4 * prior.scale_distance_sigma**2
    )
    kernel = torch.exp(-exponent)[taps.index] * (layer.groups.index >= 0)
    return kernel / kernel.sum()


def _squares(far: Tensor, near: Tensor) -> Tensor:
    return far.double().square() + near.double().square()


@torch.no_grad()
def _set_votes(
    layer: HoughMatching, kernel: Tensor, gain: float, noise: float, generator: torch.Generator
) -> None:
    """Share a kernel of sum 1: a group's weight is the sum of its taps, for a layer divides by their number."""
    index, there = layer.groups.index.flatten(), (layer.groups.index >= 0).flatten()
    weight = kernel.new_zeros(layer.groups.number).index_add(0, index[there], kernel.flatten()[there])
    differences = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
    layer.weight.copy_(gain / layer.in_channels * weight * (1 + noise * differences))


@torch.no_grad()
def fit_projections(
    head: MatchingHead, features: Tensor | Iterable[Tensor], each_scale: bool = False
) -> Float64[Tensor, "scales"]:
    """Start the head's projections as principal components of features, on the centre tap of each 3×3 kernel.

    The components are the leading eigenvectors of the uncentred second moment ``Σ f fᵀ`` of features of length
    one: of all projections to as many channels, the one that keeps most of what the cosine sees. With as many
    channels as features have, cosines stay exactly what they were.

    Args:
        head: a head with projections, that is with a ``reduction`` above 0.
        features: ``b c h w``, or several of these, of any pictures and sizes; no labels are needed.
        each_scale: fit each scale's projection to features of that scale, instead of one to all.

    Returns:
        The share of the features' energy that each scale's projection keeps, 0 … 1.

    Raises:
        ConfigError: the head has no projections.
        InputError: no features, or features with other channels.

    Example:
        >>> from chmnet.config import ModelConfig
        >>> head = MatchingHead(ModelConfig(), in_channels=8)  # 8 channels become 2
        >>> plane = torch.randn(1, 2, 9, 9).repeat(1, 4, 1, 1)  # features that fill two directions only
        >>> fit_projections(head, plane).round(decimals=3).tolist()
        [1.0, 1.0, 1.0]
    """
    if not head.projections:
        raise ConfigError("the head has no projections to fit; set reduction to 1 or more")
    width, channels = _convolution(head, 0).weight.shape[:2]
    scales = head.scales if each_scale else (1.0,)
    moments = torch.zeros(len(scales), channels, channels, dtype=torch.float64)
    for batch in [features] if isinstance(features, Tensor) else features:
        if batch.dim() != 4 or batch.shape[1] != channels:
            raise InputError(f"features must have the axes b {channels} h w, got {list(batch.shape)}")
        for number, scale in enumerate(scales):
            size = level_size((batch.shape[2], batch.shape[3]), scale)
            level = resize_features(batch.detach().double().cpu(), size)
            vectors = normalise(level).movedim(1, -1).flatten(0, -2)
            moments[number] += vectors.mT @ vectors
    if not (moments.diagonal(dim1=-2, dim2=-1).sum(-1) > 0).all() or not moments.isfinite().all():
        raise InputError("there are no features to fit the projections to; give finite features of some pictures")
    values, vectors = torch.linalg.eigh(moments)  # ascending
    components = vectors[..., -width:].flip(-1).mT
    # An eigenvector may point either way: its largest entry decides, so that every run gives the same.
    largest = components.gather(-1, components.abs().argmax(-1, keepdim=True))
    components = components * largest.sign()
    for number in range(len(head.projections)):
        convolution = _convolution(head, number)
        convolution.weight.zero_()
        convolution.weight[:, :, 1, 1] = components[number % len(scales)].to(convolution.weight)
    kept = values.clamp(min=0)[:, -width:].sum(-1) / values.clamp(min=0).sum(-1)
    return kept.expand(len(head.projections)).clone()


def _convolution(head: MatchingHead, number: int) -> nn.Conv2d:
    convolution = head.projections[number]
    assert isinstance(convolution, nn.Conv2d)
    return convolution
