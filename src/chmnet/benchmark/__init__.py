"""What a model costs: parameters, multiply-adds, time and memory, against the authors' way in the same run."""

from chmnet.benchmark.authors import Baseline, BaselineHead
from chmnet.benchmark.counts import count_multiply_adds, count_parameters
from chmnet.benchmark.run import PARTS, Plan, plan, run

__all__ = ["PARTS", "Baseline", "BaselineHead", "Plan", "count_multiply_adds", "count_parameters", "plan", "run"]
