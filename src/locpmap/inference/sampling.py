"""What decoders that draw many labellings share: starts, rounds of samples, votes and conditional probabilities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from locpmap.arrays import cast, namespace, of_images, place_beside
from locpmap.errors import InputError
from locpmap.inference.decoder import Climbs, Decoder, Outcome, Problem, Step
from locpmap.inference.directions import direction_weights, model_of_images, takes_directions
from locpmap.inference.memory import out_of_memory
from locpmap.kernels import ON_GPU
from locpmap.kernels.perturbation import GIVEN
from locpmap.kernels.reference.conditionals import UNIT
from locpmap.kernels.threads import ranges
from locpmap.potentials import Potentials
from locpmap.result import Status

Array = npt.NDArray[Any]

# Draw samples first .. first + count of images lo .. hi: labels (hi - lo, S, count), or words (hi - lo, S) with a bit
# per sample, and the sweeps of each climb (hi - lo, count).
Draw = Callable[[int, int, int, int], tuple[Array, Array]]
Job = tuple[int, int, int, int]  # its arguments

# A round of samples holds no more than this beside twice the unaries, so that memory does not grow with the number of
# samples; no more work than this, so that progress and time limits have a say; and no more samples than a machine word
# has bits.
ROUND_BYTES = 48 << 20
ROUND_WORK = 1 << 28
ROUND_SAMPLES = 64
MAX_ITEMS = 2**31 - 2**16  # sites times samples of an image, beyond which kernels on a GPU count in 64 bits, slower
MAX_AT_ONCE = 255  # samples that a kernel on a GPU makes shares of without totals
MAX_GRID_LABELS = 32  # of conditional probabilities on a GPU, a lane of which holds those of a site
QUANTUM = 8  # samples are split at multiples of this, since up to eight of them share a call of Philox


def parse_start(start: Any, problem: Problem, names: dict[str, int]) -> tuple[int, Array]:
    """The start's code and, for given labels, the labels (N, S); otherwise an empty array."""
    if isinstance(start, str):
        if start not in names:
            raise InputError(f"start is {start!r}, expected {' or '.join(map(repr, names))}, or an array of labels")
        return names[start], nothing(problem.potentials.unary.device)
    unary = problem.potentials.unary
    # One layout for all callers: kernels compile once.
    given = place_beside(unary, np.array(problem.potentials.flat_labels(start, "start"), order="C"))
    take = getattr(namespace(unary), "take_along_dim", None) or np.take_along_axis
    if (take(unary, given[:, :, None], 2) == -np.inf).any():
        raise InputError("start holds a label that the unary forbids (-inf), expected allowed labels")
    return GIVEN, given


@cache
def nothing(device: Any) -> Any:
    """No labels, (0, 0), in the type that kernels take for given ones: for climbs that begin elsewhere."""
    xp = np if device == "cpu" else import_module("torch")
    return xp.empty((0, 0), dtype=xp.int64, device=device)


class Sampler(Decoder):
    """A decoder that draws ``n_samples`` labellings."""

    at_end: ClassVar[Status] = Status.COMPLETE
    n_samples: int

    @abstractmethod
    def draw(self, problem: Problem, state: Any, most: int, *, counted: bool, keep: bool) -> Any:
        """Draw the next labellings, at most so many; return them, (R, N, S), at least one, if they are to be kept."""


class TallySampler(Sampler):
    """A sampler whose state is a `Tally`."""

    keep_samples: bool = False

    def step(self, problem: Problem, state: Tally) -> Step:
        kept = self.draw(problem, state, self.n_samples - state.n_samples, counted=True, keep=self.keep_samples)
        if self.keep_samples:
            state.kept.append(kept)
        return Step(state.n_samples, self.n_samples)

    def draw(self, problem: Problem, state: Tally, most: int, *, counted: bool, keep: bool) -> Any:
        return state.advance(problem, most, counted=counted, keep=keep)

    def finish(self, problem: Problem, state: Tally) -> Outcome:
        return state.outcome(problem, noise=self._noise(problem.potentials))

    def _noise(self, potentials: Potentials) -> str | None:
        """Name the noise's scheme: a property of the model, never of the backend."""
        return "plain"


