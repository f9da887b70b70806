"""Progress reports: calls of the caller's function, or a bar with the remaining time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from locpmap.errors import InputTypeError

Report = Callable[..., None]  # of (done, total), or with a value such as the loss


@contextmanager
def reporting(progress: Any, what: str, arguments: str = "done, total") -> Iterator[Report | None]:
    """Yield the function to call for ``progress``: none, the caller's, or one that updates a progress bar."""
    if progress is None or progress is False:
        yield None
    elif callable(progress):
        yield progress
    elif progress is True:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        title, value = TextColumn("{task.description}"), TextColumn("{task.fields[value]}")
        columns, console = (title, BarColumn(), value, TimeElapsedColumn(), TimeRemainingColumn()), Console(stderr=True)
        seen = console.is_terminal or console.is_jupyter
        with Bar(*columns, console=console, transient=True, disable=not seen) as bar:
            task = bar.add_task(what, total=None, value="")

            def update(done: int, total: int, value: float | None = None) -> None:
                text = "" if value is None else f"{value:.5g}"
                bar.update(task, completed=done, total=total, value=text)

            yield update
    else:
        raise InputTypeError(f"progress is {progress!r}, expected True, False or a function of ({arguments})")
