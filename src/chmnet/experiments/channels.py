"""How many kernels a layer needs: PCK over the channels between the votes, and of neighbourhood consensus."""

from collections.abc import Mapping

from chmnet.experiments.ablation import comparison_table, measure_variants, pck_cells
from chmnet.experiments.published import CONSENSUS
from chmnet.experiments.runner import Drawing, Experiment, Figures, Table, to_table
from chmnet.experiments.store import Store
from chmnet.viz import plot_runs

SHARINGS = ("psi", "iso", "full")
CONSENSUS_NAMES = {"consensus-16": "{16, 16, 1}", "consensus-1": "{1, 1, 1}"}
SEEDS = 3


def variant(sharing: str, channels: int) -> str:
    """Name of a variant; with one channel it is the kernel of table 2.

    Example:
        >>> variant("psi", 1), variant("psi", 4)
        ('psi-4d', 'psi-4d-4-channels')
    """
    return f"{sharing}-4d" if channels == 1 else f"{sharing}-4d-{channels}-channels"


def measure(store: Store) -> Figures:
    """PCK of every sharing and number of channels, and of one run of neighbourhood consensus."""
    seeds = {
        variant(sharing, channels): store.setting.seeds(SEEDS)
        for sharing in SHARINGS
        for channels in store.channels
    }
    fewest = min(store.channels)
    comparisons = [
        (variant(sharing, fewest), variant(sharing, channels))
        for sharing in SHARINGS
        for channels in store.channels
        if channels != fewest
    ]
    seeds |= {name: store.setting.seeds(1) for name in CONSENSUS_NAMES}
    figures = measure_variants(store, list(seeds), seeds, [*comparisons, ("consensus-1", "consensus-16")])
    return {"channels": list(store.channels), **figures}


def tables(figures: Figures) -> list[Table]:
    """PCK by sharing and channels; consensus beside the paper's figures; which differences are decided."""
    kernels = [
        {"kernel, 4D-4D": sharing, "channels": str(channels), **pck_cells(figures, variant(sharing, channels))}
        for sharing in SHARINGS
        for channels in figures["channels"]
    ]
    paper = {name: {"paper (NC-Net), PCK": f"{CONSENSUS[name]:.1f}"} for name in CONSENSUS_NAMES}
    consensus = [
        {"neighbourhood consensus": title, **pck_cells(figures, name), **paper[name]}
        for name, title in CONSENSUS_NAMES.items()
    ]
    names = {
        variant(sharing, channels): f"{sharing}, {channels}"
        for sharing in SHARINGS
        for channels in figures["channels"]
    }
    differences = comparison_table(figures, {**names, **CONSENSUS_NAMES})
    return [to_table(kernels), to_table(consensus), *differences]


def draw(store: Store, figures: Figures) -> Mapping[str, Drawing]:
    """PCK over channels, a line for each sharing; a panel for each benchmark and α."""
    first = next(iter(figures["rows"].values()))["pck"]
    panels = {
        f"{label} @{alpha}": {
            sharing: [
                (channels, figures["rows"][variant(sharing, channels)]["pck"][name][alpha])
                for channels in figures["channels"]
            ]
            for sharing in SHARINGS
        }
        for name, label in figures["benchmarks"].items()
        for alpha in first[name]
    }
    return {"": plot_runs(panels, "channels", "PCK (%)")}


EXPERIMENT = Experiment(
    "channels",
    "Channels of the Hough layers",
    "figure “PCK performance with different channel sizes”, and NC-Net's channels in section 5.2",
    measure,
    tables,
    draw,
    seeds=SEEDS,
)
