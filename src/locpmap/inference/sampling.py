"""What decoders that draw many labellings share: starts, rounds of samples, votes and conditional probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.errors import InputError
from locpmap.inference.decoder import Outcome, Problem
from locpmap.kernels.perturbation import GIVEN
from locpmap.kernels.reference.conditionals import UNIT
from locpmap.kernels.threads import ranges
from locpmap.result import Status

Array = npt.NDArray[Any]

# Draw samples first .. first + count of images lo .. hi: labels (hi - lo, S, count), or words (hi - lo, S) with a bit
# per sample, and the sweeps of each climb (hi - lo, count).
Draw = Callable[[int, int, int, int], tuple[Array, Array]]

# A round of samples holds no more than this beside twice the unaries, so that memory does not grow with the number of
# samples; no more work than this, so that progress and time limits have a say; and no more samples than a machine word
# has bits.
ROUND_BYTES = 48 << 20
ROUND_WORK = 1 << 28
ROUND_SAMPLES = 64
QUANTUM = 8  # samples are split at multiples of this, since up to eight of them share a call of Philox


def parse_start(start: Any, problem: Problem, names: dict[str, int]) -> tuple[int, Array]:
    """The start's code and, for given labels, the labels (N, S); otherwise an empty array."""
    if isinstance(start, str):
        if start not in names:
            raise InputError(f"start is {start!r}, expected {' or '.join(map(repr, names))}, or an array of labels")
        return names[start], np.zeros((0, 0), np.int64)
    given = problem.potentials.flat_labels(start, "start")
    if np.isneginf(np.take_along_axis(problem.potentials.unary, given[:, :, None], axis=2)).any():
        raise InputError("start holds a label that the unary forbids (-inf), expected allowed labels")
    return GIVEN, np.array(given, order="C")  # one layout for all callers: kernels compile once


@dataclass
class Tally:
    """Running totals over samples; nothing here grows with their number except ``kept``."""

    draw: Draw
    max_sweeps: int
    conditional: bool  # whether `totals` adds up conditional probabilities or votes
    totals: Array  # (N, S, L): votes, in as few bytes as the samples allow, or int64 in units of 2^-40
    kept: list[Array] | None  # (N, S, R) per round
    n_samples: int = 0
    sweeps: float = 0.0
    cut: bool = False  # whether a climb stopped at max_sweeps

    @classmethod
    def start(
        cls,
        problem: Problem,
        draw: Draw,
        max_sweeps: int,
        max_samples: int,
        *,
        conditional: bool = False,
        keep: bool = False,
    ) -> Tally:
        """Nothing drawn yet, and never more than ``max_samples``."""
        dtype = np.int64 if conditional else np.min_scalar_type(max_samples)
        totals = np.zeros(problem.potentials.unary.shape, dtype)
        return cls(draw, max_sweeps, conditional, totals, [] if keep else None)

    def advance(self, problem: Problem, most: int) -> None:
        """Draw the next samples of every image, at most so many and no more than memory allows, and add them up."""
        n_images, n_sites, _ = problem.potentials.unary.shape
        # Per site a climb holds a label in every sample and, in each thread, a word of marks.
        room = max(ROUND_BYTES + 2 * problem.potentials.unary.nbytes - self.totals.nbytes, ROUND_BYTES)
        marks = 8 * problem.threads.n_threads
        affordable = min(room // n_sites - marks, ROUND_WORK // (n_images * n_sites), ROUND_SAMPLES)
        rounds = 1 if affordable >= most else -(-most // max(QUANTUM, affordable // QUANTUM * QUANTUM))
        # Rounds of about one size: a last one of a few samples would cost nearly as much as a full one.
        count = most if rounds == 1 else max(QUANTUM, most // (QUANTUM * rounds) * QUANTUM)
        per_chunk = max(1, room // (n_sites * (count + marks)))
        chunks = [(lo, min(lo + per_chunk, n_images)) for lo in range(0, n_images, per_chunk)]
        drawn = [self._chunk(problem, lo, hi, count) for lo, hi in chunks]
        if self.kept is not None:
            self.kept.append(np.concatenate(drawn))
        self.n_samples += count

    def _chunk(self, problem: Problem, lo: int, hi: int, count: int) -> Array:
        """Images lo..hi: the threads share the images or, where these are too few, the samples."""
        n_threads = problem.threads.n_threads
        by_image = hi - lo >= n_threads
        if by_image:
            jobs = [(lo + a, lo + b, self.n_samples, count) for a, b in ranges(hi - lo, n_threads)]
        else:
            parts = [(QUANTUM * a, min(QUANTUM * b, count)) for a, b in ranges(-(-count // QUANTUM), n_threads)]
            jobs = [(lo, hi, self.n_samples + a, b - a) for a, b in parts]
        drawn = problem.threads.map(self.draw, jobs)

        def add(begin: int, stop: int) -> None:
            for job, (labels, _) in zip(jobs, drawn, strict=True):
                totals = self.totals[job[0] : job[1]]
                if labels.ndim == 2 and self.conditional:
                    problem.kernels.bit_conditionals(problem.model, labels, job[3], totals, job[0], begin, stop)
                elif labels.ndim == 2:
                    problem.kernels.bit_votes(labels, job[3], totals, begin, stop)
                elif self.conditional:
                    problem.kernels.conditionals(problem.model, labels, totals, job[0], begin, stop)
                else:
                    problem.kernels.votes(labels, totals, begin, stop)

        problem.threads.map(add, ranges(problem.potentials.n_sites, n_threads))
        for _, sweeps in drawn:
            self.sweeps += float(sweeps.sum())
            self.cut |= bool((sweeps >= self.max_sweeps).any())
        if self.kept is None:
            return np.empty(0)
        return np.concatenate([labels.astype(np.int16) for labels, _ in drawn], axis=0 if by_image else 2)

    def standard_error(self) -> float:
        """The largest Monte-Carlo standard error of any probability, with one vote each way added for caution."""
        counts = self.totals / UNIT if self.conditional else self.totals
        p = (counts + 1) / (self.n_samples + 2)
        return float(np.sqrt((p * (1 - p)).max() / self.n_samples))

    def outcome(self, problem: Problem, **more: Any) -> Outcome:
        """Labels by majority (the smallest label of a tie) and shares of the samples."""
        if self.conditional:
            probability = (self.totals / (UNIT * self.n_samples)).astype(problem.potentials.unary.dtype)
        else:
            probability = np.divide(self.totals, self.n_samples, dtype=problem.potentials.unary.dtype)
        return Outcome(
            labels=probability.argmax(axis=2),
            probability=probability,
            n_sweeps=self.sweeps / (self.n_samples * problem.potentials.n_images),
            n_samples=self.n_samples,
            samples=None if self.kept is None else np.moveaxis(np.concatenate(self.kept, axis=2), 2, 0),
            status=Status.CLIMBS_CUT if self.cut else None,
            **more,
        )
