"""``--device``: on every command that runs a network, and one sentence where there is no such device."""

import pytest

from .conftest import Run
from .test_cli import assert_one_sentence

COMMANDS = {
    "match": ["a.png", "b.png"],
    "warp": ["a.png", "b.png", "-o", "out.png"],
    "propagate": ["labels.json", "photos", "-o", "out.json"],
    "evaluate": ["--dataset", "coco", "--root", "photos"],
    "calibrate": ["chmnet-lite", "--dataset", "coco", "--root", "photos"],
    "data label": ["coco", "--root", "photos", "-o", "out.json"],
    "train": ["--resume", "runs/lite"],
    "experiment": ["kernels", "--quick", "-o", "out"],
    "serve": ["--no-browser"],
    "benchmark": ["--size", "32"],
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("device", "words"), [("toaster", "there is no device 'toaster'"), ("cuda:99", "finds no device 'cuda:99'")]
)
def test_a_wrong_device_is_one_sentence(name: str, device: str, words: str, run: Run) -> None:
    code, _, complaint = run(*name.split(), *COMMANDS[name], "--device", device)
    assert_one_sentence(code, complaint, words)
