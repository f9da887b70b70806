"""Execution of jobs on the threads of this process, or on the workers of a Dask scheduler.

Only as many jobs are submitted as needed to keep all workers busy. Memory does not grow with the number of jobs.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.kernels.threads import available_threads
from locpmap.scale.sources import is_dask, needed

Task = TypeVar("Task")

CONNECT_SECONDS = 10
FIRST_WORKER_SECONDS = 60  # for a cluster to start its first worker, or to replace lost workers
ATTEMPTS = 10  # restarts of a job whose worker was lost
DISCONNECTED = "the scheduler or its Client was closed, expected them to be open until the end: run again to resume"


class Threads:
    """Threads of this process. A job is a dask delayed object, or a function without arguments."""

    dashboard: str | None = None
    alive = True

    def __init__(self, n_threads: int) -> None:
        self.at_once = n_threads
        self._pool = ThreadPoolExecutor(n_threads)

    def submit(self, job: Any) -> Any:
        return self._pool.submit(job.compute, scheduler="synchronous") if is_dask(job) else self._pool.submit(job)

    def drop(self, futures: Iterable[Any]) -> None:
        """Cancel jobs that have not started, and wait for the others."""
        wait([future for future in futures if not future.cancel()])


class Cluster:
    """The workers of a Dask scheduler, with the interface of `Threads`."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.dashboard: str | None = client.dashboard_link

    @property
    def at_once(self) -> int:
        """Number of jobs to submit in advance: two per thread, so that threads do not idle between jobs."""
        return 2 * max(1, self._threads())

    @property
    def alive(self) -> bool:
        return self._threads() > 0

    def _threads(self) -> int:
        try:
            if not self._closed:
                return sum(self._client.nthreads().values())
        except OSError:  # the scheduler does not answer
            pass
        raise InputError(DISCONNECTED)

    @property
    def _closed(self) -> bool:
        return self._client.status in ("closing", "closed")

    def submit(self, job: Any) -> Any:
        return self._client.compute(job) if is_dask(job) else self._client.submit(job, pure=False)

    def drop(self, futures: Iterable[Any]) -> None:
        if not self._closed:
            self._client.cancel(list(futures), force=True)


Workers: TypeAlias = Threads | Cluster


@contextmanager
def workers(scheduler: Any = None, n_threads: int | None = None) -> Iterator[Workers]:
    """Yield the workers of a scheduler, given its address or a dask Client, or threads of this process for None."""
    if n_threads is not None:
        n_threads = whole_number("n_threads", n_threads, 1)
    if isinstance(scheduler, Threads | Cluster):
        yield scheduler
        return
    if scheduler is None:
        yield Threads(n_threads or available_threads())
        return
    distributed = needed("distributed", "scheduler")
    if isinstance(scheduler, distributed.Client):
        state = "asynchronous" if scheduler.asynchronous else scheduler.status
        if state != "running":
            raise InputError(f"scheduler is a Client that is {state}, expected one that is running")
        _wait_for_worker(scheduler)
        yield Cluster(scheduler)
        return
    if not isinstance(scheduler, str):
        raise InputTypeError(f"scheduler is a {type(scheduler).__name__}, expected an address or a Client of dask")
    with _connected(distributed, scheduler) as client:
        yield Cluster(client)


def _connected(distributed: Any, address: str) -> Any:
    """Return a client of the scheduler; raise if the scheduler does not answer or has no worker."""
    expected = "expected the address of a Dask scheduler, such as tcp://host:8786"
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError):
        raise InputError(f"scheduler {address} does not answer, {expected}") from None
    except (ValueError, TypeError):
        raise InputError(f"scheduler is {address!r}, {expected}") from None
    try:
        _wait_for_worker(client)
    except InputError:
        client.close()
        raise
    return client


def _wait_for_worker(client: Any) -> None:
    try:
        client.wait_for_workers(1, timeout=FIRST_WORKER_SECONDS)
    except TimeoutError:
        raise InputError(f"scheduler {client.scheduler.address} has no workers, expected at least one") from None


def each(crew: Workers, tasks: Iterable[Task], make: Callable[[Task], Any]) -> Generator[tuple[Task, Any], None, None]:
    """Yield each task with its completed future, in the order of completion; ``make`` returns the job of a task.

    Jobs whose workers were lost are restarted. A caller that may stop early must close the generator, which cancels the
    remaining jobs.
    """
    waiting, lost = iter(tasks), Counter[Task]()
    under_way: set[Any] = set()  # dask cancels a job when its last future is deleted
    done: SimpleQueue[tuple[Task, Any]] = SimpleQueue()

    def begin(task: Task) -> None:
        future = crew.submit(make(task))
        under_way.add(future)
        future.add_done_callback(lambda ended: done.put((task, future)))

    try:
        for task in itertools.islice(waiting, crew.at_once):
            begin(task)
        while under_way:
            task, future = _next(done, crew)
            under_way.discard(future)
            if _lost(future) and lost[task] < ATTEMPTS:
                lost[task] += 1
                begin(task)
                continue
            for following in itertools.islice(waiting, max(0, crew.at_once - len(under_way))):
                begin(following)
            yield task, future
    finally:
        crew.drop(under_way)


def _next(done: SimpleQueue[tuple[Task, Any]], crew: Workers) -> tuple[Task, Any]:
    """Wait for the next completed job; raise if there have been no workers for a minute."""
    were_alive = True
    while True:
        with suppress(Empty):
            return done.get(timeout=FIRST_WORKER_SECONDS)
        are_alive = crew.alive
        if not (were_alive or are_alive):
            raise InputError("the scheduler has no workers any more, expected at least one: run again to resume")
        were_alive = are_alive


def _lost(future: Any) -> bool:
    """Return whether the job failed because its workers died."""
    return getattr(future, "status", None) == "error" and type(future.exception()).__name__ == "KilledWorker"


def value_of(future: Any) -> Any:
    """Return the value of a completed job or raise its error; a cancelled job means that the scheduler was closed."""
    try:
        return future.result()
    except CancelledError:
        raise InputError(DISCONNECTED) from None
