"""A matcher and its cache shared by threads and forked processes: the very same numbers, and no hang."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from chmnet.features import FeatureCache
from chmnet.matcher import Matcher
from chmnet.result import MatchResult

THREADS = 8
SIZE = (96, 112)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four files of smooth noise."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / f"{number}.png" for number in range(4)]
    for seed, path in enumerate(paths):
        noise = np.random.default_rng(seed).integers(0, 255, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((120, 90), Image.Resampling.BICUBIC).save(path)
    return paths


def make(cache: FeatureCache | None = None) -> Matcher:
    """A matcher that votes, over a grid of 12×14 positions."""
    return Matcher("hough-prior", device="cpu", image_size=SIZE, cache=cache)


def numbers(result: MatchResult) -> list[torch.Tensor]:
    found = result.transfer([[30, 40], [80, 20]])
    return [result.scores, torch.from_numpy(found.target), torch.from_numpy(found.confidence)]


def all_pairs(matcher: Matcher, pictures: list[Path]) -> list[list[torch.Tensor]]:
    return [numbers(matcher.match(source, target)) for source in pictures for target in pictures]


@pytest.fixture(scope="module")
def expected(pictures: list[Path]) -> list[list[torch.Tensor]]:
    """What a matcher of its own gives to each pair."""
    return all_pairs(make(), pictures)


def assert_same(found: list[list[torch.Tensor]], expected: list[list[torch.Tensor]]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def together(matcher: Matcher, pictures: list[Path]) -> list[list[list[torch.Tensor]]]:
    """What each of eight threads gets at once."""
    with ThreadPoolExecutor(THREADS) as pool:
        tasks = [pool.submit(all_pairs, matcher, pictures) for _ in range(THREADS)]
        return [task.result(timeout=120) for task in tasks]


@pytest.mark.parametrize("cache", [None, FeatureCache(2**30)], ids=["no cache", "memory"])
def test_eight_threads_share_a_matcher(
    cache: FeatureCache | None, pictures: list[Path], expected: list[list[torch.Tensor]]
) -> None:
    for found in together(make(cache), pictures):
        assert_same(found, expected)


def test_eight_threads_share_features_on_disk(pictures: list[Path], expected: list[list[torch.Tensor]]) -> None:
    for found in together(make(FeatureCache(200_000)), pictures):  # room for two of four pictures
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[0], other[0], rtol=0, atol=1e-5 * other[0].abs().max().item())


def test_features_from_disk_give_the_same_numbers(
    pictures: list[Path], expected: list[list[torch.Tensor]]
) -> None:
    matcher = make(FeatureCache(0))
    all_pairs(matcher, pictures)
    assert_same(all_pairs(matcher, pictures), expected)


SEVERAL_THREADS = {**os.environ, "OMP_NUM_THREADS": "2"}


def check_run(script: str, *arguments: str | Path) -> None:
    """Run Python elsewhere; a hang is a failure, and ends with all its processes."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    options = {"env": SEVERAL_THREADS, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **options) as process:
        try:
            stderr = process.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail("it hangs")
    assert process.returncode == 0, stderr


# The parent has used its threads before, and one of them holds the cache's lock when it forks: both are gone in
# the child, which has one thread and therefore sums in another order.
FORKED = """
import os, sys, threading, torch
from chmnet.features import FeatureCache
from chmnet.matcher import Matcher

torch.set_num_threads(2)
source, target = sys.argv[1:3]
cache = {"memory": FeatureCache(2**30), "disk": FeatureCache(0)}[sys.argv[3]]
matcher = Matcher("hough-prior", device="cpu", image_size=(96, 112), cache=cache)
expected = matcher.match(source, target).scores
held, done = threading.Event(), threading.Event()

def hold():
    with cache._lock:
        held.set()
        done.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        error = (matcher.match(source, target).scores - expected).abs().max() / expected.abs().max()
        os._exit(0 if error < 1e-5 else 3)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
done.set()
assert codes == [0, 0], codes
again = matcher.match(source, target).scores  # the parent's cache is as it was
assert (again - expected).abs().max() < 1e-5 * expected.abs().max()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_forked_processes_use_the_matcher_of_their_parent(cache: str, pictures: list[Path]) -> None:
    check_run(FORKED, *pictures[:2], cache)
