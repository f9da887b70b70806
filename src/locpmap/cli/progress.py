"""A progress bar on standard error that appears only where there is something to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 2.0  # seconds before the bar appears


@contextmanager
def progress_bar(title: str, *, visible: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yields a callback ``(done, total)`` for :func:`locpmap.infer`."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(title, total=None)
    began = time.monotonic()

    def report(done: int, total: int) -> None:
        if visible and not bar.live.is_started and time.monotonic() - began > PATIENCE:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
