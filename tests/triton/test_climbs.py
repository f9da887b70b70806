"""Perturbed unaries, starting labels, climbs, votes and conditionals match the reference, on odd shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.grid_cases import FORMS, SHAPES, odd_model
from tests.triton.placing import DEVICE, place, place_model

from locpmap.errors import InputError
from locpmap.kernels.model import GridWindow
from locpmap.kernels.perturbation import DROP, GIVEN, LAZY, LOGISTIC, NONE, PERTURBED, PLAIN, RANDOM, Perturbation
from locpmap.kernels.reference import climb_sites as reference_sites
from locpmap.kernels.reference.conditionals import conditionals as reference_conditionals
from locpmap.kernels.reference.votes import votes as reference_votes
from locpmap.kernels.spec import Climb, Span
from locpmap.kernels.triton.climb.climb_potts import climb_potts
from locpmap.kernels.triton.climb.climb_sites import climb_sites
from locpmap.kernels.triton.climb.potts_grid import grid_field
from locpmap.kernels.triton.count import conditionals, grid_conditionals, votes
from locpmap.kernels.triton.perturb import begin, items, perturb
from locpmap.potentials import Potentials

KEY = (12345, 2**32 - 3)
R = 9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n_labels", "scheme"),
    [(1, PLAIN), (2, PLAIN), (5, PLAIN), (2, LOGISTIC), (3, DROP), (4, NONE), (3, LAZY), (8, LAZY), (37, LAZY)],
)
def test_noise_and_starting_labels_match_the_reference(n_labels: int, scheme: int, dtype: Any) -> None:
    rng = np.random.default_rng(n_labels)
    unary = (2 * rng.normal(size=(2, 3, 5, n_labels))).astype(dtype)
    unary[..., 1:][rng.random((2, 3, 5, n_labels - 1)) < 0.2] = -np.inf
    pot = Potentials.grid(unary, 1.0, window=(3, 2, 2**33))
    amount, first_image, first_sample = 0.5, 4, 126
    how = Perturbation(scheme, amount, *KEY)
    model = place_model(pot)
    span = Span(0, 2, first_sample, R)
    found = perturb(model.unary, model.site_id, how, first_image, span)
    labels = torch.empty((2, 15, R), dtype=torch.uint8, device=DEVICE)
    begin(model.unary, found, model.site_id, Climb(how, RANDOM, None, 0, first_image), span, labels)
    where = pot.model.site_id
    for n in range(2):
        for s in range(R):
            image, sample = first_image + n, first_sample + s
            scores = reference_sites.perturbed(pot.unary[n], how, image, sample, where)
            start = reference_sites.start_labels(pot.unary[n], how, image, sample, where)
            # Noise and unaries are of order 10; nested logarithms lose a few more digits.
            tolerance = 1e-12 if dtype == np.float64 else 1e-5
            np.testing.assert_allclose(found[n, :, :, s].cpu().numpy(), scores, rtol=0, atol=tolerance)
            np.testing.assert_array_equal(labels[n, :, s].cpu().numpy(), start)


@triton.jit
def _first_items(found_ptr, n_sites, n_samples, BLOCK: tl.constexpr):
    n, i, r, inside = items(n_sites, n_samples, BLOCK)
    place = found_ptr + tl.arange(0, BLOCK)
    tl.store(place, n + tl.zeros([BLOCK], tl.int64))
    tl.store(place + BLOCK, i.to(tl.int64))
    tl.store(place + 2 * BLOCK, r.to(tl.int64))
    tl.store(place + 3 * BLOCK, inside.to(tl.int64))


@pytest.mark.parametrize("n_sites", [2**28 - 2**13, 2**28 - 1, 2**28 + 5, 2**30])
def test_item_indices_of_large_images(n_sites: int) -> None:
    found = torch.full((4, 16), -1, device=DEVICE)
    _first_items[(1,)](found, n_sites, 8, 16)
    lane = np.arange(16)
    np.testing.assert_array_equal(found.cpu().numpy(), [0 * lane, lane // 8, lane % 8, lane >= 0])


@pytest.mark.parametrize("n_labels", [2, 3])
def test_images_too_large_for_32_bit_indices_raise(n_labels: int) -> None:
    """The error is raised before anything is read or allocated."""
    height, width = 2**15, 2**14
    one = torch.zeros(1, device=DEVICE)
    unary = one.expand(1, height * width, n_labels)
    near = one.expand(1, height, width - 1), one.expand(1, height - 1, width)
    window = GridWindow(height, width, 0, 0, width, height * width)
    climb = Climb(Perturbation(PLAIN, 1.0, *KEY), RANDOM, None, 5)
    with pytest.raises(InputError, match=r"536870912 sites, expected fewer than 2\^29 .*: use device='cpu'"):
        climb_potts(unary, *near, window, climb, Span(0, 1, 0, 8))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_climbs_conditionals_and_votes_match_the_reference(shape: tuple[int, int], form: str) -> None:
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
    climb = Climb(how, start, place(given), max_sweeps, 5)
    made = climb_sites(place_model(pot), climb, Span(lo, pot.n_images, 3, R), found)
    np.testing.assert_array_equal(found.cpu().numpy(), labels)
    np.testing.assert_array_equal(made.cpu().numpy(), sweeps)

    sums, counts = (np.zeros((len(labels), pot.n_sites, n_labels), np.int64) for _ in range(2))
    mine = [place(sums), place(counts)]
    reference_conditionals(pot.model, labels, sums, lo, 0, pot.n_sites)
    conditionals(place_model(pot), found, mine[0], lo, 0, pot.n_sites)
    assert np.abs(mine[0].cpu().numpy() - sums).max() <= R * 2**6  # in units of 2^-40: rounding in double precision
    reference_votes(labels, counts, 0, 0, pot.n_sites)
    votes(found, mine[1], 0, pot.n_sites)
    np.testing.assert_array_equal(mine[1].cpu().numpy(), counts)


@pytest.mark.parametrize(("shape", "n_labels", "dtype"), [((1, 5), 3, np.float64), ((12, 11), 2, np.float32)])
@pytest.mark.parametrize("shared", [False, True])
def test_grid_conditionals_match_the_reference(
    shape: tuple[int, int], n_labels: int, dtype: type, shared: bool
) -> None:
    """Cover several images, weights of both signs, forbidden labels, a part of the sites, and gaps between sites."""
    rng, (height, width), n_sites = np.random.default_rng(n_labels), shape, shape[0] * shape[1]
    unary: Any = rng.normal(size=(2, *shape, n_labels), scale=2).astype(dtype)
    unary[rng.random(unary.shape) < 0.2] = -np.inf
    unary[..., 0] = 1.5
    weights = [rng.normal(size=(2 - shared, *of), scale=3) for of in ((height, width - 1), (height - 1, width))]
    weights = [weight.astype(dtype) for weight in weights]
    pot = Potentials.grid(unary, tuple(np.broadcast_to(weight, (2, *weight.shape[1:])) for weight in weights))
    labels = rng.integers(0, n_labels, (2, n_sites, R + 3)).astype(np.uint8)
    first = rng.integers(0, 2**50, (2, n_sites, n_labels))
    expected, found, begin, stop = first.copy(), place(first), 1, n_sites - 1
    reference_conditionals(pot.model, labels[:, :, :R], expected, 0, begin, stop)
    right, down = (place(weight) for weight in weights)
    field = grid_field(right, down, GridWindow(height, width, 0, 0, width, n_sites))
    grid_conditionals(place(pot.unary), field, place(labels)[:, :, :R], found, begin, stop)
    rounding = 2**6 if dtype is np.float64 else 2**20  # a few units in the last place of 1, in units of 2^-40
    assert np.abs(found.cpu().numpy() - expected).max() <= R * rounding
    np.testing.assert_array_equal(found.cpu().numpy()[:, [0, -1]], first[:, [0, -1]])


def test_votes_of_some_sites_match_the_reference() -> None:
    labels = np.random.default_rng(0).integers(0, 3, (2, 5, 150)).astype(np.uint8)
    counts = np.zeros((2, 5, 3), np.int32)
    found = place(counts)
    reference_votes(labels, counts, 0, 1, 4)
    votes(place(labels), found, 1, 4)
    np.testing.assert_array_equal(found.cpu().numpy(), counts)


@pytest.mark.parametrize("n_labels", [1, 3, 8, 20])
def test_votes_of_many_samples_match_the_reference(n_labels: int) -> None:
    """Compare with and without gaps between sites, up to the 255 samples that a byte counts."""
    rng = np.random.default_rng(n_labels)
    for n_samples, room, kind in ((255, 255, np.int16), (7, 8, np.uint8)):
        labels = rng.integers(0, n_labels, (2, 131, room)).astype(kind)[:, :, :n_samples]
        labels[:, 7] = n_labels - 1  # all samples equal
        counts = np.zeros((2, 131, n_labels), np.int64)
        reference_votes(labels, counts, 0, 0, 131)
        found = place(np.zeros(counts.shape, np.int32))
        votes(place(labels), found, 0, 131)
        np.testing.assert_array_equal(found.cpu().numpy(), counts)
