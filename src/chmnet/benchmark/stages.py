"""How long each stage of a pair takes, in a whole run: from the backbone to keypoints."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch import nn

from chmnet.benchmark import counts
from chmnet.benchmark.timing import ImagePair, Network, wait_for_device


class Stopwatch:
    """Seconds of each stage; at any moment exactly one of them runs.

    Example:
        >>> stopwatch = Stopwatch()
        >>> stopwatch.switch("work")
        >>> stopwatch.switch("rest")
        >>> stopwatch.stop().keys()
        dict_keys(['work', 'rest'])
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stage: str | None = None
        self._since = 0.0

    def switch(self, stage: str | None) -> None:
        """End the stage that runs, and begin another one, or the same again."""
        wait_for_device()
        now = time.perf_counter()
        if self._stage is not None:
            self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = stage, time.perf_counter()

    def stop(self) -> dict[str, float]:
        """End the last stage: the seconds of all, which sum up to the time of the run."""
        self.switch(None)
        return self._seconds


def time_stages(network: Network, pair: ImagePair) -> dict[str, float]:
    """Run one pair, images to transferred keypoints: the seconds of each stage.

    The network runs as it always does; only the borders of its public steps are observed. A step that a network
    does not have takes no time.
    """
    stopwatch = Stopwatch()
    with torch.inference_mode(), _observed(network, stopwatch):
        stopwatch.switch(counts.BACKBONE)
        correlation = network(pair.source, pair.target)
        stopwatch.switch(counts.TRANSFER)
        network.transfer(correlation, pair.keypoints)
        seconds = stopwatch.stop()
    return {stage: seconds.get(stage, 0.0) for stage in counts.STAGES}


@contextmanager
def _observed(network: Network, stopwatch: Stopwatch) -> Iterator[None]:
    head = network.head
    steps: list[tuple[nn.Module, str, str, str]] = []
    if head.fine is not None:
        steps = [
            (head.fine, "forward", counts.CORRELATION, counts.FILTER),
            (head.fine.vote, "forward", counts.LAST_VOTE, counts.FILTER),
        ]
    with ExitStack() as stack:
        for owner, method, before, after in (
            *steps,
            (network, "features", counts.BACKBONE, counts.BACKBONE),
            (head, "pyramid", counts.PYRAMID, counts.PYRAMID),
            (head, "correlate", counts.CORRELATION, counts.FIRST_VOTE),
            (head, "vote_over_scales", counts.FIRST_VOTE, counts.BEST_SCALES),
            (head.first, "forward", counts.FIRST_VOTE, counts.BEST_SCALES),
            (head.last, "forward", counts.LAST_VOTE, counts.FILTER),
        ):
            stack.enter_context(_replaced(owner, method, stopwatch, before, after))
        yield


@contextmanager
def _replaced(owner: nn.Module, method: str, stopwatch: Stopwatch, before: str, after: str) -> Iterator[None]:
    """Let a method of one object switch the stopwatch before and after it runs."""
    original: Callable[..., Any] = getattr(owner, method)

    @wraps(original)
    def observed(*arguments: Any, **options: Any) -> Any:
        stopwatch.switch(before)
        result = original(*arguments, **options)
        stopwatch.switch(after)
        return result

    setattr(owner, method, observed)
    try:
        yield
    finally:
        delattr(owner, method)
