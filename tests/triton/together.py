"""Run programs of a launch that wait for one another, also in Triton's interpreter, which runs them sequentially."""

from __future__ import annotations

import inspect
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from tests.triton.placing import DEVICE
from triton.runtime import interpreter

TIMEOUT = 60.0  # seconds to wait for a program that neither waits nor ends


def run_together(monkeypatch: pytest.MonkeyPatch, n_programs: int, *modules: ModuleType) -> None:
    """Give the launches of these modules ``n_programs`` programs.

    In the interpreter programs alternate: each runs until it waits, and continues when all others wait too.
    """
    for module in modules:
        monkeypatch.setattr(module, "resident_programs", lambda *_, **__: n_programs)
    if DEVICE != "cpu":
        return
    scheduler, start = Scheduler(), interpreter.GridExecutor.__init__

    def with_scheduler(executor: Any, *arguments: Any, **options: Any) -> None:
        start(executor, *arguments, **options)
        executor.fn = Launch(executor.fn, scheduler)

    monkeypatch.setattr(interpreter.GridExecutor, "__init__", with_scheduler)
    for module in modules:
        monkeypatch.setattr(module, "wait_for_all", scheduler.wait)


class Scheduler:
    """A scheduler of programs as threads, of which one runs at a time."""

    def __init__(self) -> None:
        self.back = threading.Semaphore(0)
        self.running: Program | None = None

    def wait(self, barrier: Any, turn: Any, n_programs: Any) -> None:
        """Replace ``wait_for_all``."""
        assert self.running is not None
        self.running.pause((as_int(barrier), as_int(turn)), as_int(n_programs))

    def run(self, programs: list[Program]) -> None:
        ready, barriers = deque(programs), defaultdict(list)
        while ready:
            self.running = program = ready.popleft()
            interpreter.interpreter_builder.set_grid_idx(*program.place)
            program.resume()
            assert self.back.acquire(timeout=TIMEOUT), f"program {program.place} neither waits nor ends"
            if program.error is not None:
                raise program.error
            if program.waits is not None:
                call, count = program.waits
                barriers[call].append(program)
                if len(barriers[call]) == count:
                    ready.extend(reversed(barriers.pop(call)))
        assert not barriers, f"programs wait for others that have ended: {sorted(barriers)}"


class Program:
    """One program of a launch, as a thread."""

    def __init__(self, place: tuple[int, ...], run: Callable[[], None], scheduler: Scheduler) -> None:
        self.place, self.scheduler = place, scheduler
        self.waits: tuple[tuple[int, int], int] | None = None
        self.error: BaseException | None = None
        self._go = threading.Semaphore(0)
        threading.Thread(target=self._work, args=(run,), daemon=True).start()

    def resume(self) -> None:
        self.waits = None
        self._go.release()

    def pause(self, call: tuple[int, int], count: int) -> None:
        self.waits = call, count
        self.scheduler.back.release()
        self._go.acquire()

    def _work(self, run: Callable[[], None]) -> None:
        self._go.acquire()
        try:
            run()
        except BaseException as error:
            self.error = error
        self.scheduler.back.release()


class Launch:
    """A kernel that the interpreter calls once per program: all programs start at the last call."""

    def __init__(self, kernel: Any, scheduler: Scheduler) -> None:
        self.kernel, self.scheduler = kernel, scheduler
        self.programs: list[Program] = []
        self.__signature__ = inspect.signature(kernel)
        for name in ("__name__", "__globals__", "__annotations__"):  # attributes that the interpreter reads
            setattr(self, name, getattr(kernel, name))

    def __call__(self, **arguments: Any) -> None:
        builder = interpreter.interpreter_builder
        self.programs.append(Program(builder.grid_idx, lambda: self.kernel(**arguments), self.scheduler))
        if all(at == size - 1 for at, size in zip(builder.grid_idx, builder.grid_dim, strict=True)):
            self.scheduler.run(self.programs)


def as_int(value: Any) -> int:
    """Return an integer that the interpreter may have wrapped in a tensor."""
    return int(value.handle.data.item()) if hasattr(value, "handle") else int(getattr(value, "value", value))
