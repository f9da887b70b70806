"""A thread pool for kernels that release the global interpreter lock.

Unlike Numba's threading layers, the pool can be used from several Python threads and after a fork, and needs no
compilation.  Work is divided into ranges; results do not depend on the division.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def available_threads() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ranges(count: int, parts: int) -> list[tuple[int, int]]:
    """Split ``range(count)`` into at most ``parts`` nearly equal, non-empty pieces."""
    parts = max(1, min(parts, count))
    bounds = [count * p // parts for p in range(parts + 1)]
    return list(pairwise(bounds))


class Threads:
    """A pool of ``n_threads`` threads for one inference; started at the first parallel call."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[..., T], jobs: Iterable[tuple[object, ...]]) -> list[T]:
        """Return ``[function(*job) for job in jobs]``, computed in parallel."""
        jobs = list(jobs)
        if self.n_threads == 1 or len(jobs) < 2:
            return [function(*job) for job in jobs]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads)
        return list(self._pool.map(lambda job: function(*job), jobs))

    def close(self) -> None:
        """Wait for the threads to end."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
