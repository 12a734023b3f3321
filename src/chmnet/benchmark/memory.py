"""Peak memory of a whole pair, in a process of its own.

In a process that has done other work, what the allocator kept of it shifts the figure by up to a third. So each
pair is matched in a fresh one: ``python -m chmnet.benchmark.memory`` reads a request and prints a number.
"""

import json
import subprocess
import sys
from typing import Any

import torch

from chmnet.benchmark.baseline import Baseline
from chmnet.benchmark.measure import peak_megabytes
from chmnet.benchmark.pairs import match_pair, random_pair
from chmnet.config import ModelConfig
from chmnet.geometry import Size
from chmnet.nn.chmnet import CHMNet
from chmnet.nn.inference import for_inference


def pair_peak_megabytes(config: ModelConfig, baseline: bool, size: Size) -> float | None:
    """Largest growth of resident memory while one pair is matched; ``None`` where it cannot be measured.

    Args:
        config: of the model; its weights are random and do not count.
        baseline: whether to run it in the authors' way.
        size: (height, width) of both images.
    """
    request = {
        "config": config.to_dict(),
        "baseline": baseline,
        "size": list(size),
        "threads": torch.get_num_threads(),
    }
    process = subprocess.run(
        [sys.executable, "-m", "chmnet.benchmark.memory"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    return None if process.returncode else json.loads(process.stdout)


def answer(request: dict[str, Any]) -> float | None:
    """Do here what :func:`pair_peak_megabytes` asks for."""
    torch.set_num_threads(request["threads"])
    model = CHMNet(ModelConfig.from_dict(request["config"])).eval()
    network = Baseline(model) if request["baseline"] else for_inference(model)
    del model  # its weights would only be in the way
    height, width = request["size"]
    pair = random_pair((height, width))
    return peak_megabytes(lambda: match_pair(network, pair))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(json.load(sys.stdin))))
