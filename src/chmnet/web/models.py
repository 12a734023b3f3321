"""The models that the page offers, loaded when first asked for and only a few at a time."""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chmnet.config import CorrelationConfig, ModelConfig
from chmnet.errors import ChmnetError
from chmnet.features import FeatureCache, Features
from chmnet.matcher import Matcher
from chmnet.nn.chmnet import CHMNet
from chmnet.viz.kernels import draw_kernels, titled_kernels
from chmnet.web.answers import WebError
from chmnet.web.container import png
from chmnet.weights import DEFAULT_MODEL, MODELS, load_model

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Offer:
    """One choice of the model menu."""

    title: str
    description: str
    model: str | Path
    changes: Mapping[str, Any] = field(default_factory=dict)
    config: ModelConfig | None = None
    """Known without loading, for models by name."""


def offers(files: Mapping[str, Path]) -> dict[str, Offer]:
    """Everything that can be chosen: named models, kernel types of the untrained one, files.

    Example:
        >>> list(offers({}))[:2]
        ['chmnet-lite', 'chmnet-official']
    """
    found = {name: Offer(name, known.description, name, config=known.config) for name, known in MODELS.items()}
    prior = MODELS["hough-prior"]
    for name, title, changes, description in (
        (
            "hough-prior-iso",
            "isotropic kernel",
            {"matching": {"first_sharing": "iso", "last_sharing": "iso"}},
            "weights shared by distance",
        ),
        (
            "hough-prior-full",
            "full kernel",
            {"matching": {"first_sharing": "full", "last_sharing": "full"}},
            "one weight for each tap",
        ),
        (
            "hough-prior-6d",
            "6D, over scales",
            # With a wider window the middle scale would always win: it gets votes from most neighbours.
            {"correlation": {"scales": CorrelationConfig().scales}, "matching": {"scale_window": 1}},
            "votes at every pair of scales; the best pair wins",
        ),
    ):
        config = prior.config.replace(**changes)
        text = f"{prior.description}; {description}"
        found[name] = Offer(f"hough-prior, {title}", text, "hough-prior", changes, config)
    for name, path in files.items():
        found[name] = Offer(name, "a model file given with --model", path)
    return found


class Models:
    """Loads models. Only the worker thread takes from it.

    Args:
        offers: what there is to choose from.
        most: how many stay loaded.
        cache: keeps the features that they compute.
        device: where they run; see :class:`chmnet.Matcher`.
    """

    def __init__(
        self,
        offers: Mapping[str, Offer],
        most: int,
        cache: FeatureCache[Features] | None = None,
        device: str = "auto",
    ) -> None:
        self.offers = offers
        self.most = most
        self.cache = cache
        self.device = device
        self._loaded: OrderedDict[str, Matcher] = OrderedDict()
        self._drawn: dict[str, bytes] = {}

    def check(self, name: str) -> str:
        """The name itself, if it is offered.

        Raises:
            WebError: it is not.
        """
        if name not in self.offers:
            raise WebError(404, f"there is no model {name[:80]!r}", f"use one of {', '.join(self.offers)}")
        return name

    def take(self, name: str) -> Matcher:
        """The model, loaded if need be.

        Raises:
            WebError: it cannot be loaded.
        """
        if name not in self._loaded:
            self._loaded[name] = Matcher(self._load(name), self.device, cache=self.cache)
            while len(self._loaded) > self.most:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(name)
        return self._loaded[name]

    def draw_kernels(self, name: str) -> bytes:
        """A model's kernels as PNG, drawn once.

        Raises:
            InputError: it has none.
        """
        if name not in self._drawn:
            head = self._load(name).head
            self._drawn[name] = png(draw_kernels(titled_kernels(name, *head.votes())))
        return self._drawn[name]

    def _load(self, name: str) -> CHMNet:
        offer = self.offers[self.check(name)]
        try:
            return load_model(offer.model, changes=offer.changes or None)
        except ChmnetError as error:  # names files of this machine: for the log only
            logger.error("the model %s cannot be loaded: %s", name, error)
            raise WebError(
                500, f"the model {name} cannot be loaded", "choose another; see the log of the server"
            ) from None


__all__ = ["DEFAULT_MODEL", "Models", "Offer", "offers"]
