"""One process per system and task, so that thread pools, allocators and compilers do not interfere.

A process warms up on a corner of the task (imports, compilation) and resets its peak memory. It then performs one full
run, which gives the system's peak memory, and further runs on request. The caller alternates between the systems, so
that other programs on the machine affect all of them equally.
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
    """Elapsed seconds of one run, and processor seconds over all threads, which depend less on other programs."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class FirstRun:
    """Measurements of the first full run after the warm-up."""

    clock: Clock
    peak_bytes: int  # above the inputs and the imported packages
    accuracy: float


class Worker:
    """A process with a system and its loaded inputs, which runs on request."""

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
