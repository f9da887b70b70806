"""Cases of a run side by side: one process for each level and seed, all of which keep their stages in one folder."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from locpmap.experiments.progress import RunProgress
from locpmap.kernels.threads import available_threads
from locpmap.scale.workers import Workers, each, value_of, workers

Case = tuple[str, int]  # a level and a seed
Make = Callable[[dict[str, Any], str, int], None]  # of the run's arguments and a case


class LocalProcesses:
    """Of this machine, so many at a time; they share its cores and its GPU."""

    dashboard = None
    alive = True

    def __init__(self, jobs: int) -> None:
        self.at_once = jobs
        # Forked processes would share a GPU's context with their parent, which does not work.
        self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _take_share, (jobs,))

    def submit(self, job: Any) -> Any:
        """Begin a job in one of them."""
        return self._pool.submit(job)

    def drop(self, futures: Iterable[Any]) -> None:
        """Wait for those that have begun."""
        del futures
        self._pool.shutdown(cancel_futures=True)


def _take_share(jobs: int) -> None:
    import torch

    torch.set_num_threads(max(1, available_threads() // jobs))


def make_cases(
    make: Make, arguments: dict[str, Any], cases: Sequence[Case], jobs: int, scheduler: Any, progress: RunProgress
) -> None:
    """Make the stages of all cases, so many at a time; a case has the numbers that it has in one process.

    Args:
        make: Makes those of one case.
        arguments: What it is given.
        cases: All of them.
        jobs: Processes of this machine, unless there is a scheduler.
        scheduler: As in :func:`locpmap.scale.workers.workers`; its workers see the same folders.
        progress: Told of every case that is done.
    """
    with _crew(min(jobs, len(cases)), scheduler) as crew:
        title = f"{len(cases)} cases side by side"
        progress.stage(0, len(cases), title)
        for done, (_, future) in enumerate(each(crew, cases, lambda case: partial(make, arguments, *case)), 1):
            value_of(future)
            progress.stage(done, len(cases), title)


def _crew(jobs: int, scheduler: Any) -> AbstractContextManager[Workers]:
    return nullcontext(LocalProcesses(jobs)) if scheduler is None else workers(scheduler)
