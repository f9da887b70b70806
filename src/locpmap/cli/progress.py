"""A progress bar for long runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import typer

from locpmap.kernels.compile_progress import on_stderr, progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE = 2.0  # seconds before the bar appears
LINE_EVERY = 15.0  # seconds, in a file or a pipe


class ProgressBar:
    """Progress bar on standard error, which appears after two seconds; in a file or a pipe, a line every 15 seconds.

    Shorter runs do not import rich.
    """

    def __init__(self, title: str, *, hidden: bool = False) -> None:
        self._title, self._compiling = title, ""
        self._done, self._total = 0, None  # type: int, int | None
        self._began = self._phase = time.monotonic()  # of the run, and of its part with the present total
        self._shown: tuple[Progress, TaskID] | None = None
        self._timer: threading.Timer | None = None
        self._lock, self._over = threading.Lock(), hidden

    def __enter__(self) -> ProgressBar:
        if not self._over:
            self._after(PATIENCE, self._show)
        if sys.stderr is not None and sys.stderr.isatty():
            progress.show = self._describe
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        progress.show = on_stderr
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            if self._shown is not None:
                self._shown[0].stop()

    def _after(self, seconds: float, then: Callable[[], None]) -> None:
        self._timer = threading.Timer(seconds, then)
        self._timer.daemon = True
        self._timer.start()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        console = Console(stderr=True)
        with self._lock:
            if self._over:
                return
            if not console.is_terminal:
                self._after(LINE_EVERY - PATIENCE, self._write_line)
                return
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            bar = Progress(*columns, console=console, transient=True)
            task = bar.add_task(self._compiling or self._title, completed=self._done, total=self._total)
            bar.tasks[0].start_time = self._began
            bar.start()
            self._shown = bar, task

    def _write_line(self) -> None:
        with self._lock:
            if self._over:
                return
            now, left = time.monotonic(), ""
            if self._total and self._done:
                left = f", about {(now - self._phase) * (self._total - self._done) / self._done:.0f} s left"
            typer.echo(f"{self._title}: {now - self._began:.0f} s{left}", err=True)
            self._after(LINE_EVERY, self._write_line)

    def update(self, done: int, total: int, title: str | None = None) -> None:
        """Show that ``done`` of ``total`` steps are complete; a title replaces the previous one."""
        with self._lock:
            if total != self._total:
                self._phase = time.monotonic()
            self._done, self._total, self._title = done, total, title or self._title
            self._refresh()

    def _describe(self, compiling: str) -> None:
        with self._lock:
            self._compiling = compiling
            self._refresh()

    def _refresh(self) -> None:
        if self._shown is not None:
            bar, task = self._shown
            title = self._compiling or self._title
            bar.update(task, completed=self._done, total=self._total, description=title)
