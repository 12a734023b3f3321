"""Progress bars: on a terminal, for anything that takes longer than a moment; silent in pipes."""

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Sequence[Item], unit: str) -> Iterator[Item]:
    """Go through items under a bar with their rate and the time left; it shows up after one second."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield from items
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        started = time.monotonic()
        task = progress.add_task("", total=len(items), rate="", visible=False)
        for item in items:
            yield item
            speed = progress.tasks[0].speed
            rate = f"{speed:.1f}/s" if speed else ""
            progress.update(task, advance=1, rate=rate, visible=time.monotonic() - started > 1)
