"""Perturbed unaries from the definition of the noise, and checks of climbs on them."""

from __future__ import annotations

import itertools

import numpy as np
from tests.oracles.models import Floats, Ints

from locpmap.arrays import frozen
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.perturbation import GIVEN, NONE, Perturbation
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.scores import local_scores, total_scores
from locpmap.noise import key_of
from locpmap.potentials import Potentials
from locpmap.result import Result

PERTURB = {"plain": noise.perturbed_plain, "lazy": noise.perturbed_lazy}
SLACK = 1e-9


def perturbed_unaries(
    pot: Potentials, scheme: str, n_samples: int, seed: int = 0, temperature: float = 1.0, first_image: int = 0
) -> Floats:
    """Return the perturbed unaries of each sample, (M, N, S, L), from the definition of the noise."""
    key, sites = key_of(seed), pot.structure.site_ids()
    unary = pot.unary.astype(np.float64)
    draws = [
        [PERTURB[scheme](u, temperature, key, first_image + n, s, sites) for n, u in enumerate(unary)]
        for s in range(n_samples)
    ]
    return np.array(draws)


def check_locally_optimal(pot: Potentials, unaries: Floats, samples: Ints) -> None:
    """Check that no single change raises the perturbed score; unaries (M, N, S, L), samples (M, N, S)."""
    for unary, labels in zip(unaries, samples, strict=True):
        for n, y in enumerate(labels):
            scores = local_scores(pot.model, y.astype(np.int64), n, unary[n])
            current = np.take_along_axis(scores, y[:, None].astype(np.int64), axis=1)[:, 0]
            assert (scores.max(axis=1) <= current + SLACK).all(), "a single change raises the perturbed score"


def flat_samples(pot: Potentials, result: Result) -> Ints:
    """Return the samples as (M, N, S)."""
    return result.samples.reshape(len(result.samples), pot.n_images, pot.n_sites)


def check_ascent(pot: Potentials, unary: Floats, y: Ints, backend: str) -> None:
    """Check that the score never falls when the backend's kernel updates one colour class at a time."""
    climb = kernel_of(backend, "climb_sites")
    model = pot.model._replace(unary=frozen(unary[None]))
    score = float(total_scores(model, y[None])[0])
    for begin, stop in 3 * list(itertools.pairwise(pot.model.class_ptr)):
        one = model._replace(order=frozen(model.order[begin:stop]), class_ptr=frozen(np.array([0, stop - begin])))
        labels = np.empty((1, pot.n_sites, 1), np.int16)
        climb(one, Perturbation(NONE, 0.0, 0, 0), GIVEN, y[None], 1, 0, 0, 1, 0, labels)
        y = labels[0, :, 0].astype(np.int64)
        new = float(total_scores(model, y[None])[0])
        assert new >= score - SLACK, "the score fell"
        score = new
