"""The models that the page offers, loaded when first asked for and only a few at a time."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chmnet.config import ModelConfig
from chmnet.matcher import Matcher
from chmnet.web.errors import WebError
from chmnet.weights import DEFAULT_MODEL, MODELS, load_model


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
        ['chmnet-lite', 'hough-prior']
    """
    found = {name: Offer(name, known.description, name, config=known.config) for name, known in MODELS.items()}
    prior = MODELS["hough-prior"]
    for name, title, changes, description in (
        (
            "hough-prior-iso",
            "isotropic kernel",
            {"first_sharing": "iso", "last_sharing": "iso"},
            "votes by distance",
        ),
        (
            "hough-prior-full",
            "full kernel",
            {"first_sharing": "full", "last_sharing": "full"},
            "every tap its own",
        ),
        ("hough-prior-6d", "6D, over scales", {"dimensions": "6d-4d"}, "votes over positions and scales"),
    ):
        config = prior.config.replace(**changes)
        text = f"{prior.description}; {description}"
        found[name] = Offer(f"hough-prior, {title}", text, "hough-prior", changes, config)
    for name, path in files.items():
        found[name] = Offer(name, "a model file given at the start of the server", path)
    return found


class ModelShelf:
    """Loads models. Only the worker thread takes from it.

    Args:
        offers: what there is to choose from.
        most: how many stay loaded.
    """

    def __init__(self, offers: Mapping[str, Offer], most: int) -> None:
        self.offers = offers
        self.most = most
        self._loaded: OrderedDict[str, Matcher] = OrderedDict()

    def check(self, name: str) -> str:
        """The name itself, if it is offered.

        Raises:
            WebError: it is not.
        """
        if name not in self.offers:
            raise WebError(404, f"there is no model {name[:80]!r}", f"use one of {', '.join(self.offers)}")
        return name

    def take(self, name: str) -> Matcher:
        """The model, loaded if need be."""
        if name not in self._loaded:
            offer = self.offers[self.check(name)]
            self._loaded[name] = Matcher(load_model(offer.model, changes=offer.changes or None))
            while len(self._loaded) > self.most:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(name)
        return self._loaded[name]


__all__ = ["DEFAULT_MODEL", "ModelShelf", "Offer", "offers"]
