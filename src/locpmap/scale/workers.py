"""Jobs on the threads of this process or on the workers of a Dask scheduler, a few at a time.

However many jobs there are, no more are under way than keep the workers busy: memory is bounded by what those hold.
"""

from __future__ import annotations

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
FIRST_WORKER_SECONDS = 60  # a cluster may have to start one, or another where all were lost
ATTEMPTS = 10  # at a job whose workers were lost while they had it
CUT_OFF = "the scheduler is gone, or its Client was closed, expected them to last to the end: begin again to go on"


class Threads:
    """Threads of this process, with one job each: a delayed object of dask, or a function without arguments."""

    dashboard: str | None = None
    alive = True

    def __init__(self, n_threads: int) -> None:
        self.at_once = n_threads
        self._pool = ThreadPoolExecutor(n_threads)

    def submit(self, job: Any) -> Any:
        """Begin a job in one of the threads; return its future."""
        return self._pool.submit(job.compute, scheduler="synchronous") if is_dask(job) else self._pool.submit(job)

    def drop(self, futures: Iterable[Any]) -> None:
        """Forget jobs that have not begun, and wait for the others."""
        wait([future for future in futures if not future.cancel()])


class Cluster:
    """The workers of a scheduler, used as `Threads` are."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.dashboard: str | None = client.dashboard_link

    @property
    def at_once(self) -> int:
        """One job per thread, and one more to begin when the first is done; workers may come and go."""
        return 2 * max(1, self._threads())

    @property
    def alive(self) -> bool:
        """Whether the scheduler knows of a worker."""
        return self._threads() > 0

    def _threads(self) -> int:
        """Of all workers."""
        try:
            if not self._closed:
                return sum(self._client.nthreads().values())
        except OSError:  # nobody answers
            pass
        raise InputError(CUT_OFF)

    @property
    def _closed(self) -> bool:
        return self._client.status in ("closing", "closed")

    def submit(self, job: Any) -> Any:
        """Send it to the scheduler."""
        return self._client.compute(job) if is_dask(job) else self._client.submit(job, pure=False)

    def drop(self, futures: Iterable[Any]) -> None:
        """Cancel them."""
        if not self._closed:
            self._client.cancel(list(futures), force=True)


Workers: TypeAlias = Threads | Cluster


@contextmanager
def workers(scheduler: Any = None, n_threads: int | None = None) -> Iterator[Workers]:
    """Workers by the address of their scheduler, or by a Client of dask; by default, threads of this process."""
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
    """A client, where there is a scheduler with a worker."""
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
    """Every task and its future when it is done, in the order of their ends; ``make`` gives the job of a task.

    Jobs whose workers were lost begin again.  To be closed by those who may leave before the end.
    """
    waiting, lost = iter(tasks), Counter[Task]()
    under_way: set[Any] = set()  # a scheduler forgets what nobody holds
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
    """The next that is done, however long it takes, as long as there is somebody to do it."""
    were_alive = True
    while True:
        with suppress(Empty):
            return done.get(timeout=FIRST_WORKER_SECONDS)
        are_alive = crew.alive
        if not (were_alive or are_alive):
            raise InputError("the scheduler has no workers any more, expected at least one: begin again to go on")
        were_alive = are_alive


def _lost(future: Any) -> bool:
    """Whether the workers that had it died."""
    return getattr(future, "status", None) == "error" and type(future.exception()).__name__ == "KilledWorker"


def value_of(future: Any) -> Any:
    """What a job returned, or its error; a job that nobody will do any more is the scheduler's end."""
    try:
        return future.result()
    except CancelledError:
        raise InputError(CUT_OFF) from None
