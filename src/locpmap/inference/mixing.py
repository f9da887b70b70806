"""Mixing of Markov chains: whether several chains agree, and replica exchange between temperatures."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from locpmap.arrays import Array, namespace, place_like
from locpmap.inference.decoder import Problem
from locpmap.kernels.reference import noise
from locpmap.kernels.spec import Chain

MAX_R_HAT = 1.1  # above this, the status is NOT_MIXED
ROUNDING = 1e-20  # of squared differences of means


@dataclass
class Halves:
    """Totals of several chains at about half of their samples, for any number of samples.

    Totals are copied whenever the number of samples has doubled.  The last two copies include one after a third to two
    thirds of the samples.
    """

    marks: list[tuple[int, list[Any]]] = field(default_factory=list)  # samples per chain, totals (N, S, L) of each

    def note(self, n_samples: int, totals: list[Any]) -> None:
        """Copy the totals if the number of samples per chain has doubled since the last copy."""
        if n_samples >= (2 * self.marks[-1][0] if self.marks else 1):
            self.marks = [*self.marks[-1:], (n_samples, [total + 0 for total in totals])]

    def read(self, n_samples: int, totals: list[Any]) -> tuple[Array, Array]:
        """Return R-hat and the effective number of samples of each image, (N,), from the totals at the end."""
        if n_samples < 4:
            unknown = totals[0].sum(axis=(1, 2)) * 0
            return unknown + np.inf, unknown
        first, halfway = min(self.marks, key=lambda mark: abs(2 * mark[0] - n_samples))
        second = n_samples - first
        parts = [part / first for part in halfway]
        parts += [(end - part) / second for end, part in zip(totals, halfway, strict=True)]
        return agreement(namespace(totals[0]).stack(parts), n_samples / 2)


def agreement(means: Array, length: float) -> tuple[Array, Array]:
    """Return R-hat and the effective number of samples of each image from means of J parts of chains, (J, N, S, L).

    A part consists of ``length`` samples; its means are fractions of samples with a label, of variance ``p(1 - p)``
    each.  R-hat is the largest over sites and labels (Gelman and Rubin 1992).  The effective number is that of
    independent samples whose fractions vary as much, in the mean over sites and labels, as those of the parts.  Means
    of conditional probabilities vary less than fractions: then R-hat is smaller, and the effective number larger.
    """
    n_parts, xp = len(means), namespace(means)
    mean = means.mean(0)
    between = ((means - mean) ** 2).sum(0) / (n_parts - 1)
    within = (means * (1 - means)).clip(0).mean(0) * length / (length - 1)
    ratio = between / xp.where(within > 0, within, 1)
    ratio = xp.where((within == 0) & (between > ROUNDING), np.inf, ratio)  # chains that never move, at different labels
    r_hat = (1 - 1 / length + xp.amax(ratio, (1, 2))) ** 0.5
    spread, varies = (mean * (1 - mean)).sum((1, 2)), between.sum((1, 2))
    known = varies > ROUNDING
    return r_hat, xp.where(known, n_parts * spread / xp.where(known, varies, 1), n_parts * length)


def exchange(problem: Problem, ladders: list[list[Chain]]) -> None:
    """Exchange labels between neighbouring temperatures, separately for each image.

    Pairs begin at even and odd temperatures in turn.  Labels y and z at temperatures s < t are exchanged with
    probability ``min(1, exp((1/s - 1/t) (θ(z) - θ(y))))``, which leaves the joint distribution unchanged.  The uniform
    is word 1 of stream CHAIN at the sweep so far and the number of the lower temperature as the site.
    """
    sweep = ladders[0][0].sweeps
    images = problem.first_image + np.arange(problem.potentials.n_images)[:, None]
    steps = np.tile(np.arange(len(ladders[0])), (len(images), 1))  # (N, temperatures)
    for ladder in ladders:
        scores = [problem.kernels.score(problem.view, chain.labels) for chain in ladder]
        words = noise.words(ladder[0].key, noise.CHAIN, images, sweep, steps)[1]
        log_u = place_like(scores[0], np.log(noise.uniform(words)))
        for t in range(sweep % 2, len(ladder) - 1, 2):
            lower, upper = ladder[t], ladder[t + 1]
            colder = 1 / lower.temperature - 1 / upper.temperature
            swap = (log_u[:, t] + colder * scores[t] < colder * scores[t + 1])[:, None]  # scores may be -inf
            where = namespace(log_u).where
            lower.labels, upper.labels = (
                where(swap, upper.labels, lower.labels),
                where(swap, lower.labels, upper.labels),
            )
