"""What the paper reports: tables 1 to 3 of Min and Cho, CVPR 2021, ResNet-101 trained on all of each data set."""

from typing import NamedTuple


class Kernel(NamedTuple):
    """A row of table 2; PCK is on PF-PASCAL, mean and deviation of five runs."""

    pck_05: str
    pck_1: str
    parameters: int
    giga_multiply_adds: float | None
    milliseconds: int


KERNELS = {
    "psi-6d": Kernel("80.4 ± 0.28", "91.6 ± 0.23", 275, 19.6, 54),
    "full-6d": Kernel("79.8 ± 0.67", "90.7 ± 0.19", 6250, 19.6, 43),
    "iso-6d": Kernel("76.5 ± 0.29", "90.2 ± 0.40", 60, 19.6, 46),
    "psi-4d": Kernel("79.3 ± 0.25", "91.1 ± 0.32", 110, 15.9, 32),
    "full-4d": Kernel("78.4 ± 0.82", "90.3 ± 0.43", 1250, 15.9, 26),
    "iso-4d": Kernel("71.8 ± 0.99", "88.0 ± 0.49", 30, 15.9, 27),
    "psi-6d-sparse": Kernel("80.3 ± 0.86", "91.1 ± 0.05", 275, None, 55),
}

MODULES = {
    "psi-6d": (80.1, 91.6),
    "rhm": (77.1, 89.6),
    "without-last-vote": (79.5, 89.7),
    "without-votes": (61.6, 78.5),
    "without-gaussian": (79.5, 91.3),
    "without-soft-sampler": (78.9, 89.6),
}
"""Table 3: PCK@0.05 and 0.1 on PF-PASCAL."""

CONSENSUS = {"consensus-16": 76.2, "consensus-1": 76.4}
"""PCK of NC-Net with channels {16, 16, 1} and {1, 1, 1}, as section 5.2 gives it, without α or data set."""


class Method(NamedTuple):
    """A row of table 1, all on ResNet-101: PCK on PF-PASCAL and PF-WILLOW (legacy threshold), cost of a pair."""

    supervision: str
    """I: image-level labels; K: keypoint matches."""
    pascal_05: float | None
    pascal_1: float
    willow_05: float | None
    willow_1: float | None
    giga_multiply_adds: float | None
    milliseconds: int | None
    gigabytes: float | None


METHODS = {
    "NC-Net": Method("I", 54.3, 78.9, 33.8, 67.0, 44.9, 222, 1.2),
    "DCC-Net": Method("I", 55.6, 82.3, 43.6, 73.8, 47.1, 567, 2.7),
    "DHPF (image labels)": Method("I", 56.1, 82.1, 50.2, 80.2, 2.0, 58, 1.6),
    "UCN": Method("K", None, 75.1, None, None, None, None, None),
    "HPF": Method("K", 60.1, 84.8, 45.9, 74.4, None, 63, None),
    "SCOT": Method("K", 63.1, 85.4, 47.8, 76.0, 6.2, 151, 4.6),
    "DHPF": Method("K", 75.7, 90.7, 49.5, 77.6, 2.0, 58, 1.6),
    "NC-Net, retrained": Method("K", None, 81.9, None, None, 44.9, 222, 1.2),
    "DCC-Net, retrained": Method("K", None, 83.7, None, None, 47.1, 567, 2.7),
    "ANC-Net": Method("K", None, 86.1, None, None, 44.9, 216, 0.9),
    "CHMNet": Method("K", 80.1, 91.6, 52.7, 79.4, 19.6, 54, 1.6),
}
