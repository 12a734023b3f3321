"""The convolutional Hough matching layer (section 3.2 of the paper): 4D and 6D are the same class."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from chmnet.errors import InputError
from chmnet.nn.taps import TapGroups, tap_groups
from chmnet.ops import conv_nd, conv_shared
from chmnet.ops.pivot import conv_pivot, split_pivot

SCALE_BORDERS = ("zero", "present", "replicate")


class HoughMatching(nn.Module):
    """Let every candidate match collect votes from its neighbours: ``c ∗ k + b`` with shared weights.

    A shared weight is divided by the number of taps that share it before the convolution, so that gradients
    of all weights are of one size.

    Args:
        spatial: odd side of the window over positions.
        scale: odd side of the window over scales: 6D; ``None``: 4D.
        sharing: ``"psi"``, ``"iso"`` or ``"full"``; see :mod:`chmnet.nn.taps`.
        taps: ``"dense"``, ``"center-pivot"`` or ``"center-pivot-joint"``; see :mod:`chmnet.nn.taps`.
        rotation: odd side of the window over rotations, or those of source and target; ``None``: no such axes.
        scale_borders: what a vote reads beyond the first and the last scale; see :func:`vote`.
        in_channels: channels of the correlation that comes in.
        out_channels: channels that go out.
        bias: whether to add one learned number to each output channel.
        backend: who convolves; see :func:`chmnet.ops.conv_nd`.

    Input and output axes: ``b c hs ws ht wt``, with scales ``b c ss st hs ws ht wt``; rotations, ``rs rt``, stand
    behind scales.

    Example:
        >>> layer = HoughMatching(spatial=5, scale=3)
        >>> sum(p.numel() for p in layer.parameters())  # 220 weights and a bias
        221
        >>> layer(torch.rand(2, 1, 3, 3, 4, 4, 4, 4)).shape
        torch.Size([2, 1, 3, 3, 4, 4, 4, 4])
    """

    index: Tensor
    count: Tensor

    def __init__(
        self,
        spatial: int = 5,
        scale: int | None = None,
        sharing: str = "psi",
        in_channels: int = 1,
        out_channels: int = 1,
        bias: bool = True,
        backend: str = "auto",
        taps: str = "dense",
        rotation: int | tuple[int, int] | None = None,
        scale_borders: str = "zero",
    ) -> None:
        super().__init__()
        if scale_borders not in SCALE_BORDERS:
            raise InputError(f"scale_borders must be one of {', '.join(SCALE_BORDERS)}, got {scale_borders!r}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels < 1:
                raise InputError(f"{name} must be at least 1, got {channels}")
        self.spatial, self.scale, self.rotation = spatial, scale, rotation
        self.sharing, self.taps, self.scale_borders = sharing, taps, scale_borders
        self.in_channels, self.out_channels = in_channels, out_channels
        self.backend = backend
        self.groups: TapGroups = tap_groups(spatial, scale, sharing, taps, rotation)
        self.register_buffer("index", self.groups.index.clone(), persistent=False)
        self.register_buffer("count", self.groups.count.clone(), persistent=False)
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, self.groups.number))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self, scaled: bool = True, generator: torch.Generator | None = None) -> None:
        """Draw new weights: each tap starts as |normal| · 10⁻³, a small vote in favour.

        Args:
            scaled: multiply each weight by the number of taps that share it, which undoes the division in
                :meth:`kernel`. The authors meant to, and do in 6D; in their 4D layer a slip leaves it out.
            generator: source of randomness; the global one if ``None``.
        """
        with torch.no_grad():
            noise = torch.randn(self.weight.shape, generator=generator).to(self.weight)
            self.weight.copy_(noise.abs() * 1e-3 * (self.count.to(self.weight.device) if scaled else 1))
            if self.bias is not None:
                self.bias.zero_()

    def kernel(self) -> Tensor:
        """The dense kernel ``[c_out, c_in, *taps]`` that the shared weights stand for; 0 where there is no tap."""
        shared = self.weight / self.count
        if self.taps != "dense":
            shared = F.pad(shared, (0, 1))  # what −1, no tap, selects
        index = self.index.flatten() % shared.shape[-1]
        return shared.index_select(-1, index).unflatten(-1, self.index.shape)

    def forward(self, correlation: Tensor) -> Tensor:
        """Vote: convolve the correlation with the kernel, same axes and size out."""
        if self.taps != "dense" or self.scale_borders != "zero" or self.rotation is not None:
            return vote(correlation, self.kernel(), self.bias, self.backend, self.taps, self.scale_borders)
        _check_axes(correlation, self.index.dim())
        return conv_shared(correlation, self.weight / self.count, self.index, self.bias, backend=self.backend)

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows."""
        return (
            f"spatial={self.spatial}, scale={self.scale}, sharing={self.sharing!r}, taps={self.taps!r}, "
            f"in_channels={self.in_channels}, out_channels={self.out_channels}, weights={self.groups.number}"
        )


