"""A process per (system, task), so that thread pools, allocators and compilers do not meet.

The process warms up on a corner of the task (imports, compilers), notes its memory, makes one full run, whose peak
above that note is the system's own, and then repeats on request: the caller goes round the systems, so that whatever
else the machine is doing hits all of them alike.
"""

import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import peak, restart_peak
from benchmarks.peers import Run
from benchmarks.rows import BY_NAME
from benchmarks.tasks import Task

CORNER = 16


@dataclass(frozen=True)
class Clock:
    """What one run took: seconds on the wall, and seconds of processor over all threads, which bear a busy machine."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class FirstRun:
    """What the full run that follows the warm-up shows."""

    clock: Clock
    peak_bytes: int  # above the inputs and the imported packages
    accuracy: float


class Worker:
    """A system that waits, with its inputs loaded, to be told to run."""

    def __init__(self, row: str, task_file: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, row, task_file), daemon=True)
        self._process.start()
        other.close()
        self.first: FirstRun = self._receive()

    def run(self) -> Clock:
        """Time one more run."""
        self._pipe.send("run")
        clock: Clock = self._receive()
        return clock

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()

    def _receive(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"the process ended with status {self._process.exitcode}") from None
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(pipe: Connection, row: str, task_file: Path) -> None:
    try:
        task, prepare = Task.load(task_file), BY_NAME[row].prepare
        prepare(task.crop(CORNER))()
        before = restart_peak()
        run = prepare(task)
        clock, labels = _timed(run)
        pipe.send(FirstRun(clock, peak() - before, task.accuracy(labels)))
        while pipe.recv() == "run":
            pipe.send(_timed(run)[0])
    except EOFError:
        return
    except Exception as error:
        pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))


def _timed(run: Run) -> tuple[Clock, np.ndarray]:
    wall, cpu = time.perf_counter(), time.process_time()
    labels = run()
    return Clock(time.perf_counter() - wall, time.process_time() - cpu), labels
