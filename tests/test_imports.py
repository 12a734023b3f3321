"""What imports what: layers that point one way, and a package that costs nothing until it is used."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import chmnet

PACKAGE = Path(__file__).parent.parent / "src" / "chmnet"

# From the bottom up: a part may import those of the rows above its own, and itself.
LAYERS: list[set[str]] = [
    {"errors"},
    {"arrays", "outputs", "turning", "upgrade"},
    {"files", "headers"},
    {"tables"},
    {"config"},
    {"geometry"},
    {"pictures"},
    {"ops", "formats"},
    {"nn"},
    {"weights", "features", "warping"},
    {"result_file"},
    {"result"},
    {"place", "corners"},
    {"turns"},
    {"poses"},
    {"matcher"},
    {"evaluation", "benchmark"},
    {"training", "annotation"},  # training validates with the evaluation
    {"experiments"},
    {"web"},
    {"cli"},
    {"__main__"},
]
# Beside the tower: what each of these may import, and from which part upwards it may be imported.
BASICS = {"errors", "outputs", "tables", "config", "geometry", "files", "pictures"}
ASIDE: dict[str, tuple[set[str], str]] = {
    "data": (BASICS, "evaluation"),
    "metrics": (BASICS | {"data"}, "evaluation"),
    "viz": (BASICS, "evaluation"),
}


def height(part: str) -> int:
    return next(number for number, parts in enumerate(LAYERS) if part in parts)


def allowed_imports(part: str) -> set[str]:
    if part in ASIDE:
        return ASIDE[part][0] | {part}
    below = set().union(*LAYERS[: height(part)])
    aside = {name for name, (_, lowest) in ASIDE.items() if height(part) >= height(lowest)}
    return below | aside | {part}


def known_parts() -> set[str]:
    return set().union(*LAYERS, ASIDE)


def part_of(module: str) -> str:
    """``chmnet.nn.hough`` → ``nn``."""
    return module.split(".")[1]


def imported_modules(source: str, package: str) -> Iterator[str]:
    """Full names of what a source file imports, anywhere in it; ``package`` is where it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = ".".join(package.split(".")[: len(package.split(".")) + 1 - node.level]) if node.level else ""
            base = ".".join(part for part in (home, node.module) if part)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def wrong_imports(module: str, source: str, package: str) -> list[str]:
    """Imports of chmnet's own parts that the tables above do not allow to ``module``."""
    part = part_of(module)
    if part not in known_parts():
        return [f"{module}: {part} stands in no row of the tables of {Path(__file__).name}"]
    own = [name for name in imported_modules(source, package) if name.split(".")[0] == "chmnet"]
    return [
        f"{module} imports {name}"
        for name in own
        # The package itself offers names of every layer: inside, they are imported from their homes.
        if name != "chmnet.__version__" and (name == "chmnet" or part_of(name) not in allowed_imports(part))
    ]


