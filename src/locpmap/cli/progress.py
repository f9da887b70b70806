"""A progress bar for what takes longer than it should."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PATIENCE = 2.0  # seconds before the bar appears


class ProgressBar:
    """On a terminal's standard error, from two seconds on."""

    def __init__(self, title: str, *, hidden: bool = False) -> None:
        self._title = title
        self._console = Console(stderr=True)
        self._hidden = hidden or not self._console.is_terminal
        self._bar: Progress | None = None
        self._began = time.perf_counter()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """What ``infer`` calls after every step."""
        if self._hidden:
            return
        if self._bar is None:
            if time.perf_counter() - self._began < PATIENCE:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task(self._title)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)
