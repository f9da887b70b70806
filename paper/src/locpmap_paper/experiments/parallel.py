"""Parallel runs of the cases of an experiment: one process or Dask worker per level and seed, one shared folder."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from typing import Any

from locpmap.errors import BackendError, InputError
from locpmap_paper.cores import available_cores
from locpmap_paper.experiments.progress import RunProgress

Case = tuple[str, int]  # a level and a seed
Make = Callable[[dict[str, Any], str, int], None]  # called with the run's arguments and a case

CONNECT_SECONDS = 10
FIRST_WORKER_SECONDS = 60  # a cluster may need to start a worker


def compute_cases(
    make: Make,
    arguments: dict[str, Any],
    cases: Sequence[Case],
    jobs: int,
    scheduler: Any,
    progress: RunProgress,
    cost: float = 1.0,
) -> None:
    """Compute the stages of all cases in parallel, with the same numbers as one process.

    Args:
        make: Function that computes the stages of one case.
        arguments: Arguments of the run, passed to ``make``.
        cases: All cases.
        jobs: Number of local processes, used without a scheduler.
        scheduler: Address of a Dask scheduler, or a Dask ``Client``; its workers must see the same folders.
        progress: Called after each case.
        cost: Expected seconds of a case.
    """
    with _executor(min(jobs, len(cases)), scheduler) as executor:
        title = f"{len(cases)} cases in parallel"
        progress.stage(0, cost * len(cases), title, cost)
        futures = [executor.submit(make, arguments, *case) for case in cases]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                progress.stage(cost * done, cost * len(cases), title, cost)
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def _executor(jobs: int, scheduler: Any) -> Iterator[Executor]:
    if scheduler is None:
        # Forked processes cannot use the GPU context of their parent.
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _take_share, (jobs,)) as pool:
            yield pool
        return
    with _client(scheduler) as client:
        try:
            client.wait_for_workers(1, timeout=FIRST_WORKER_SECONDS)
        except TimeoutError:
            raise InputError(f"scheduler {client.scheduler.address} has no workers, expected at least one") from None
        with client.get_executor(pure=False) as pool:
            yield pool


def _client(scheduler: Any) -> Any:
    """Return a context with a Dask client; a client that was passed in stays open."""
    try:
        import distributed
    except ImportError:
        raise BackendError("scheduler needs Dask, which is not installed: pip install '.[scale]' in a clone") from None
    if isinstance(scheduler, distributed.Client):
        return nullcontext(scheduler)
    expected = "expected the address of a Dask scheduler, such as tcp://host:8786"
    try:
        return distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError):
        raise InputError(f"scheduler {scheduler} does not answer, {expected}") from None
    except (ValueError, TypeError):
        raise InputError(f"scheduler is {scheduler!r}, {expected}") from None


def _take_share(jobs: int) -> None:
    import torch

    torch.set_num_threads(max(1, available_cores() // jobs))
