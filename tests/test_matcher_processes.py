"""One matcher in many threads, after a fork, pickled and copied: the same numbers, and no hang."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch

from chmnet.config import TransferConfig
from chmnet.features import FeatureCache, Features
from chmnet.matcher import Matcher
from chmnet.pictures import View
from chmnet.result import MatchResult
from tests.conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
PAIRS = [
    (EXAMPLES / "donkey.png", EXAMPLES / "zebra.png"),
    (EXAMPLES / "sedan.png", EXAMPLES / "sportscar.png"),
    (EXAMPLES / "european-bear.png", EXAMPLES / "black-bear.png"),
]
SECONDS = 120
"""Far more than the work takes: a process that is not done by then hangs."""


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(device="cpu")


def flows(matcher: Matcher, pairs: list[tuple] = PAIRS) -> list[np.ndarray]:
    return [matcher.match(*pair).flow((20, 20)) for pair in pairs]


@pytest.fixture(scope="module")
def expected(matcher: Matcher) -> list[np.ndarray]:
    return flows(matcher)


def check_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=0.01)


@pytest.mark.parametrize("cached", [False, True])
def test_eight_threads(matcher: Matcher, expected: list[np.ndarray], cached: bool) -> None:
    shared = Matcher(matcher.model, device="cpu", cache=FeatureCache[Features](2**20) if cached else None)
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(flows, shared) for _ in range(8)]
        for job in jobs:
            check_same(job.result(timeout=SECONDS), expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda matcher: pickle.loads(pickle.dumps(matcher))])
def test_copies(matcher: Matcher, expected: list[np.ndarray], copied) -> None:  # type: ignore[no-untyped-def]
    other = copied(matcher)
    check_same(flows(other, PAIRS[:1]), expected[:1])
    assert other.fingerprint == matcher.fingerprint
    check_same([other.match(matcher.extract(PAIRS[0][0]), PAIRS[0][1]).flow((20, 20))], expected[:1])


FORK = """
import os, signal, sys
import numpy, torch
torch.set_num_threads(2)
from chmnet.matcher import Matcher
from chmnet.pictures import View
from chmnet.result import MatchResult
from tests.test_matcher_processes import SECONDS, flows

matcher = Matcher(device="cpu")
expected = flows(matcher)  # the threads of this process are at work before the fork
child = os.fork()
if child == 0:
    signal.alarm(SECONDS)
    same = all(numpy.allclose(*pair, atol=0.01) for pair in zip(flows(matcher), expected))
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_after_a_fork() -> None:
    """In a process of its own, with two threads: OpenMP's do not survive a fork."""
    run = subprocess.run([sys.executable, "-c", FORK], cwd=REPOSITORY, timeout=2 * SECONDS, check=False)
    assert run.returncode == 0


def test_results_do_not_wait_for_each_other() -> None:
    """A cached property before Python 3.12 holds one lock for all instances: a busy result would stop others."""
    blocked, go = threading.Event(), threading.Event()

    class Slow(MatchResult):
        @property
        def _back(self):  # type: ignore[no-untyped-def, override]
            blocked.set()
            assert go.wait(SECONDS)
            return self._there

    whole = View.of(np.zeros((40, 60)))
    fields = (torch.rand(1, 1, 4, 4, 4, 4), whole, whole, TransferConfig())
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(lambda: Slow(*fields).confidence)
        assert blocked.wait(SECONDS)
        quick = pool.submit(lambda: MatchResult(*fields).confidence)
        try:
            quick.result(timeout=SECONDS / 4)
        finally:
            go.set()
        assert slow.result(timeout=SECONDS).shape == (4, 4)


def answer(matcher: Matcher, end: Connection) -> None:
    end.send(flows(matcher, PAIRS[:1]))


@pytest.mark.slow
def test_sent_to_a_new_process(matcher: Matcher, expected: list[np.ndarray]) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=answer, args=(matcher, there))
    process.start()
    assert here.poll(SECONDS)
    check_same(here.recv(), expected[:1])
    process.join(SECONDS)
    assert process.exitcode == 0
