"""``chmnet models``: what can be asked for by name."""

import typer


def models() -> None:
    """List the models known by name.

    Example:

    `chmnet models`
    """
    from chmnet.weights import DEFAULT_MODEL, MODELS

    for name, known in MODELS.items():
        default = " (default)" if name == DEFAULT_MODEL else ""
        typer.echo(f"{name}{default}: {known.description}")
