"""Perturbed unaries, starts, climbs, votes and conditionals as the reference makes them, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.test_backends import FORMS, SHAPES, odd_model
from tests.triton.placing import DEVICE, place, place_model

from locpmap.kernels.perturbation import DROP, GIVEN, LOGISTIC, NONE, PERTURBED, PLAIN, RANDOM, Perturbation
from locpmap.kernels.reference import climb_sites as reference_sites
from locpmap.kernels.reference.conditionals import conditionals as reference_conditionals
from locpmap.kernels.reference.votes import votes as reference_votes
from locpmap.kernels.triton.climb_sites import climb_sites
from locpmap.kernels.triton.conditionals import conditionals
from locpmap.kernels.triton.perturb import begin, perturb
from locpmap.kernels.triton.votes import votes
from locpmap.potentials import Potentials

KEY = (12345, 2**32 - 3)
R = 9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n_labels", "scheme"),
    [(1, PLAIN), (2, PLAIN), (5, PLAIN), (2, LOGISTIC), (3, DROP), (4, NONE)],
)
def test_noise_and_starts(n_labels: int, scheme: int, dtype: Any) -> None:
    rng = np.random.default_rng(n_labels)
    unary = (2 * rng.normal(size=(2, 3, 5, n_labels))).astype(dtype)
    unary[..., 1:][rng.random((2, 3, 5, n_labels - 1)) < 0.2] = -np.inf
    pot = Potentials.grid(unary, 1.0, window=(3, 2, 2**33))
    amount, first_image, first_sample = 0.5, 4, 126
    how = Perturbation(scheme, amount, *KEY)
    model = place_model(pot)
    found = perturb(model.unary, model.site_id, how, first_image, first_sample, R)
    labels = torch.empty((2, 15, R), dtype=torch.uint8, device=DEVICE)
    begin(model.unary, found, model.site_id, how, RANDOM, labels[:, :, 0], first_image, first_sample, labels)
    where = pot.model.site_id
    for n in range(2):
        for s in range(R):
            image, sample = first_image + n, first_sample + s
            scores = reference_sites.perturbed(pot.unary[n], how, image, sample, where)
            start = reference_sites.start_labels(pot.unary[n], how, image, sample, where)
            # Noise and unaries are of order 10; logarithms of logarithms lose a few more digits.
            tolerance = 1e-12 if dtype == np.float64 else 1e-5
            np.testing.assert_allclose(found[n, :, :, s].cpu().numpy(), scores, rtol=0, atol=tolerance)
            np.testing.assert_array_equal(labels[n, :, s].cpu().numpy(), start)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_climbs_of_sites(shape: tuple[int, int], form: str) -> None:
    turn = 7 * SHAPES.index(shape) + FORMS.index(form)
    n_labels = (1, 2, 3, 5)[turn % 4]
    pot = odd_model(shape, n_labels, form, turn)
    how = Perturbation((NONE, PLAIN, DROP)[turn % 3], 0.5, *KEY)
    start, max_sweeps = (RANDOM, PERTURBED, GIVEN)[turn // 3 % 3], (100, 2)[turn % 2]
    given = pot.unary.argmax(axis=2)
    lo = 1 if pot.n_images > 1 else 0
    labels = np.zeros((pot.n_images - lo, pot.n_sites, R), np.int16)
    common = (5, lo, pot.n_images, 3)
    sweeps = reference_sites.climb_sites(pot.model, how, start, given, max_sweeps, *common, labels)
    found = place(np.zeros_like(labels))
    made = climb_sites(place_model(pot), how, start, place(given), max_sweeps, *common, found)
    np.testing.assert_array_equal(found.cpu().numpy(), labels)
    np.testing.assert_array_equal(made.cpu().numpy(), sweeps)

    sums, counts = (np.zeros((len(labels), pot.n_sites, n_labels), np.int64) for _ in range(2))
    mine = [place(sums), place(counts)]
    reference_conditionals(pot.model, labels, sums, lo, 0, pot.n_sites)
    conditionals(place_model(pot), found, mine[0], lo, 0, pot.n_sites)
    assert np.abs(mine[0].cpu().numpy() - sums).max() <= R * 2**6  # of 2^40: rounding in double precision
    reference_votes(labels, counts, 0, pot.n_sites)
    votes(found, mine[1], 0, pot.n_sites)
    np.testing.assert_array_equal(mine[1].cpu().numpy(), counts)


def test_votes_of_more_samples_than_a_program_reads_at_a_time() -> None:
    labels = np.random.default_rng(0).integers(0, 3, (2, 5, 150)).astype(np.uint8)
    counts = np.zeros((2, 5, 3), np.int32)
    found = place(counts)
    reference_votes(labels, counts, 1, 4)
    votes(place(labels), found, 1, 4)
    np.testing.assert_array_equal(found.cpu().numpy(), counts)
