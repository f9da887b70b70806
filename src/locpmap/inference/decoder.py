"""The interface of decoders, and the loop that runs them.

A decoder is a frozen dataclass of options with three methods.  ``init`` creates the state.  ``step`` advances the state
by some sweeps or one round of samples and reports progress.  ``finish`` returns the outcome.  The function
:func:`drive` handles time limits, progress and stopping for all decoders.
"""

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from locpmap.arrays import Array, Restore, dtype_like, namespace, wait_for_device
from locpmap.kernels.model import Model
from locpmap.kernels.spec import Kernels
from locpmap.noise import Key
from locpmap.potentials import Potentials
from locpmap.result import BoundKind, Status
from locpmap.views import View

Progress = Callable[[int, int], None]

IMPOSSIBLE = "pairwise forbids (-inf) every labelling, expected a model with at least one that is allowed"


@dataclass(frozen=True)
class Problem:
    """Input of a decoder: potentials, kernels and the key of the noise."""

    potentials: Potentials
    kernels: Kernels
    key: Key
    first_image: int = 0

    @property
    def view(self) -> View:
        """Model in the form that kernels read."""
        return self.potentials.view

    @property
    def model(self) -> Model:
        """Flat arrays, for decoders that read them on the host."""
        return self.potentials.model

    @property
    def sweeps_per_step(self) -> int:
        """Number of sweeps between two checks of convergence."""
        return self.kernels.sweeps_per_step(self.view)

    def close(self) -> None:
        """Stop the threads of the backend."""
        self.kernels.close()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new uninitialised array on the device of the unaries."""
        unary = self.potentials.unary
        return namespace(unary).empty(shape, dtype=dtype_like(unary, dtype), device=unary.device)

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new array of zeros on the device of the unaries."""
        unary = self.potentials.unary
        return namespace(unary).zeros(shape, dtype=dtype_like(unary, dtype), device=unary.device)


class Step(NamedTuple):
    """Progress of a run after a step."""

    done: int
    total: int
    converged: bool = False


@dataclass
class Climbs:
    """Numbers of sweeps of many climbs.  Reading them waits for the device."""

    sweeps: list[Any]  # int arrays of any shape
    max_sweeps: int

    def read(self) -> tuple[float, bool]:
        """Return the mean number of sweeps, and whether a climb stopped at ``max_sweeps``."""
        sweeps = np.concatenate([Restore()(part).ravel() for part in self.sweeps])
        return float(sweeps.mean()), bool(sweeps.max() >= self.max_sweeps)


@dataclass
class Outcome:
    """Result of a decoder in flat arrays, of the same kind as the potentials."""

    labels: Any  # (N, S)
    probability: Any = None  # (N, S, L)
    n_sweeps: float = 0
    climbs: Climbs | None = None  # replaces n_sweeps for decoders that climb
    n_samples: int = 0
    noise: str | None = None
    log_partition: Any = None  # (N,)
    log_partition_kind: BoundKind | None = None
    log_partition_error: Any = None  # (N,)
    bound: Any = None  # (N,)
    samples: Any = None  # (M, N, S)
    r_hat: Any = None  # (N,)
    n_effective: Any = None  # (N,)
    status: Status | None = None  # overrides the status of the loop


@dataclass
class Incumbent:
    """Best labels (N, S) found so far, separately for each image, and their scores (N,)."""

    labels: Array
    score: Array

    @classmethod
    def start(cls, problem: Problem) -> Self:
        """Return the argmax of the unaries with score -inf, so that any allowed labelling replaces it."""
        unary = problem.potentials.unary
        return cls(unary.argmax(axis=2), problem.zeros((len(unary),), "float64") - np.inf)

    def update(self, problem: Problem, labels: Array) -> None:
        """Replace the labels of images whose score improves, O(S + E).  ``labels`` may be changed afterwards."""
        score = problem.kernels.score(problem.view, labels)
        better = score > self.score
        where = namespace(score).where
        self.score = where(better, score, self.score)
        self.labels = where(better[:, None], labels, self.labels)


class Locality(NamedTuple):
    """Distance up to which a site depends on other sites, which determines the halo of tiles."""

    n_sweeps: int
    block_sizes: tuple[tuple[int, ...], ...] = ((1, 1),)  # ([planes,] rows, columns) of a block, per family of a sweep
    reads_neighbours: bool = False  # whether the result depends on the neighbours' final labels


class Decoder(ABC):
    """Base class of decoders; see the module's docstring."""

    name: ClassVar[str]
    on_gpu: ClassVar[bool] = False  # whether all its work is done by kernels
    has_probability: ClassVar[bool] = True
    at_end: ClassVar[Status] = Status.MAX_SWEEPS  # status when `done` reaches `total`
    unbounded: ClassVar[str] = "it solves the whole raster in one step"  # reason, if locality() is None

    @abstractmethod
    def init(self, problem: Problem) -> Any:
        """Return the state before the first step, or raise if the method cannot decode the model."""

    @abstractmethod
    def step(self, problem: Problem, state: Any) -> Step:
        """Advance the state in place."""

    @abstractmethod
    def finish(self, problem: Problem, state: Any) -> Outcome:
        """Return the outcome so far."""

    def work(self, n_scores: int) -> int:
        """Return the number of score updates for a model of ``n_scores``, which decides whether a GPU pays off."""
        return n_scores

    def locality(self) -> Locality | None:
        """Return how far a site depends on other sites, or None if the distance is unbounded."""
        return None

    def separable(self, *, timed: bool) -> bool:
        """Return whether decoding halves of a batch gives the same result, with or without a time limit."""
        return isinstance(getattr(self, "start", ""), str)  # a start array covers the whole batch


def drive(
    decoder: Decoder, problem: Problem, max_seconds: float | None, progress: Progress | None
) -> tuple[Outcome, Status]:
    """Run at least one step of a decoder, until it converges, completes or reaches the time limit."""
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
    of_chains = outcome.status in (Status.NOT_MIXED, Status.BURN_IN)
    if outcome.status is not None and (of_chains or status is not Status.MAX_SECONDS):
        status = outcome.status
    return outcome, status


def checked(decoder: Decoder) -> Decoder:
    """Return the decoder with NumPy's integers converted to `int`, whose sums never overflow."""
    whole = {name: int(value) for name, value in vars(decoder).items() if isinstance(value, np.integer)}
    return dataclasses.replace(decoder, **whole) if whole else decoder  # type: ignore[type-var]
