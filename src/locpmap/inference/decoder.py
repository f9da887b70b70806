"""The contract of a decoder, and the one loop that runs them all.

A decoder is a frozen dataclass of options with three methods: ``init`` makes the state, ``step`` advances it by
one sweep or one round of samples and says how far it is, ``finish`` reads the answer off.  Budgets, progress,
stopping and timing live in :func:`drive` and nowhere else.
"""

from __future__ import annotations

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from locpmap.arrays import Restore, dtype_beside, namespace, wait_for_device
from locpmap.errors import InputError, InputTypeError, whole_number
from locpmap.kernels import Backend, Model
from locpmap.kernels.threads import Threads, ranges
from locpmap.noise import Key
from locpmap.potentials import Potentials
from locpmap.result import BoundKind, Status

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Problem:
    """What a decoder works on."""

    potentials: Potentials
    kernels: Backend
    threads: Threads
    key: Key
    first_image: int = 0

    @property
    def model(self) -> Model:
        """The flat arrays."""
        return self.potentials.model

    def close(self) -> None:
        """Let the threads end."""
        self.threads.close()

    @property
    def sweeps_per_step(self) -> int:
        """Sweeps before a decoder asks whether it has converged: on a GPU that question makes everything wait."""
        return max(1, min(64, 2**33 // self.potentials.unary.numel())) if self.kernels.device else 1

    def empty(self, shape: tuple[int, ...], dtype: Any, room: int | None = None) -> Any:
        """A new array beside the unaries, with anything in it; a tensor's last of three axes may have more room."""
        unary = self.potentials.unary
        if room is not None and room > shape[2]:
            strides = (shape[1] * room, room, 1)
            return namespace(unary).empty_strided(shape, strides, dtype=dtype_beside(unary, dtype), device=unary.device)
        return namespace(unary).empty(shape, dtype=dtype_beside(unary, dtype), device=unary.device)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A new array beside the unaries, of zeros."""
        unary = self.potentials.unary
        return namespace(unary).zeros(shape, dtype=dtype_beside(unary, dtype), device=unary.device)

    def sweep(self, kernel: Callable[..., Any], *state: Any) -> list[Any]:
        """Run ``kernel(model, *state, lo, hi, begin, stop)`` once over every image and site.

        Images lo..hi and positions begin..stop of ``model.order``.  Many images: each thread takes some of them
        and all sites.  Few: the threads share the sites of one colour class after another.
        """
        model, n_images = self.model, self.potentials.n_images
        classes = list(zip(model.class_ptr[:-1].tolist(), model.class_ptr[1:].tolist(), strict=True))
        if n_images >= self.threads.n_threads:
            whole = (0, self.potentials.n_sites)
            jobs = [(model, *state, lo, hi, *whole) for lo, hi in ranges(n_images, self.threads.n_threads)]
            return self.threads.map(kernel, jobs)
        answers = []
        for begin, stop in classes:
            parts = [(begin + a, begin + b) for a, b in ranges(stop - begin, self.threads.n_threads)]
            answers += self.threads.map(kernel, [(model, *state, 0, n_images, a, b) for a, b in parts])
        return answers


class Step(NamedTuple):
    """How far a run is after a step."""

    done: int
    total: int
    converged: bool = False


@dataclass
class Climbs:
    """The sweeps of many climbs, which wait for the device that makes them until they are asked for."""

    sweeps: list[Any]  # int arrays of any shape
    max_sweeps: int

    def read(self) -> tuple[float, bool]:
        """Their mean, and whether some climb was cut short."""
        sweeps = np.concatenate([Restore()(part).ravel() for part in self.sweeps])
        return float(sweeps.mean()), bool(sweeps.max() >= self.max_sweeps)


@dataclass
class Outcome:
    """A decoder's answer in flat arrays, of the kind of the potentials'."""

    labels: Any  # (N, S)
    probability: Any = None  # (N, S, L)
    n_sweeps: float = 0
    climbs: Climbs | None = None  # instead of n_sweeps, for those that climb
    n_samples: int = 0
    noise: str | None = None
    log_partition: Any = None  # (N,)
    log_partition_kind: BoundKind | None = None
    samples: Any = None  # (M, N, S)
    status: Status | None = None  # where the decoder knows more than the loop


class Decoder(ABC):
    """Options of one method; see the module's docstring."""

    name: ClassVar[str]
    on_gpu: ClassVar[bool] = False  # whether there are kernels for it in Triton
    at_end: ClassVar[Status] = Status.MAX_SWEEPS  # what it means that `done` reached `total`

    @abstractmethod
    def init(self, problem: Problem) -> Any:
        """The state before the first step; refuses models that the method cannot take."""

    @abstractmethod
    def step(self, problem: Problem, state: Any) -> Step:
        """Advance the state in place."""

    @abstractmethod
    def finish(self, problem: Problem, state: Any) -> Outcome:
        """The answer so far."""


def drive(
    decoder: Decoder, problem: Problem, max_seconds: float | None, progress: Progress | None
) -> tuple[Outcome, Status]:
    """Run to convergence, to the end or to the time limit; at least one step is made."""
    began = time.perf_counter()
    state = decoder.init(problem)
    status: Status | None = None
    while status is None:
        step = decoder.step(problem, state)
        if progress is not None:
            progress(step.done, step.total)
        if step.converged:
            status = Status.CONVERGED
        elif step.done >= step.total:
            status = decoder.at_end
        elif max_seconds is not None:
            wait_for_device(problem.potentials.unary)
            if time.perf_counter() - began >= max_seconds:
                status = Status.MAX_SECONDS
    outcome = decoder.finish(problem, state)
    if outcome.status is not None and status is not Status.MAX_SECONDS:
        status = outcome.status
    return outcome, status


def at_least(name: str, value: Any, least: int, most: int = 2**31 - 1) -> None:
    """Refuse what is not a whole number of at least ``least``, or beyond what kernels count to."""
    whole_number(name, value, least, most)


def checked(decoder: Decoder) -> Decoder:
    """The decoder with Python's own integers, for sums with NumPy's overflow (those of int8 beyond 127).

    Refuses what is neither true nor false where an option, judged by its default, is the one or the other.
    """
    for name in _flags(type(decoder)):
        value = getattr(decoder, name)
        if not isinstance(value, bool | np.bool_):
            raise InputTypeError(f"{name} is {value!r}, expected True or False")
    whole = {name: int(value) for name, value in vars(decoder).items() if isinstance(value, np.integer)}
    return dataclasses.replace(decoder, **whole) if whole else decoder  # type: ignore[type-var]


@cache
def _flags(kind: type[Decoder]) -> list[str]:
    return [option.name for option in dataclasses.fields(kind) if isinstance(option.default, bool)]  # type: ignore[arg-type]


def within(name: str, value: Any, low: float, high: float = np.inf, *, open_low: bool = False) -> None:
    """Refuse what is not a number between low and high (inclusive, unless ``open_low``)."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputTypeError(f"{name} is {value!r}, expected a number")
    try:
        number = float(value)
    except OverflowError:  # a whole number beyond all floats
        number = np.inf
    if not (low < number if open_low else low <= number) or not number <= high or math.isinf(number):
        bound = f"above {low:g}" if open_low else f"at least {low:g}"
        limit = f" and at most {high:g}" if high < np.inf else ""
        raise InputError(f"{name} is {value}, expected a number {bound}{limit}")
