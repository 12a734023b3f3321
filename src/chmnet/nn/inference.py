"""The same network made ready for inference: fewer operations, the same numbers up to rounding."""

import copy

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from chmnet.nn.backbones import Backbone
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.hough import ExpandedVote, HoughMatching


def for_inference(model: CHMNet) -> CHMNet:
    """A network for inference only, which gives the scores of ``model`` in evaluation mode, faster.

    Batch norms are folded into the convolutions before them, convolutions keep their weights in the memory
    format that PyTorch computes in, and kernels of Hough layers are expanded once. What does not change is
    shared with ``model``, which stays as it is.

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
        for name, child in part.named_children():
            if isinstance(child, HoughMatching):
                setattr(part, name, ExpandedVote(child))
            elif isinstance(child, nn.Conv2d):
                setattr(part, name, _in_channels_last(child))
    return ready


def _fold_batch_norms(backbone: Backbone) -> None:
    for part in backbone.modules():
        for convolution, norm in backbone.normalised_by.items():
            first, second = getattr(part, convolution, None), getattr(part, norm, None)
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                setattr(part, convolution, fuse_conv_bn_eval(first, second))
                setattr(part, norm, nn.Identity())


def _in_channels_last(convolution: nn.Conv2d) -> nn.Conv2d:
    moved = copy.copy(convolution)
    moved._parameters = {
        name: None
        if parameter is None
        else nn.Parameter(
            parameter.detach().contiguous(memory_format=torch.channels_last)
            if parameter.dim() == 4
            else parameter.detach(),
            requires_grad=False,
        )
        for name, parameter in convolution._parameters.items()
    }
    return moved
