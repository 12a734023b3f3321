"""Which PCK: every choice of its definition, in one object.

>>> print(DEFAULT_PROTOCOLS["pf-pascal"].describe())
PCK at α = 0.05, 0.1 in 240×240 px (resized), threshold α × longer side of the image (img), mean over pairs (pair)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from chmnet.errors import ConfigError
from chmnet.tables import TomlConfig

Space = Literal["resized", "original"]
Threshold = Literal["img", "bbox", "bbox-kp", "bbox-legacy"]
Average = Literal["pair", "keypoint", "class"]

_LENGTHS: dict[Threshold, str] = {
    "img": "longer side of the image",
    "bbox": "longer side of the object's box",
    "bbox-kp": "longer side of the keypoints' own box",
    "bbox-legacy": "(largest keypoint coordinate + 2 px), the published code's over-large length",
}
_AVERAGES: dict[Average, str] = {
    "pair": "mean over pairs",
    "keypoint": "mean over all keypoints",
    "class": "mean over classes of the mean over their pairs",
}


@dataclass(frozen=True)
class Protocol(TomlConfig):
    """How PCK is computed; printed beside every number.

    A keypoint is correct when its prediction lies within α · length of the truth in the target image, the limit
    included (section 5 of the paper: ‖k̂′ − k′‖ ≤ α_τ · max(w_τ, h_τ)).

    Raises:
        ConfigError: an unknown choice, an α outside 0 … 1, or an impossible size.

    Example:
        >>> Protocol().replace(threshold="bbox", alphas=[0.1]).to_dict()["threshold"]
        'bbox'
        >>> Protocol(alphas=(5.0,))
        Traceback (most recent call last):
        chmnet.errors.ConfigError: alphas are shares of a length, from 0 to 1, got 5.0; 5 % is 0.05
    """

    space: Space = "resized"
    """Distances and lengths in pixels of the image squashed to ``image_size``, or of the image file."""
    threshold: Threshold = "img"
    """The length that α is a share of, in the target image: the longer side of the image (``img``), of the
    object's box (``bbox``), of the box around the target keypoints (``bbox-kp``); or, as in the authors' code for
    PF-WILLOW, of the box around the target keypoints and the point (−2, −2) (``bbox-legacy``)."""
    average: Average = "pair"
    """Mean over pairs of each pair's share; share of all keypoints; mean over classes of the mean over pairs."""
    alphas: tuple[float, ...] = (0.05, 0.1)
    image_size: tuple[int, int] = (240, 240)
    """(height, width) of the resized space."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alphas or len(set(self.alphas)) < len(self.alphas):
            raise ConfigError(f"alphas must be one or more different numbers, got {list(self.alphas)}")
        for alpha in self.alphas:
            if not 0 <= alpha <= 1:
                raise ConfigError(f"alphas are shares of a length, from 0 to 1, got {alpha}; 5 % is 0.05")
        if len(self.image_size) != 2 or min(self.image_size) < 1:
            raise ConfigError(f"image_size must be (height, width) of at least 1 px, got {self.image_size}")

    def describe(self) -> str:
        """The protocol in one line, for people."""
        height, width = self.image_size
        size = f"{width}×{height} px" if self.space == "resized" else "pixels of the image file"
        return (
            f"PCK at α = {', '.join(map(alpha_key, self.alphas))} in {size} ({self.space}), "
            f"threshold α × {_LENGTHS[self.threshold]} ({self.threshold}), "
            f"{_AVERAGES[self.average]} ({self.average})"
        )


DEFAULT_PROTOCOLS: dict[str, Protocol] = {
    # The true box of the keypoints: the published figures are of bbox-legacy, far more generous.
    "pf-willow": Protocol(space="resized", threshold="bbox-kp"),
    "pf-pascal": Protocol(space="resized", threshold="img"),
    # As in the SPair-71k paper: object boxes, and "all" is the mean over all pairs, not over the 18 classes.
    "spair-71k": Protocol(space="original", threshold="bbox"),
    # No figures of the literature to compare with: as SPair-71k.
    "animal-pose": Protocol(space="original", threshold="bbox"),
    "coco": Protocol(space="original", threshold="bbox"),
}
"""Each data set's protocol of the literature."""


def alpha_key(alpha: float) -> str:
    """An α as the key of a JSON object.

    Example:
        >>> alpha_key(0.05), alpha_key(0.1)
        ('0.05', '0.1')
    """
    return str(float(alpha))


def alpha_keys(values: Mapping[float, float]) -> dict[str, float]:
    """Values by α, with keys fit for JSON.

    Example:
        >>> alpha_keys({0.05: 20.4, 0.1: 43.5})
        {'0.05': 20.4, '0.1': 43.5}
    """
    return {alpha_key(alpha): value for alpha, value in values.items()}
