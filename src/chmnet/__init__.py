"""chmnet: semantic visual correspondence with convolutional Hough matching (Min & Cho, CVPR 2021).

The names below are loaded when first used, so that ``import chmnet`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chmnet.config import BackboneConfig, ModelConfig, TransferConfig
    from chmnet.errors import ChmnetError
    from chmnet.matcher import Matcher, match
    from chmnet.nn.chmnet import CHMNet
    from chmnet.pictures import View
    from chmnet.result import Matches, MatchResult
    from chmnet.weights import load_model, save_model

__version__ = "0.2.0"

_HOMES = {
    "BackboneConfig": "chmnet.config",
    "CHMNet": "chmnet.nn.chmnet",
    "ChmnetError": "chmnet.errors",
    "MatchResult": "chmnet.result",
    "Matcher": "chmnet.matcher",
    "Matches": "chmnet.result",
    "ModelConfig": "chmnet.config",
    "TransferConfig": "chmnet.config",
    "View": "chmnet.pictures",
    "load_model": "chmnet.weights",
    "match": "chmnet.matcher",
    "save_model": "chmnet.weights",
}

__all__ = [
    "BackboneConfig",
    "CHMNet",
    "ChmnetError",
    "MatchResult",
    "Matcher",
    "Matches",
    "ModelConfig",
    "TransferConfig",
    "View",
    "load_model",
    "match",
    "save_model",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its home on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chmnet' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return [*__all__, "__version__"]
