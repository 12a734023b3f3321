"""The same network made ready for inference: fewer operations, the same numbers up to rounding."""

import copy
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from chmnet.nn.backbones import Backbone, ResidualBlock
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.hough import ExpandedVote, HoughMatching
from chmnet.ops.features import ready_to_project


def for_inference(model: CHMNet) -> CHMNet:
    """A network for inference only, which gives the scores of ``model`` in evaluation mode, faster.

    Batch norms are folded into the convolutions before them; convolutions keep their weights in the memory format
    that PyTorch computes in, and those of ResNets compute ReLU and the addition of a block at once, where PyTorch
    can; kernels of Hough layers are expanded once. What does not change shares its memory with ``model``, which
    stays as it is: after training it further, make this anew.

    Example:
        >>> from chmnet.config import BackboneConfig, ModelConfig
        >>> model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18"))).eval()
        >>> ready = for_inference(model)
        >>> any(isinstance(part, nn.BatchNorm2d) for part in ready.modules())
        False
        >>> pair = torch.rand(2, 1, 3, 32, 32).unbind()
        >>> torch.allclose(ready(*pair), model(*pair), rtol=1e-4, atol=1e-6)
        True
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    ready = copy.deepcopy(model, shared).eval()  # new modules around the same tensors
    for part in ready.modules():
        if isinstance(part, Backbone):
            _fold_batch_norms(part)
    for part in list(ready.modules()):
        for name, child in part.named_children():
            if isinstance(child, HoughMatching):
                setattr(part, name, ExpandedVote(child))
            elif isinstance(child, nn.Conv2d):
                setattr(part, name, _in_channels_last(child))
    for part in list(ready.modules()):
        for name, child in part.named_children():
            if isinstance(child, ResidualBlock) and can_fuse(child.conv1.weight):
                setattr(part, name, FusedBlock(child))
    for part in ready.modules():  # the same numbers, but parameters of its own: what is done to one stays there
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(parameter.detach(), requires_grad=False)
    for projection, scale in zip(ready.head.projections, ready.head.scales, strict=False):  # or no projections
        if scale > 1 and isinstance(projection, nn.Conv2d):
            projection.weight = nn.Parameter(ready_to_project(projection.weight), requires_grad=False)
    return ready


@lru_cache(maxsize=1)
def _fused_convolution_works() -> bool:
    """Whether this PyTorch has convolutions that compute activation and sum as well."""
    try:
        plain = torch.nn.utils.skip_init(nn.Conv2d, 1, 1, 1, device="cpu", dtype=torch.float32)
        one = torch.ones(1, 1, 1, 1, device="cpu", dtype=torch.float32)
        with torch.no_grad():
            FusedConvolution(plain).fused(one, one)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


def can_fuse(weight: Tensor) -> bool:
    """Whether convolutions with such weights can compute activation and sum as well."""
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and _fused_convolution_works()


class FusedConvolution(nn.Module):
    """A convolution that computes ReLU, and the sum with another tensor before it, in the same pass.

    The functions are those that ``torch.compile`` uses on CPUs. They also take weights packed in advance, but only
    for one size of image: for another they may be ten times slower.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        assert not isinstance(convolution.padding, str), "backbones pad by numbers"
        self.padding, self.stride = list(convolution.padding), list(convolution.stride)
        self.dilation, self.groups = list(convolution.dilation), convolution.groups
        self.weight = convolution.weight
        self.bias = convolution.bias

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """ReLU of the convolution, plus ``other`` if there is one."""
        if x.dtype == self.weight.dtype and can_fuse(self.weight):
            return self.fused(x, other)
        # Moved to another device or precision since, or under autocast.
        y = F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return F.relu(y if other is None else y + other)

    def fused(self, x: Tensor, other: Tensor | None) -> Tensor:
        """The same in one pass."""
        geometry = (self.padding, self.stride, self.dilation, self.groups)
        if other is None:
            return torch.ops.mkldnn._convolution_pointwise(x, self.weight, self.bias, *geometry, "relu", [], "")
        return torch.ops.mkldnn._convolution_pointwise.binary(
            x, other, self.weight, self.bias, *geometry, "add", 1.0, "relu", [], ""
        )


class FusedBlock(nn.Module):
    """A :class:`ResidualBlock` with its batch norms folded, made of fused convolutions."""

    def __init__(self, block: ResidualBlock) -> None:
        super().__init__()
        convolutions = [block.conv1, block.conv2] + ([] if block.conv3 is None else [block.conv3])
        self.convolutions = nn.ModuleList(FusedConvolution(convolution) for convolution in convolutions)
        self.downsample = None if block.downsample is None else block.downsample[0]

    def forward(self, x: Tensor) -> Tensor:
        """Add the block's change to its input."""
        *first, last = self.convolutions
        change = x
        for convolution in first:
            change = convolution(change)
        return last(change, x if self.downsample is None else self.downsample(x))


def _fold_batch_norms(backbone: Backbone) -> None:
    for part in backbone.modules():
        for convolution, norm in backbone.normalised_by.items():
            first, second = getattr(part, convolution, None), getattr(part, norm, None)
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                setattr(part, convolution, fuse_conv_bn_eval(first, second))
                setattr(part, norm, nn.Identity())


def _in_channels_last(convolution: nn.Conv2d) -> nn.Conv2d:
    """The same convolution with its weight in the memory format of its input, without gradients."""
    moved = copy.copy(convolution)
    weight = convolution.weight.detach().contiguous(memory_format=torch.channels_last)
    bias = None if convolution.bias is None else nn.Parameter(convolution.bias.detach(), requires_grad=False)
    moved._parameters = {"weight": nn.Parameter(weight, requires_grad=False), "bias": bias}
    return moved
