"""How the models of the ablations are trained: one recipe, and what each variant changes of it."""

from typing import Any

from chmnet.training.config import TrainingConfig

RECIPE: dict[str, Any] = {
    # The paper's network, its votes and projections from random weights, on features that are computed once.
    "model": {
        "backbone": {"name": "efficientnet-lite0", "layers": ["blocks.8", "blocks.10", "blocks.14"]},
        "transfer": {"temperature": 0.003},
    },
    "frozen": True,
    "init": "random",
    # Six hundred steps: without the second loss and a low temperature, votes would hardly learn.
    "match_loss": 0.1,
    "match_temperature": 0.01,
    "epochs": 1,
    "batch_size": 4,
    "learning_rate": 0.003,
    "schedule": "cosine",
    "warmup_steps": 30,
    "clip_norm": 1.0,
    "average_decay": 0.99,
    "augmentation": {"swap": 0.5, "flip": 0.5},
    "data": [{"dataset": "pf-pascal", "official": True, "count": 2400}],  # the paper's training list, all of it
    "validation": [],  # no selection: the last weights are used
}

_ISO = {"first_sharing": "iso", "last_sharing": "iso"}
_FULL = {"first_sharing": "full", "last_sharing": "full"}
_ONE_SCALE = {"scales": [1.0]}

VARIANTS: dict[str, dict[str, Any]] = {
    # Table 2 of the paper: sharing of weights × dimensions of the votes.
    "psi-6d": {},
    "iso-6d": {"matching": _ISO},
    "full-6d": {"matching": _FULL},
    "psi-4d": {"correlation": _ONE_SCALE},
    "iso-4d": {"correlation": _ONE_SCALE, "matching": _ISO},
    "full-4d": {"correlation": _ONE_SCALE, "matching": _FULL},
    "psi-6d-sparse": {"correlation": {"keep_top": 10}},
    # Taps whose source or target is the centre: at all pairs of scales, or in position and scale at once.
    "pivot-6d": {"matching": {"taps": "center-pivot"}},
    "pivot-6d-joint": {"matching": {"taps": "center-pivot-joint"}},
    "pivot-4d": {"correlation": _ONE_SCALE, "matching": {"taps": "center-pivot"}},
    # What the 6D vote hears beyond its scales.
    "psi-6d-scale-present": {"matching": {"scale_borders": "present"}},
    # Table 3: parts replaced or removed.
    "rhm": {"matching": {"kind": "regularised-hough"}},
    "without-last-vote": {"matching": {"last_layer": False}},
    "without-votes": {"matching": {"kind": "none"}},
    "without-gaussian": {"transfer": {"gaussian_sigma": 0}},
    "without-soft-sampler": {"transfer": {"sampler": "nearest"}},
    # Neighbourhood consensus, of NC-Net's channels and of one.
    "consensus-16": {"correlation": _ONE_SCALE, "matching": {"kind": "consensus", "channels": [16, 16, 1]}},
    "consensus-1": {"correlation": _ONE_SCALE, "matching": {"kind": "consensus", "channels": [1, 1, 1]}},
}
"""What each variant changes of the recipe's model."""

RATES = {"consensus-16": 0.0003}
"""Learning rates of variants that do not learn at the recipe's."""
TUNED = "tuned-"
"""What the names of variants begin with whose backbone learns too."""
_TUNED_CHANGES: dict[str, Any] = {
    "frozen": False,
    "backbone_from": "blocks.3",
    "backbone_learning_rate": 0.0002,
    "batch_statistics": False,
}


def variant_changes(name: str) -> dict[str, Any]:
    """Changes of the model; a variant's name may begin with :data:`TUNED`, and end in its channels.

    Example:
        >>> variant_changes("psi-4d-16-channels")
        {'correlation': {'scales': [1.0]}, 'matching': {'channels': 16}}
    """
    name = name.removeprefix(TUNED)
    if name.endswith("-channels"):
        kernel, channels = name.removesuffix("-channels").rsplit("-", 1)
        changes = VARIANTS[kernel]
        return {**changes, "matching": {**changes.get("matching", {}), "channels": int(channels)}}
    return VARIANTS[name]


def training_config(name: str, seed: int, recipe: dict[str, Any] = RECIPE) -> TrainingConfig:
    """The run of one variant with one seed.

    Example:
        >>> training_config("psi-4d", seed=1).model.correlation.scales
        (1.0,)
    """
    base = TrainingConfig.from_dict(recipe)
    changes = _TUNED_CHANGES if name.startswith(TUNED) else {}
    rate = RATES.get(name, base.learning_rate)
    return base.replace(
        seed=seed, model=base.model.replace(**variant_changes(name)), learning_rate=rate, **changes
    )
