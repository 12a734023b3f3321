"""The kernels of a network, in words and numbers, ready to be drawn."""

import numpy as np

from chmnet.errors import InputError
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.hough import HoughMatching

CHANNELS_DRAWN = 4
"""Of layers with several channels no more kernels than this are drawn."""

SHARING_WORDS = {
    "psi": "shared by offset and positions (psi)",
    "iso": "shared by offset (iso)",
    "full": "none shared (full)",
}


def titled_kernels(model: CHMNet, name: str) -> list[tuple[str, np.ndarray]]:
    """The kernels of the first and the last Hough layer, each with a title in plain words.

    Args:
        model: as it was loaded, not made ready for inference: there the kernels no longer know what they share.
        name: what the titles call it.

    Raises:
        InputError: the model has no Hough layers.

    Example:
        >>> from chmnet.config import BackboneConfig, ModelConfig
        >>> model = CHMNet(ModelConfig(backbone=BackboneConfig("resnet18"), dimensions="4d-4d"))
        >>> titled_kernels(model, "untrained")[0][0]
        'untrained, first vote: pairs of positions (4D), 55 weights, shared by offset and positions (psi)'
    """
    titled = []
    for title, layer in (("first vote", model.head.first), ("last vote", model.head.last)):
        if not isinstance(layer, HoughMatching):
            continue
        space = "positions" if layer.scale is None else "positions and scales"
        dimensions = "4D" if layer.scale is None else "6D"
        number = layer.groups.number
        words = (
            f"{name}, {title}: pairs of {space} ({dimensions}), {number} weights, {SHARING_WORDS[layer.sharing]}"
        )
        dense = layer.kernel().detach().float().cpu().flatten(0, 1).numpy()
        for channel, kernel in enumerate(dense[:CHANNELS_DRAWN]):
            titled.append((words + (f", channel {channel + 1} of {len(dense)}" if len(dense) > 1 else ""), kernel))
    if not titled:
        raise InputError(
            f"{name} has no Hough layers, so there are no kernels to draw; try chmnet-lite or hough-prior"
        )
    return titled
