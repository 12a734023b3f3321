"""All experiments by name."""

from chmnet.experiments import (
    channels,
    clutter,
    cost,
    kernels,
    learned_kernels,
    main_table,
    modules,
    multiple,
    qualitative,
    scales,
)
from chmnet.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        main_table,
        cost,
        kernels,
        modules,
        channels,
        clutter,
        scales,
        learned_kernels,
        multiple,
        qualitative,
    )
}
"""Every table and figure of the paper, in its order."""