def source_files() -> list[tuple[str, Path, str]]:
    """(module, file, package) of every source file but the package's own list of public names."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        package = ".".join(parts[:-1])
        if module != "chmnet":
            found.append((module, file, package))
    return found


def test_imports_point_one_way() -> None:
    files = source_files()
    assert {"chmnet.nn.hough", "chmnet.ops", "chmnet.errors"} <= {module for module, _, _ in files}
    wrong = [
        line for module, file, package in files for line in wrong_imports(module, file.read_text("utf-8"), package)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("chmnet.nn.hough", "from chmnet.training import keypoint_loss"),
        ("chmnet.nn.hough", "from chmnet.training.objective import keypoint_loss"),
        ("chmnet.nn.hough", "import chmnet.training.objective as objective"),
        ("chmnet.nn.hough", "from chmnet import training"),
        ("chmnet.nn.hough", "from ..training import loss"),
        ("chmnet.nn.hough", "from .. import training"),
        ("chmnet.nn.hough", "def late():\n    from chmnet.weights import load_model"),
        ("chmnet.nn.hough", "from chmnet import load_model"),
        ("chmnet.nn.hough", "import chmnet"),
        ("chmnet.ops.conv_nd", "from chmnet.nn import HoughMatching"),
        ("chmnet.config", "from chmnet.geometry import Size"),
        ("chmnet.errors", "from chmnet.config import ModelConfig"),
        ("chmnet.evaluation", "from chmnet.training import keypoint_loss"),
        ("chmnet.matcher", "from chmnet.data import pairs"),
        ("chmnet.data.pascal", "from chmnet.nn import CHMNet"),
        ("chmnet.metrics", "from chmnet.nn import CHMNet"),
        ("chmnet.viz.matches", "from chmnet.weights import load_model"),
        ("chmnet.viz.matches", "from chmnet.nn.chmnet import CHMNet"),
        ("chmnet.viz.matches", "from chmnet.result import MatchResult"),
        ("chmnet.web.app", "from chmnet.cli.main import main"),
        ("chmnet.surprise", "import math"),
    ],
)
def test_control_wrong_imports_are_found(module: str, source: str) -> None:
    assert len(wrong_imports(module, source, package=module.rpartition(".")[0])) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("chmnet.nn.hough", "from chmnet.ops import conv_nd\nfrom chmnet.nn.taps import tap_groups"),
        ("chmnet.nn.hough", "from . import taps\nfrom .taps import tap_groups\nfrom ..ops import conv_nd"),
        ("chmnet.nn.hough", "import torch\nfrom training import chmnet\n'from chmnet.training import loss'"),
        ("chmnet.weights.models", "from chmnet import __version__"),
        ("chmnet.training.loop", "from chmnet.data import pairs\nfrom chmnet.metrics import pck"),
        ("chmnet.viz.matches", "from chmnet.geometry import Size"),
        ("chmnet.cli.match", "from chmnet.viz import draw_matches\nfrom chmnet.experiments import tables"),
    ],
)
def test_control_right_imports_are_not(module: str, source: str) -> None:
    assert wrong_imports(module, source, package=module.rpartition(".")[0]) == []


# ---------------------------------------------------------------- what is loaded, and how long it takes


def loaded_modules(*arguments: str) -> tuple[dict[str, int], str]:
    """Every module that Python loads, with the µs that it took with all it imports; and what was printed."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    lines = re.findall(r"^import time:\s+\d+ \|\s+(\d+) \|\s+(\S+)$", run.stderr, flags=re.MULTILINE)
    return {module: int(microseconds) for microseconds, module in lines}, run.stdout


HEAVY = {"torch", "numpy", "matplotlib", "scipy", "PIL", "einops", "jaxtyping", "safetensors", "accelerate"}


def test_import_of_the_package_loads_nothing_heavy() -> None:
    runs = [loaded_modules("-c", "import chmnet")[0] for _ in range(3)]
    assert "chmnet" in runs[0]
    assert not HEAVY & runs[0].keys()
    assert min(run["chmnet"] for run in runs) < 100_000  # 0.1 s; about 1 ms on an idle machine


def test_help_loads_nothing_heavy() -> None:
    modules, printed = loaded_modules("-m", "chmnet", "--help")
    assert "Usage" in printed
    assert "chmnet.cli.main" in modules
    assert not HEAVY & modules.keys()


def test_the_decoder_of_the_page_starts_without_torch() -> None:
    modules, _ = loaded_modules("-c", "import chmnet.web.decoder")
    assert {"PIL", "numpy"} <= modules.keys()
    assert not (HEAVY - {"PIL", "numpy"}) & modules.keys()


def test_control_heavy_modules_are_noticed() -> None:
    modules, _ = loaded_modules("-c", "import chmnet; chmnet.CHMNet")
    assert {"torch", "numpy", "einops"} <= modules.keys()


# ---------------------------------------------------------------- public names


def test_public_names_are_there_when_asked_for() -> None:
    for name in chmnet.__all__:
        assert getattr(chmnet, name).__name__ == name
    assert dir(chmnet) == sorted([*chmnet.__all__, "__version__"])


def test_unknown_public_name() -> None:
    with pytest.raises(AttributeError, match="module 'chmnet' has no attribute 'nonesuch'"):
        chmnet.nonesuch  # noqa: B018 (the look-up is what is tested)
