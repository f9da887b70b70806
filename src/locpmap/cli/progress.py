"""A progress bar for long runs."""

from __future__ import annotations

import threading
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from locpmap.kernels.compile_progress import on_terminal, progress

PATIENCE = 2.0  # seconds before the bar appears


class ProgressBar:
    """Progress bar on standard error, if that is a terminal; it appears after two seconds."""

    def __init__(self, title: str, *, hidden: bool = False) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._title = title
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task(title, total=None)
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True
        self._lock, self._over = threading.Lock(), hidden or not console.is_terminal

    def __enter__(self) -> ProgressBar:
        if not self._over:
            self._timer.start()
        progress.show = self._describe
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        progress.show = on_terminal
        with self._lock:
            self._over = True
            if self._bar.live.is_started:
                self._bar.stop()

    def _show(self) -> None:
        with self._lock:
            if not self._over:
                self._bar.start()

    def update(self, done: int, total: int, title: str | None = None) -> None:
        """Show that ``done`` of ``total`` steps are complete; a title replaces the previous one."""
        self._title = title or self._title
        self._bar.update(self._task, completed=done, total=total, description=self._title)

    def _describe(self, compiling: str) -> None:
        self._bar.update(self._task, description=compiling or self._title)
