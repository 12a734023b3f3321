"""Pairs that stand in two lists: what a model was trained on says nothing as a test."""

from collections.abc import Collection, Iterable

from chmnet.data.pairs import Pair


def image_names(pair: Pair) -> frozenset[str]:
    """The file names of a pair's two images, without their order."""
    return frozenset({pair.source.path.name, pair.target.path.name})


def deduplicate(pairs: Iterable[Pair], listed: Collection[frozenset[str]]) -> list[Pair]:
    """The pairs whose two images do not stand in ``listed`` together, in either order.

    Args:
        pairs: for example the test pairs.
        listed: names of two images each, from :func:`chmnet.data.pf_pascal.training_pairs`, or
            ``{image_names(pair) for pair in others}``.

    Example:
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from chmnet.data.pairs import AnnotatedImage
        >>> sides = [AnnotatedImage(Path(name), np.zeros((1, 2))) for name in ("a.jpg", "b.jpg")]
        >>> deduplicate([Pair("a-b", "cat", *sides)], listed={frozenset({"b.jpg", "a.jpg"})})
        []
    """
    return [pair for pair in pairs if image_names(pair) not in listed]
