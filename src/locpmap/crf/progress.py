"""Progress reports of fits and calibration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from locpmap.errors import InputTypeError
from locpmap.learning.fit import Progress


@contextmanager
def progress_callback(progress: bool | Callable[[int, int, float], None], what: str) -> Iterator[Progress | None]:
    """Yield the callback for ``progress``: None, the caller's function, or one that updates a progress bar."""
    if progress is False:
        yield None
    elif callable(progress):
        yield progress
    elif progress is True:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        title, value = TextColumn("{task.description}"), TextColumn("{task.fields[value]}")
        with Bar(title, BarColumn(), value, TimeElapsedColumn(), TimeRemainingColumn(), transient=True) as bar:
            task = bar.add_task(what, total=None, value="")
            yield lambda done, most, value: bar.update(task, completed=done, total=most, value=f"{done}: {value:.5f}")
    else:
        raise InputTypeError(f"progress is {progress!r}, expected True, False or a function of (done, most, value)")