@dataclass
class Tally:
    """Running totals over samples; nothing here grows with their number except ``kept``."""

    draw: Draw
    max_sweeps: int
    conditional: bool  # whether `totals` adds up conditional probabilities or votes
    unit: str  # the type of `totals`
    at_once: int  # samples that need no totals if they are drawn together, or 0
    totals: Any = None  # (N, S, L): votes, in as few bytes as the samples allow, or int64 in units of 2^-40
    drawn: Any = None  # (N, S, R): all samples, in place of totals
    n_samples: int = 0
    sweeps: list[Any] = field(default_factory=list)  # of every climb, per draw
    kept: list[Any] = field(default_factory=list)  # (R, N, S) per round, where samples are to be returned

    @classmethod
    def start(
        cls,
        problem: Problem,
        draw: Draw,
        max_sweeps: int,
        max_samples: int,
        *,
        conditional: bool = False,
    ) -> Tally:
        """Start with nothing drawn; ``max_samples`` bounds what will be."""
        votes = "int32" if problem.kernels.device else np.min_scalar_type(max_samples).name
        few = problem.kernels.name == ON_GPU and not conditional and max_samples <= MAX_AT_ONCE
        unit, at_once = "int64" if conditional else votes, max_samples if few else 0
        return cls(draw, max_sweeps, conditional, unit, at_once)

    def advance(self, problem: Problem, most: int, *, counted: bool = True, keep: bool = False) -> Any:
        """Draw the next samples of every image, at most so many and no more than memory allows.

        Add them up if they are ``counted``, and return them, (R, N, S) int16, if they are to be kept.
        """
        n_images, n_sites, _ = problem.potentials.unary.shape
        count, per_chunk = round_sizes(problem, most, self.unit)
        kept = problem.empty((n_images, n_sites, count), "int16") if keep else None
        for lo in range(0, n_images, per_chunk):
            self._chunk(problem, (lo, min(lo + per_chunk, n_images), self.n_samples, count), counted, kept)
        self.n_samples += count
        return None if kept is None else namespace(kept).moveaxis(kept, 2, 0)

    def _chunk(self, problem: Problem, part: Job, counted: bool, kept: Any) -> None:
        """Images lo..hi: the threads share the images or, where these are too few, the samples."""
        lo, hi, first, count = part
        n_threads = problem.threads.n_threads
        if n_threads == 1:
            jobs = [(lo, hi, first, count)]
        elif hi - lo >= n_threads:
            jobs = [(lo + a, lo + b, first, count) for a, b in ranges(hi - lo, n_threads)]
        else:
            parts = [(QUANTUM * a, min(QUANTUM * b, count)) for a, b in ranges(-(-count // QUANTUM), n_threads)]
            jobs = [(lo, hi, first + a, b - a) for a, b in parts]
        without_totals = part == (0, problem.potentials.n_images, 0, self.at_once)
        if self.totals is None and counted and not without_totals:
            self.totals = problem.zeros(problem.potentials.unary.shape, self.unit)
        drawn = None
        try:
            drawn = problem.threads.map(self.draw, jobs)
        except RuntimeError as error:
            halves = halved(lo, hi, first, count)
            if not out_of_memory(error) or not halves:
                raise
        if drawn is None:  # out of the handler, which keeps what the failed attempt held
            for half in halves:  # noise does not know of chunks, so the samples stay the same
                self._chunk(problem, half, counted, kept)
            return

        def add(begin: int, stop: int) -> None:
            for job, (labels, _) in zip(jobs, drawn, strict=True):
                self._add(problem, labels, job, begin, stop)

        if without_totals:
            ((self.drawn, _),) = drawn  # a GPU has one thread
        elif counted:
            problem.threads.map(add, ranges(problem.potentials.n_sites, n_threads))
        for job, (labels, sweeps) in zip(jobs, drawn, strict=True):
            self.sweeps.append(sweeps)
            if kept is not None:
                at = job[2] - self.n_samples
                kept[job[0] : job[1], :, at : at + job[3]] = _unpacked(labels, job[3])

    def _add(self, problem: Problem, labels: Array, job: Job, begin: int, stop: int) -> None:
        """Add up what a job drew at sites begin..stop: where memory is short, half of them after the other.

        Kernels add all or nothing, so nothing counts twice; and nothing is drawn again, which would.
        """
        lo, hi, _, count = job
        totals = of_images(self.totals, lo, hi)
        try:
            if labels.ndim == 2 and self.conditional:
                problem.kernels.bit_conditionals(problem.model, labels, count, totals, lo, begin, stop)
            elif labels.ndim == 2:
                problem.kernels.bit_votes(labels, count, totals, begin, stop)
            elif self.conditional and _by_grid(problem):
                weights = direction_weights(problem.potentials, problem.potentials.unary.dtype)
                model = model_of_images(problem.potentials, weights, lo, hi)
                problem.kernels.grid_conditionals(*model, labels, totals, begin, stop)
            elif self.conditional:
                problem.kernels.conditionals(problem.model, labels, totals, lo, begin, stop)
            else:
                problem.kernels.votes(labels, totals, begin, stop)
            return
        except RuntimeError as error:
            if not out_of_memory(error) or stop - begin < 2:
                raise
        middle = (begin + stop) // 2
        self._add(problem, labels, job, begin, middle)
        self._add(problem, labels, job, middle, stop)

    def outcome(self, problem: Problem, **more: Any) -> Outcome:
        """Labels by majority (the smallest label of a tie) and shares of the samples."""
        dtype = problem.potentials.unary.dtype
        labels = None
        if self.drawn is not None:
            shape = problem.potentials.unary.shape
            probability, labels = problem.empty(shape, dtype), problem.empty(shape[:2], "int64")
            problem.kernels.shares(self.drawn, probability, labels)
        elif self.conditional:
            probability = cast(cast(self.totals, "float64") / (UNIT * self.n_samples), dtype)
        elif str(dtype) == "torch.float32":  # what torch divides whole numbers to, in one pass
            probability = self.totals / self.n_samples
        else:
            probability = cast(self.totals, dtype)
            probability /= self.n_samples
        xp = namespace(probability)
        return Outcome(
            labels=probability.argmax(axis=2) if labels is None else labels,
            probability=probability,
            climbs=Climbs(self.sweeps, self.max_sweeps),
            n_samples=self.n_samples,
            samples=xp.concatenate(self.kept) if self.kept else None,
            **more,
        )


def _unpacked(labels: Array, count: int) -> Array:
    """Return labels (N, S, count), also of words (N, S) with a bit per sample."""
    if labels.ndim == 3:
        return labels
    return (labels[:, :, None] >> np.arange(count, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)


def _by_grid(problem: Problem) -> bool:
    """Whether the kernel for grids can serve, which needs no list of edges."""
    few = problem.potentials.n_labels <= MAX_GRID_LABELS
    return few and problem.kernels.name == ON_GPU and takes_directions(problem.potentials)


def round_sizes(problem: Problem, most: int, unit: str) -> tuple[int, int]:
    """How many samples a round draws, at most so many, and of how many images at a time, beside totals of a type."""
    unary = problem.potentials.unary
    n_images, n_sites, n_labels = unary.shape
    if problem.kernels.device:
        # A climb holds the perturbed scores of all its samples, and what they were made of.
        room, marks, limit = gpu_room(unary.device), 0, MAX_ITEMS // n_sites
        per_site = (n_labels + 2) * unary.itemsize
    else:
        # A climb holds a label in every sample and, in each thread, a word of marks.
        held = unary.size * np.dtype(unit).itemsize
        room, marks = max(ROUND_BYTES + 2 * unary.nbytes - held, ROUND_BYTES), 8 * problem.threads.n_threads
        per_site, limit = 1, min(ROUND_WORK // (n_images * n_sites), ROUND_SAMPLES)
    affordable = min(room // (n_sites * per_site) - marks, limit)
    rounds = 1 if affordable >= most else -(-most // max(QUANTUM, affordable // QUANTUM * QUANTUM))
    # Rounds of about one size: a last one of a few samples would cost nearly as much as a full one.
    count = most if rounds == 1 else max(QUANTUM, most // (QUANTUM * rounds) * QUANTUM)
    return count, max(1, room // (n_sites * per_site * (count + marks)))


def gpu_room(device: Any) -> int:
    """Bytes that a round may take: a quarter of the GPU's memory."""
    return ROUND_BYTES if device.type != "cuda" else _memory_of(device) // 4


@cache
def _memory_of(device: Any) -> int:
    return int(import_module("torch").cuda.get_device_properties(device).total_memory)


def halved(lo: int, hi: int, first: int, count: int) -> list[Job]:
    """A chunk in two, by images or by samples; nothing where it is too small for that."""
    if hi - lo > 1:
        middle = (lo + hi) // 2
        return [(lo, middle, first, count), (middle, hi, first, count)]
    if count > QUANTUM:
        part = -(-count // (2 * QUANTUM)) * QUANTUM
        return [(lo, hi, first, part), (lo, hi, first + part, count - part)]
    return []
