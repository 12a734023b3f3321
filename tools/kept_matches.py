"""What matching takes with the best matches only (`keep_top`), in blocks and in the dense form.

``python tools/kept_matches.py 240 480``. Each line is of a new process with one thread: the paper's network with
random weights, K = 10, images of noise.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from types import MethodType
from typing import Annotated, Any

import torch
import typer

from chmnet import Matcher
from chmnet.benchmark.timing import peak_megabytes, random_pair
from chmnet.config import ModelConfig
from chmnet.nn.chmnet import CHMNet

KEPT = 10
RUNS = 3


def seconds(function: Callable[[], Any]) -> float:
    """Processor time of the fastest of some runs: other work on the machine counts little."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.thread_time()
        function()
        best = min(best, time.thread_time() - start)
    return best


def measure(side: int, dense: bool) -> dict[str, Any]:
    """Time and memory of the first votes, of all scores, and the peak of the process after a whole pair."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = CHMNet(ModelConfig.preset("paper", correlation={"keep_top": KEPT})).eval()
    matcher = Matcher(model, image_size=(side, side), poses="upright")
    del model
    head: Any = matcher.model.head
    if dense:
        head.first_votes = MethodType(
            lambda self, source, target, winners=None, _=0: self.vote_over_scales(
                self.correlate(source, target), winners
            ),
            head,
        )
    source, target = (image[0] for image in random_pair((side, side))[:2])
    first, second = matcher.extract(source), matcher.extract(target)
    points = [[side / 3, side / 2]]
    matcher.match(first, second).transfer(points)
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return {
        "side": side,
        "form": "dense" if dense else "kept matches",
        "whole process, peak MB": peak,
        "first votes, s": round(seconds(lambda: matcher.votes(first, second)), 3),
        "first votes, MB": peak_megabytes(lambda: matcher.votes(first, second)),
        "match, s": round(seconds(lambda: matcher.match(first, second)), 3),
        "match, MB": peak_megabytes(lambda: matcher.match(first, second)),
    }


def main(
    sides: Annotated[list[int], typer.Argument(help="Sides of the images.")],
    form: Annotated[str, typer.Option(help="dense, kept or both.")] = "both",
    here: Annotated[bool, typer.Option(help="Measure one in this process.")] = False,
) -> None:
    """Print a line for each side and form."""
    if here:
        typer.echo(json.dumps(measure(sides[0], form == "dense")))
        return
    for side in sides:
        for each in ("dense", "kept") if form == "both" else (form,):
            command = [sys.executable, __file__, str(side), "--form", each, "--here"]
            typer.echo(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


if __name__ == "__main__":
    typer.run(main)
