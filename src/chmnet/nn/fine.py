"""The fine branch: a second correlation on the finer grid, of detail that the coarse features have lost."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from chmnet.config import HoughConfig, ModelConfig
from chmnet.nn.hough import HoughMatching
from chmnet.ops.correlation import cosine_correlation, normalise, resize_features

FIRST_SHARE = 0.5
"""Weight of the early layers' features beside the enlarged coarse ones, before anything is learned."""


class FineBranch(nn.Module):
    """Features of early layers beside the enlarged coarse ones, correlated on the finer grid and voted on.

    A feature of the finer grid is ``[u / ‖u‖, share · v / ‖v‖]``: u the coarse level, enlarged and filtered
    channel by channel, v a 3×3 convolution of the early layers; with ``fine.hidden`` a small block mixes the two.
    Their cosines, rectified and raised to the network's power, are voted on by a layer of the branch's own. The
    votes are added to those of the coarse path before the activation and the mutual filter.

    Args:
        config: the network's configuration, with ``fine.layers``.
        coarse_channels: channels of the coarse level that is enlarged.
        in_channels: channels of the early layers.
        backend: who computes the votes; see :func:`chmnet.ops.conv_nd`.

    Example:
        >>> config = ModelConfig.preset("paper", fine={"layers": ["layer2"], "channels": 6})
        >>> branch = FineBranch(config, coarse_channels=4, in_channels=8)
        >>> level = branch.level(torch.rand(1, 4, 3, 5), pack(torch.rand(1, 8, 6, 10), 2))
        >>> level.shape, branch(level, level).shape
        (torch.Size([1, 10, 6, 10]), torch.Size([1, 1, 6, 10, 6, 10]))
    """

    vote: nn.Module

    def __init__(self, config: ModelConfig, coarse_channels: int, in_channels: int, backend: str = "auto") -> None:
        super().__init__()
        matching = config.matching
        assert isinstance(matching, HoughConfig), "a configuration checks that"
        self.factor, self.power = config.output.upsample, config.correlation.power
        self.lateral = nn.Conv2d(in_channels, config.fine.channels, 3, padding=1, bias=False)
        self.refine = nn.Conv2d(coarse_channels, coarse_channels, 3, padding=1, groups=coarse_channels, bias=False)
        self.share = nn.Parameter(torch.tensor(FIRST_SHARE))
        width = coarse_channels + config.fine.channels
        self.mix = MixingBlock(width, config.fine.hidden) if config.fine.hidden else None
        self.vote = HoughMatching(
            matching.spatial_window, None, matching.last_sharing, backend=backend, taps=matching.taps
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, last: nn.Module | None = None) -> None:
        """Start as a branch that adds sharpness at once: the coarse level as it is, the early layers turned only.

        Args:
            last: the last vote of the coarse path; the branch's own starts as half of it. ``None``: it starts as
                any Hough layer does.
        """
        nn.init.orthogonal_(self.lateral.weight)
        nn.init.dirac_(self.refine.weight, groups=self.refine.groups)
        nn.init.constant_(self.share, FIRST_SHARE)
        if self.mix is not None:
            self.mix.reset_parameters()
        assert isinstance(self.vote, HoughMatching), "only before it is made ready for inference"
        self.vote.reset_parameters()
        if isinstance(last, HoughMatching):
            self.vote.weight.copy_(last.weight.mean(1, keepdim=True) / 2)

    def level(
        self, coarse: Float[Tensor, "b c h w"], packed: Float[Tensor, "b k h w"]
    ) -> Float[Tensor, "b f H W"]:
        """Features of the finer grid.

        Args:
            coarse: the coarse level.
            packed: features of early layers on the same grid, see :func:`pack`.
        """
        size = (self.factor * packed.shape[2], self.factor * packed.shape[3])
        enlarged = normalise(self.refine(resize_features(coarse, size)))
        early = normalise(self.lateral(F.pixel_shuffle(packed, self.factor)))
        joined = torch.cat([enlarged, self.share * early], dim=1)
        return joined if self.mix is None else self.mix(joined)

    def forward(
        self, source: Float[Tensor, "b f hs ws"], target: Float[Tensor, "b f ht wt"]
    ) -> Float[Tensor, "b 1 hs ws ht wt"]:
        """Votes of the matches of two fine levels, or of some rows of the source's."""
        scores = cosine_correlation(source, target).relu()
        votes: Tensor = self.vote(scores if self.power == 1 else scores.pow(self.power))
        return votes


class MixingBlock(nn.Module):
    """Features plus what a narrow network makes of them and their surroundings: nothing, before it has learned.

    Args:
        channels: of the features, whose vectors are about as long as one.
        hidden: channels in between.

    Example:
        >>> features = torch.rand(1, 6, 8, 8)
        >>> torch.equal(MixingBlock(6, 12)(features), features)
        True
    """

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, hidden, 1)
        self.surround = nn.Conv2d(hidden, hidden, 5, padding=2, groups=hidden)
        self.project = nn.Conv2d(hidden, channels, 1)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """The last convolution starts at zero; the first as if every channel were of variance one."""
        for convolution in (self.expand, self.surround):
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        self.expand.weight.mul_(self.expand.in_channels**0.5)  # a vector of length one has small channels
        nn.init.zeros_(self.project.weight)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, features: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Features of the same shape."""
        hidden = F.relu(self.surround(F.relu(self.expand(features))))
        return features + self.project(hidden)


def pack(features: Float[Tensor, "b c H W"], factor: int) -> Float[Tensor, "b k h w"]:
    """Features of a finer grid as more channels of a coarser one, so that one tensor holds both.

    Example:
        >>> pack(torch.rand(1, 3, 4, 6), 2).shape
        torch.Size([1, 12, 2, 3])
    """
    return F.pixel_unshuffle(features, factor)
