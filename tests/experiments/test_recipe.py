"""Variants change what their names say and nothing else; the paper's numbers are the paper's."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from chmnet.benchmark import count_parameters
from chmnet.config import HoughConfig
from chmnet.experiments import channels, learned_kernels, modules, sharing, tuned
from chmnet.experiments.published import CONSENSUS, KERNELS, METHODS, MODULES
from chmnet.experiments.recipe import RATES, TUNED, VARIANTS, training_config
from chmnet.experiments.store import QUICK_RECIPE
from chmnet.nn.chmnet import CHMNet

CHANNELS = (1, 2, 4, 8, 16)
ONE_SCALE = {"correlation.scales": [1.0]}
SHARING = {
    sharing: {} if sharing == "psi" else {"matching.first_sharing": sharing, "matching.last_sharing": sharing}
    for sharing in ("psi", "iso", "full")
}
DIFFERENCES: dict[str, dict[str, Any]] = {
    **{f"{sharing}-6d": changes for sharing, changes in SHARING.items()},
    **{f"{sharing}-4d": ONE_SCALE | changes for sharing, changes in SHARING.items()},
    "psi-6d-sparse": {"correlation.keep_top": 10},
    "psi-6d-scale-present": {"matching.scale_borders": "present"},
    "rhm": {"matching.kind": "regularised-hough"},
    "without-last-vote": {"matching.last_layer": False},
    "without-votes": {"matching.kind": "none"},
    "without-gaussian": {"transfer.gaussian_sigma": 0},
    "without-soft-sampler": {"transfer.sampler": "nearest"},
    "consensus-16": {**ONE_SCALE, "matching.kind": "consensus", "matching.channels": [16, 16, 1]},
    "consensus-1": {**ONE_SCALE, "matching.kind": "consensus", "matching.channels": [1, 1, 1]},
    **{
        f"{sharing}-4d-{number}-channels": {**ONE_SCALE, **changes, "matching.channels": number}
        for sharing, changes in SHARING.items()
        for number in CHANNELS
        if number > 1
    },
    "pivot-6d": {"matching.taps": "center-pivot"},
    "pivot-6d-joint": {"matching.taps": "center-pivot-joint"},
    "pivot-4d": {**ONE_SCALE, "matching.taps": "center-pivot"},
}
LEARNING = {
    "frozen": False,
    "backbone_from": "blocks.3",
    "backbone_learning_rate": 0.0002,
    "batch_statistics": False,
}
"""How a run differs whose backbone learns."""


def flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings by their full names, such as ``transfer.sampler``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


def test_every_variant_is_listed_here() -> None:
    asked_for = {channels.variant(sharing, number) for sharing in channels.SHARINGS for number in CHANNELS}
    asked_for |= {*VARIANTS, *sharing.NAMES, *modules.NAMES, *channels.CONSENSUS_NAMES}
    asked_for |= {f"{sharing}-6d" for sharing in learned_kernels.SHARINGS}
    assert asked_for == set(DIFFERENCES)
    assert set(tuned.NAMES) <= asked_for


@pytest.mark.parametrize("recipe", [None, QUICK_RECIPE], ids=["recipe", "quick"])
@pytest.mark.parametrize("variant", DIFFERENCES)
def test_a_variant_differs_in_what_it_says(variant: str, recipe: dict[str, Any] | None) -> None:
    options = {} if recipe is None else {"recipe": {**recipe, "data": [{"dataset": "coco"}]}}
    whole, changed = (flat(training_config(name, 3, **options).to_dict()) for name in ("psi-6d", variant))
    assert changed.keys() <= whole.keys()
    if "matching.kind" not in DIFFERENCES[variant]:  # each kind has fields of its own
        assert whole.keys() == changed.keys()
    assert all(name.startswith("model.matching.") for name in whole.keys() - changed.keys())
    found = {name: value for name, value in changed.items() if value != whole[name]}
    rate = {"learning_rate": RATES[variant]} if variant in RATES else {}
    assert found == rate | {f"model.{name}": value for name, value in DIFFERENCES[variant].items()}


@pytest.mark.parametrize("variant", tuned.NAMES)
def test_a_tuned_variant_differs_in_its_backbone_alone(variant: str) -> None:
    frozen, learns = (training_config(name, 1).to_dict() for name in (variant, f"{TUNED}{variant}"))
    found = {name: value for name, value in learns.items() if value != frozen[name]}
    assert {name: found[name] for name in LEARNING} == LEARNING
    assert found.keys() == LEARNING.keys()


def test_the_whole_network_is_the_papers() -> None:
    config = training_config("psi-6d", 0).model
    assert config.matching == HoughConfig(first_sharing="psi", last_sharing="psi", last_layer=True, channels=1)
    assert config.correlation.scales == pytest.approx([2**-0.5, 1, 2**0.5])
    assert config.transfer.gaussian_sigma > 0
    assert config.transfer.sampler == "soft"


def test_seeds_change_the_seed_alone() -> None:
    first, second = (flat(training_config("rhm", seed).to_dict()) for seed in (0, 1))
    assert {name for name in first if first[name] != second[name]} == {"seed"}


def test_unknown_variants_are_no_variants() -> None:
    for name in ("wonder", "wonder-4-channels"):
        with pytest.raises(KeyError):
            training_config(name, 0)


@pytest.mark.parametrize(
    ("variant", "weights"),
    [
        ("psi-6d", 275),
        ("full-6d", 6250),
        ("iso-6d", 60),
        ("psi-4d", 110),
        ("full-4d", 1250),
        ("iso-4d", 30),
        ("psi-6d-sparse", 275),
    ],
)
def test_votes_have_as_many_weights_as_in_the_paper(variant: str, weights: int) -> None:
    with torch.random.fork_rng(devices=[]):
        network = CHMNet(training_config(variant, 0).model)
    assert count_parameters(network)["votes"] == weights == KERNELS[variant].parameters


# ---------------------------------------------------------------- the paper's tables


def test_every_row_has_a_published_one() -> None:
    assert list(KERNELS) == list(sharing.NAMES)[: len(KERNELS)]
    assert list(MODULES) == list(modules.NAMES)
    assert set(CONSENSUS) == set(channels.CONSENSUS_NAMES)


@pytest.fixture(scope="module")
def paper(shared: Path) -> str:
    file = shared / "paper" / "chmnet_cvpr2021.tex"
    if not file.is_file():
        pytest.skip("the paper's source is not among the shared data")
    return file.read_text(encoding="utf-8")


def rows_of_table(paper: str, label: str, columns: int) -> list[list[str]]:
    """Cells of the rows of the table with this label below its headings, without what makes numbers bold."""
    table = paper[: paper.index(rf"\label{{tab:{label}}}")].rpartition(r"\begin{tabular}")[2]
    body = table.partition(r"\midrule")[2]
    rows = []
    for line in body.splitlines():
        if line.count("&") == columns - 1:
            plain = re.sub(r"\\\\.*", "", line)
            plain = re.sub(r"\\(textbf|underline)\{([\d.,]+)\}", r"\2", plain)
            rows.append([cell.strip().strip("{}") for cell in plain.split("&")])
    return rows


def number(cell: str) -> float | None:
    found = re.match(r"[\d.,]+", cell)
    return float(found[0].replace(",", "")) if found else None


def test_kernels_as_the_paper_has_them(paper: str) -> None:
    rows = rows_of_table(paper, "ablation_kernel", 8)
    for cells, row in zip(rows, KERNELS.values(), strict=True):
        pck = [re.sub(r"\$_\{\\pm ([\d.]+)\}\$", r" ± \1", cell) for cell in cells[3:5]]
        assert (*pck, *map(number, cells[5:])) == row


def test_modules_as_the_paper_has_them(paper: str) -> None:
    rows = rows_of_table(paper, "ablation_study", 5)
    assert [tuple(map(number, cells[-2:])) for cells in rows] == list(MODULES.values())


def test_methods_as_the_paper_has_them(paper: str) -> None:
    rows = rows_of_table(paper, "main_table", 12)
    assert [tuple(map(number, [*cells[4:8], *cells[9:]])) for cells in rows] == [
        row[1:] for row in METHODS.values()
    ]
    names = [re.sub(r"[ ,(].*", "", name) for name in METHODS]
    assert all(name in cells[1] for name, cells in zip(names, rows, strict=True))


def test_channels_as_the_paper_has_them(paper: str) -> None:
    section = paper.partition("Effect of channel size.")[2]
    found = re.findall(r"\$\\\{([\d, ]+)\\\}\$.*?([\d.]+)\\% PCK", section)[:2]
    assert found == [("16, 16, 1", f"{CONSENSUS['consensus-16']}"), ("1, 1, 1", f"{CONSENSUS['consensus-1']}")]
