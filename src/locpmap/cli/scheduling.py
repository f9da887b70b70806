"""Workers of a command: those of a Dask scheduler, or threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from locpmap.scale.workers import Workers


@contextmanager
def open_workers(scheduler: str | None, n_threads: int | None = None) -> Iterator[Workers]:
    """Open the workers of a scheduler and print the address of its dashboard; or open a pool of threads."""
    from locpmap.scale.workers import workers

    with workers(scheduler, n_threads) as pool:
        if pool.dashboard is not None:
            typer.echo(f"dashboard: {pool.dashboard}", err=True)
        yield pool
