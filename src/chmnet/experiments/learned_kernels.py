"""Learned kernels as maps of offsets, and what they have in common."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chmnet.experiments.runner import Drawing, Experiment, Figures, Table
from chmnet.experiments.store import Store
from chmnet.nn.hough import HoughMatching
from chmnet.nn.taps import tap_groups
from chmnet.viz.kernels import draw_kernels, titled_kernels

SHARINGS = ("psi", "iso", "full")


def measure(store: Store) -> Figures:
    """Correlation of weights with offsets and distances, and the variance that psi and iso groups explain."""
    rows: dict[str, Any] = {}
    layers = {sharing: _layers(store, sharing) for sharing in SHARINGS}
    for sharing, votes in layers.items():
        for vote, layer in votes.items():
            kernel, psi = (one.kernel()[0, 0].detach().double() for one in (layer, layers["psi"][vote]))
            taps = {way: tap_groups(layer.spatial, layer.scale, way) for way in SHARINGS}
            full = taps["full"]
            measures = full.offset, full.far_distance, full.near_distance
            offset, far, near = (values.double()[full.index] for values in measures)
            rows[f"{sharing}, {vote}"] = {
                "weights": layer.groups.number,
                "chance": round((taps["psi"].number - 1) / (kernel.numel() - 1), 3),
                "with_offset": _correlation(kernel, offset),
                "with_distance": _correlation(kernel, far + near),
                "with_psi": _correlation(kernel, psi),
                **{f"explained_by_{way}": _explained(kernel, taps[way].index) for way in ("psi", "iso")},
            }
    return {"rows": rows}


def _layers(store: Store, sharing: str) -> dict[str, HoughMatching]:
    head = store.trained(f"{sharing}-6d").load().head
    assert isinstance(head.first, HoughMatching)
    assert isinstance(head.last, HoughMatching)
    return {"first vote (6D)": head.first, "last vote (4D)": head.last}


def _correlation(one: Tensor, other: Tensor) -> float:
    found = np.corrcoef(one.flatten().numpy(), other.flatten().numpy())[0, 1]
    return round(float(found), 3)


def _explained(kernel: Tensor, index: Tensor) -> float:
    """The share of a kernel's variance that the means of the groups of taps explain."""
    values, groups = kernel.flatten(), index.flatten()
    number = int(groups.max()) + 1
    sums = torch.zeros(number, dtype=values.dtype).index_add(0, groups, values)
    means = (sums / torch.bincount(groups, minlength=number))[groups]
    return round(float(1 - (values - means).square().sum() / (values - values.mean()).square().sum()), 3)


def tables(figures: Figures) -> list[Table]:
    """Correlations from -1 to 1; explained variance from 0 to 1."""
    headings = {
        "with_offset": "correlation with offset",
        "with_distance": "with distance",
        "with_psi": "with the psi kernel",
        "explained_by_psi": "variance that psi groups explain",
        "chance": "of random weights",
        "explained_by_iso": "that iso groups explain",
    }
    rows = [
        [title, f"{row['weights']:,}", *(f"{row[key]:.2f}" for key in headings)]
        for title, row in figures["rows"].items()
    ]
    return [Table(["kernel", "weights", *headings.values()], rows)]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """The kernels of each sharing; psi without an ending."""
    drawings: dict[str, Drawing] = {}
    for sharing in SHARINGS:
        ending = "" if sharing == "psi" else f"-{sharing}"
        drawings[ending] = draw_kernels(titled_kernels(f"{sharing}, 6D-4D", *_layers(store, sharing).values()))
    return drawings


EXPERIMENT = Experiment(
    "learned-kernels",
    "Learned kernels",
    "figures of the learned psi, full and iso kernels in appendix A",
    measure,
    tables,
    draw,
)
