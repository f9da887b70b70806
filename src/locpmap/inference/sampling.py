"""Components of decoders that draw samples: starting labels, rounds of samples, and totals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from locpmap.arrays import Array, copy_by_sample, namespace, place_like
from locpmap.errors import InputError, true_or_false, whole_number
from locpmap.inference.decoder import Climbs, Decoder, Outcome, Problem, Step
from locpmap.inference.out_of_memory import in_parts
from locpmap.kernels.model import QUANTUM
from locpmap.kernels.perturbation import GIVEN
from locpmap.kernels.spec import Drawn, ModelView, Span
from locpmap.potentials import Potentials
from locpmap.result import Status

Draw = Callable[[Span], Drawn]


def parse_start(start: Any, problem: Problem, names: dict[str, int]) -> tuple[int, Array | None]:
    """Return the code of the start in kernels and, for an array, its labels (N, S)."""
    if isinstance(start, str):
        if start not in names:
            raise InputError(f"start is {start!r}, expected {' or '.join(map(repr, names))}, or an array of labels")
        return names[start], None
    unary = problem.potentials.unary
    # One memory layout for all callers, so that kernels compile only once.
    given = place_like(unary, np.array(problem.potentials.flat_labels(start, "start"), order="C"))
    take = getattr(namespace(unary), "take_along_dim", None) or np.take_along_axis
    if (take(unary, given[:, :, None], 2) == -np.inf).any():
        raise InputError("start contains a label that the unary forbids (-inf), expected allowed labels")
    return GIVEN, given


class Sampler(Decoder):
    """Base class of decoders that draw ``n_samples`` labellings."""

    at_end: ClassVar[Status] = Status.COMPLETE
    n_samples: int
    keep_samples: bool = False

    def __post_init__(self) -> None:
        whole_number("n_samples", self.n_samples, 1)
        true_or_false("keep_samples", self.keep_samples)

    def work(self, n_scores: int) -> int:
        return n_scores * self.n_samples

    def separable(self, *, timed: bool) -> bool:
        return not timed and super().separable(timed=timed)

    @abstractmethod
    def draw(self, problem: Problem, state: Any, most: int, *, counted: bool, keep: bool) -> Any:
        """Draw 1 to ``most`` labellings, and add them up if ``counted``; return them, (R, N, S), if ``keep``."""


class TallySampler(Sampler):
    """Base class of samplers whose state is a `Tally`."""

    def step(self, problem: Problem, state: Tally) -> Step:
        samples = self.draw(problem, state, self.n_samples - state.n_samples, counted=True, keep=self.keep_samples)
        if self.keep_samples:
            state.samples.append(samples)
        return Step(state.n_samples, self.n_samples)

    def draw(self, problem: Problem, state: Tally, most: int, *, counted: bool, keep: bool) -> Any:
        n_images, n_sites, _ = problem.potentials.unary.shape
        most = 1 if counted and state.view_of is not None else most
        count, per_chunk = problem.kernels.round_size(problem.view, state.totals, most)
        samples = problem.empty((count, n_images, n_sites), "int16") if keep else None
        for lo in range(0, n_images, per_chunk):
            span = Span(lo, min(lo + per_chunk, n_images), state.n_samples, count)
            # Noise is keyed by image and sample, so splitting does not change the samples.
            for part, drawn in in_parts(lambda part: (part, state.draw(part)), span, halved):
                state.take(problem, part, drawn, counted, samples)
        state.n_samples += count
        return samples

    def finish(self, problem: Problem, state: Tally) -> Outcome:
        """Return the probabilities, and the labels of largest probability (the smallest label of a tie)."""
        probability, labels = problem.kernels.read_totals(problem.view, state.totals, state.n_samples)
        return Outcome(
            labels=labels,
            probability=probability,
            climbs=Climbs(state.sweeps, state.max_sweeps),
            n_samples=state.n_samples,
            samples=namespace(probability).concatenate(state.samples) if state.samples else None,
            noise=self._noise(problem.potentials),
        )

    def _noise(self, potentials: Potentials) -> str | None:
        """Return the noise scheme, which depends on the model but not on the backend."""
        return "plain"


@dataclass
class Tally:
    """Running totals over samples.  Memory grows with their number only if ``samples`` are stored."""

    draw: Draw
    max_sweeps: int
    totals: Any  # in the layout of the backend
    n_samples: int = 0
    sweeps: list[Any] = field(default_factory=list)  # sweeps of every climb, one array per draw
    samples: list[Any] = field(default_factory=list)  # (R, N, S) per round, if samples are returned
    view_of: Callable[[Span], ModelView] | None = None  # the model of one sample, if conditionals differ by sample

    def take(self, problem: Problem, part: Span, drawn: Drawn, counted: bool, samples: Any) -> None:
        """Count and store drawn samples.  A backend adds all sites of a part or none, so none counts twice."""
        self.sweeps += drawn.sweeps
        if samples is not None:  # before they are counted, which may release them
            at = part.first - self.n_samples
            copy_by_sample(drawn.labels(), samples[at : at + part.n_samples, part.lo : part.hi])
        if counted:
            view = problem.view if self.view_of is None else self.view_of(part)
            add = partial(problem.kernels.tally, view, drawn, self.totals)
            for _ in in_parts(lambda sites: add(*sites), (0, problem.potentials.n_sites), _halved_sites):
                pass


def halved(span: Span) -> list[Span]:
    """Split a span in two by images, or else by samples; return an empty list if it is too small."""
    lo, hi, first, count = span
    if hi - lo > 1:
        middle = (lo + hi) // 2
        return [Span(lo, middle, first, count), Span(middle, hi, first, count)]
    if count > QUANTUM:
        part = -(-count // (2 * QUANTUM)) * QUANTUM
        return [Span(lo, hi, first, part), Span(lo, hi, first + part, count - part)]
    return []


def _halved_sites(sites: tuple[int, int]) -> list[tuple[int, int]]:
    begin, stop = sites
    middle = (begin + stop) // 2
    return [(begin, middle), (middle, stop)] if stop - begin > 1 else []
