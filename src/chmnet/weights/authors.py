"""The authors' released checkpoints: their names and orders of weights, turned into ours."""

from pathlib import Path

import torch
from torch import Tensor

from chmnet.config import ModelConfig
from chmnet.errors import WeightsError
from chmnet.files import load_exactly
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.taps import tap_groups
from chmnet.outputs import check_writable
from chmnet.weights.backbones import read_checkpoint
from chmnet.weights.models import save_model

_KNOWN = ("backbone.", "learner.conv2ds.", "learner.chm6d.", "learner.chm4d.")

# The authors number groups of scale pairs by hand, we in order of appearance: for each of our groups, which
# of theirs. psi: both at one end, neighbours, opposite ends, both in the middle; iso: equal, neighbours,
# opposite ends.
_SCALE_ORDER = {"psi": (1, 3, 2, 0), "iso": (0, 2, 1)}


def convert_reference_checkpoint(source: str | Path, destination: str | Path, overwrite: bool = False) -> CHMNet:
    """Turn a checkpoint of the authors' code into a chmnet model file.

    Both branches of the pseudo-siamese backbone are kept, layers that are never used are dropped. The file is
    read with ``weights_only=True``: nothing in it is executed.

    Args:
        source: the authors' ``.pt`` file (kernel type psi, iso or full).
        destination: the ``.safetensors`` file to write.
        overwrite: whether an existing file may be replaced.

    Returns:
        The model that was written.
    """
    check_writable(destination, overwrite)
    state = {name.removeprefix("module."): tensor for name, tensor in read_checkpoint(source).items()}
    if not any(name.startswith("learner.") for name in state):
        raise WeightsError(f"{source} is not a checkpoint of the authors' CHMNet: it has no learner.* tensors")
    unknown = [name for name in state if not name.startswith(_KNOWN)]
    if unknown:
        raise WeightsError(f"{source} is not a checkpoint of the authors' CHMNet: it has the unknown {unknown[0]}")
    try:
        head = head_from_reference(state)
    except KeyError as error:
        raise WeightsError(f"{source} is not a whole checkpoint: it lacks {error}") from None
    groups = head["last.weight"].numel()
    kinds = {tap_groups(5, None, sharing).number: sharing for sharing in ("psi", "iso", "full")}
    if groups not in kinds:
        raise WeightsError(f"{source} has {groups} weights in its 4D layer, expected 55, 15 or 625")
    sharing = {"first_sharing": kinds[groups], "last_sharing": kinds[groups]}
    with torch.device("meta"):
        model = CHMNet(ModelConfig.preset("reference", matching=sharing))
    tensors = _backbones_from_reference(state, model) | {f"head.{name}": head[name] for name in head}
    load_exactly(model, tensors, source)
    model.eval()
    save_model(model, destination, {"converted_from": Path(source).name}, overwrite)
    return model


def head_from_reference(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The authors' ``learner.*`` tensors under the names of :class:`chmnet.nn.MatchingHead`."""
    if "learner.chm6d.param" in state:
        first = [state["learner.chm6d.param"]]
    else:
        names = sorted(name for name in state if name.startswith("learner.chm6d.param."))
        first = [state[name] for name in names or ["learner.chm6d.param.0"]]
    head = {
        "first.weight": votes_from_reference(first),
        "first.bias": state["learner.chm6d.bias"].flatten(),
        "last.weight": votes_from_reference([state["learner.chm4d.weight"]]),
        "last.bias": state["learner.chm4d.bias"].flatten(),
    }
    for scale in range(3):
        head[f"projections.{scale}.weight"] = state[f"learner.conv2ds.{scale}.weight"]
    return head


def votes_from_reference(vectors: list[Tensor]) -> Tensor:
    """One layer's weights in our order, ``[1, 1, groups]``.

    Args:
        vectors: one vector (4D), one for each group of scale pairs (6D), or one dense kernel (``full``).
    """
    if len(vectors) > 1:
        order = next((order for order in _SCALE_ORDER.values() if len(order) == len(vectors)), None)
        if order is None:
            raise WeightsError(f"a 6D layer has 4 or 3 vectors of weights, got {len(vectors)}")
        vectors = [vectors[group] for group in order]
    return torch.cat([vector.flatten() for vector in vectors]).view(1, 1, -1)


def _backbones_from_reference(state: dict[str, Tensor], model: CHMNet) -> dict[str, Tensor]:
    """Split each stacked tensor into the source branch and the target branch."""
    branches = {}
    for name, tensor in state.items():
        short = name.removeprefix("backbone.")
        if short == name or model.backbone.is_unused(short):
            continue
        if tensor.dim() and len(tensor) % 2:
            raise WeightsError(f"{name} does not hold two branches: its first size is {len(tensor)}")
        halves = (tensor, tensor) if tensor.dim() == 0 else torch.chunk(tensor, 2)
        branches[f"backbone.{short}"], branches[f"target_backbone.{short}"] = (h.clone() for h in halves)
    return branches