def vote(
    correlation: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    backend: str,
    taps: str = "dense",
    scale_borders: str = "zero",
) -> Tensor:
    """Convolve a 4D, 6D or 8D correlation with a dense kernel, or with a center-pivot one.

    With scales, ``scale_borders`` says what votes are beyond the first and the last of them:

    * ``zero``: nothing. With a window of 3 the middle of three scales hears nine pairs of scales, a corner four.
    * ``present``: nothing, and votes are divided by the share of the window's scale pairs that there are.
    * ``replicate``: those of the nearest scale.

    Raises:
        InputError: the two have different numbers of axes.
    """
    _check_axes(correlation, kernel.dim() - 2)
    if kernel.dim() == 6 or scale_borders == "zero":
        return _convolve(correlation, kernel, bias, backend, taps)
    scales, windows = correlation.shape[2:4], kernel.shape[2:4]
    source, target = (
        _read_scales(size, window, scale_borders).to(kernel) for size, window in zip(scales, windows, strict=True)
    )
    if scale_borders == "present":
        votes = _convolve(correlation, kernel, None, backend, taps)
        shares = torch.outer(source.mean(2).sum(1), target.mean(2).sum(1))
        votes = votes / shares.view(1, 1, *shares.shape, *[1] * (votes.dim() - 4))
        return votes if bias is None else votes + bias.view(-1, *[1] * (votes.dim() - 2))
    kernel = torch.einsum("ixs, jyt, ocst... -> oijcxy...", source, target, kernel).flatten(3, 5).flatten(0, 2)
    bias = None if bias is None else bias.repeat_interleave(scales.numel())
    votes = _convolve(correlation.flatten(1, 3), kernel, bias, backend, taps)
    return votes.unflatten(1, (-1, *scales))


def _convolve(correlation: Tensor, kernel: Tensor, bias: Tensor | None, backend: str, taps: str) -> Tensor:
    if taps == "dense":
        return conv_nd(correlation, kernel, bias, backend=backend)
    parts = split_pivot(kernel, joint=taps == "center-pivot-joint")
    return conv_pivot(correlation, *parts, bias, backend=backend)


def _check_axes(correlation: Tensor, dimensions: int) -> None:
    if correlation.dim() != dimensions + 2:
        pairs = (" ss st", " rs rt") if dimensions == 8 else (" ss st",)
        axes = "b c" + ("" if dimensions == 4 else "".join(pairs)) + " hs ws ht wt"
        raise InputError(
            f"correlation must have the axes {axes}, got {correlation.dim()} axes "
            f"of shape {list(correlation.shape)}"
        )


def _read_scales(size: int, window: int, borders: str) -> Float[Tensor, "size size window"]:
    """For each scale of a result and each tap, 1 at the scale that is read; beyond the last none, or it.

    Example:
        >>> [_read_scales(3, 3, borders)[0].sum(1).tolist() for borders in ("present", "replicate")]
        [[1.0, 1.0, 0.0], [2.0, 1.0, 0.0]]
    """
    places = torch.arange(size)[:, None] + torch.arange(window) - window // 2
    read = places.clamp(0, size - 1) if borders == "replicate" else places
    return (read[:, None] == torch.arange(size)[:, None]).float()
