"""The contract of a decoder, and the one loop that runs them all.

A decoder is a frozen dataclass of options with three methods: ``init`` makes the state, ``step`` advances it by
one sweep or one round of samples and says how far it is, ``finish`` reads the answer off.  Budgets, progress,
stopping and timing live in :func:`drive` and nowhere else.
"""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from locpmap.arrays import Restore, dtype_beside, namespace, wait_for_device
from locpmap.kernels.model import Model
from locpmap.kernels.spec import Kernels
from locpmap.noise import Key
from locpmap.potentials import Potentials
from locpmap.result import BoundKind, Status
from locpmap.views import View

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Problem:
    """What a decoder works on."""

    potentials: Potentials
    kernels: Kernels
    key: Key
    first_image: int = 0

    @property
    def view(self) -> View:
        """The model as kernels take it."""
        return self.potentials.view

    @property
    def model(self) -> Model:
        """The flat arrays, for decoders that read them on the host."""
        return self.potentials.model

    @property
    def sweeps_per_step(self) -> int:
        """Sweeps before a decoder asks whether it has converged."""
        return self.kernels.sweeps_per_step(self.view)

    def close(self) -> None:
        """End the backend's threads."""
        self.kernels.close()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array beside the unaries, with anything in it."""
        unary = self.potentials.unary
        return namespace(unary).empty(shape, dtype=dtype_beside(unary, dtype), device=unary.device)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new array beside the unaries, of zeros."""
        unary = self.potentials.unary
        return namespace(unary).zeros(shape, dtype=dtype_beside(unary, dtype), device=unary.device)


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


class Locality(NamedTuple):
    """How far a site's answer can depend on others: what tiles need to know."""

    n_sweeps: int
    block_sizes: tuple[tuple[int, int], ...] = ((1, 1),)  # rows and columns of the blocks that a sweep visits in turn
    reads_neighbours: bool = False  # whether the answer also depends on the final labels of the neighbours


class Decoder(ABC):
    """Options of one method; see the module's docstring."""

    name: ClassVar[str]
    on_gpu: ClassVar[bool] = False  # whether it runs by kernels alone
    has_probability: ClassVar[bool] = True
    at_end: ClassVar[Status] = Status.MAX_SWEEPS  # what it means that `done` reached `total`
    unbounded: ClassVar[str] = "it solves the whole raster at once"  # why tiles are refused, if they are

    @abstractmethod
    def init(self, problem: Problem) -> Any:
        """The state before the first step; refuses models that the method cannot take."""

    @abstractmethod
    def step(self, problem: Problem, state: Any) -> Step:
        """Advance the state in place."""

    @abstractmethod
    def finish(self, problem: Problem, state: Any) -> Outcome:
        """The answer so far."""

    def work(self, n_scores: int) -> int:
        """Return how often scores are visited in sweeps, for a model of so many: what decides whether a GPU pays."""
        return n_scores

    def locality(self) -> Locality | None:
        """Return how far a site's answer depends on others, or None where that has no bound."""
        return None

    def separable(self, *, timed: bool) -> bool:
        """Return whether halves of a batch give what the whole gives, with a time limit or without one."""
        return isinstance(getattr(self, "start", ""), str)  # given labels are those of the whole batch


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


def checked(decoder: Decoder) -> Decoder:
    """Return the decoder with NumPy's integers converted to `int`, whose sums never overflow."""
    whole = {name: int(value) for name, value in vars(decoder).items() if isinstance(value, np.integer)}
    return dataclasses.replace(decoder, **whole) if whole else decoder  # type: ignore[type-var]
