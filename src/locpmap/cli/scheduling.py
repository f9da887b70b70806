"""Commands whose work is shared by the workers of a Dask scheduler, or by threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from locpmap.scale.workers import Workers


@contextmanager
def announced(scheduler: str | None, n_threads: int | None = None) -> Iterator[Workers]:
    """The workers of a scheduler, whose dashboard is named on standard error; or that many threads."""
    from locpmap.scale.workers import workers

    with workers(scheduler, n_threads) as crew:
        if crew.dashboard is not None:
            typer.echo(f"dashboard: {crew.dashboard}", err=True)
        yield crew
