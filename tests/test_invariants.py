"""Invariance of results under symmetries of the model and division of the work into threads, chunks and tiles.

Noise is keyed by site and label.  Symmetries that move sites or labels are therefore tested without noise.
Changes that preserve the keys must give identical results with noise as well.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.oracles.models import random_model
from tests.support.noise import PlainNoise
from tests.support.tiles import WIDTH, check_tile, halo_is_sufficient, tile_case

from locpmap.inference import infer
from locpmap.inference.icm import ICM
from locpmap.inference.locpmap import LocPMAP
from locpmap.kernels.cpu import dispatch, totals
from locpmap.potentials import Potentials
from locpmap.result import Result

RNG = np.random.default_rng(0)
H, W, L = 5, 6, 3
UNARY = RNG.normal(size=(H, W, L))
RIGHT, DOWN = RNG.normal(size=(H, W - 1, L, L)), RNG.normal(size=(H - 1, W, L, L))
START = RNG.integers(L, size=(H, W))


def icm(unary: np.ndarray, pairwise: Any, start: np.ndarray, **more: Any) -> np.ndarray:
    labels: np.ndarray = infer(Potentials.grid(unary, pairwise, **more), ICM(start=start)).labels
    return labels


def check_identical(a: Result, b: Result) -> None:
    """Check that two results are equal bit for bit."""
    np.testing.assert_array_equal(a.labels, b.labels)
    assert (a.probability is None) == (b.probability is None)
    if a.probability is not None:
        assert a.probability.tobytes() == b.probability.tobytes()
    if a.samples is not None:
        np.testing.assert_array_equal(a.samples, b.samples)
    assert (a.n_sweeps, a.n_samples, a.status, a.noise) == (b.n_sweeps, b.n_samples, b.status, b.noise)


# symmetries


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(L)))[1:])
def test_permuted_labels(permutation: tuple[int, ...]) -> None:
    """Label k becomes permutation[k]; no two scores tie, so the order of labels has no effect."""
    p = np.array(permutation)
    back = np.argsort(p)

    def table(t: np.ndarray) -> np.ndarray:
        return t[..., back, :][..., back]

    expected = p[icm(UNARY, (RIGHT, DOWN), START)]
    np.testing.assert_array_equal(icm(UNARY[..., back], (table(RIGHT), table(DOWN)), p[START]), expected)


def test_transposed_grid() -> None:
    right, down = DOWN.transpose(1, 0, 2, 3), RIGHT.transpose(1, 0, 2, 3)
    transformed = icm(UNARY.transpose(1, 0, 2), (right, down), START.T)
    np.testing.assert_array_equal(transformed.T, icm(UNARY, (RIGHT, DOWN), START))


@pytest.mark.parametrize("axis", [0, 1])
def test_flipped_grid(axis: int) -> None:
    """Flipping an even side swaps red and black; a window that starts one column later swaps them back."""
    window = [(0, 0, W), (0, 1, W + 1)][axis]
    right, down = np.flip(RIGHT, axis), np.flip(DOWN, axis)
    if axis == 0:
        down = down.swapaxes(-1, -2)
    else:
        right = right.swapaxes(-1, -2)
    flipped = icm(np.flip(UNARY, axis), (right, down), np.flip(START, axis), window=window)
    np.testing.assert_array_equal(np.flip(flipped, axis), icm(UNARY, (RIGHT, DOWN), START))


@pytest.mark.parametrize("decoder", [ICM(), LocPMAP(16), PlainNoise(16), LocPMAP(8, blocks="rows")], ids=str)
@pytest.mark.parametrize("pairwise", [0.8, RIGHT[0, 0]], ids=["potts", "table"])
def test_constants_added_to_a_site_have_no_effect(decoder: Any, pairwise: Any) -> None:
    constants = np.random.default_rng(1).integers(-3, 4, size=(H, W, 1))
    plain, shifted = (infer(Potentials.grid(u, pairwise), decoder) for u in (UNARY, UNARY + constants))
    np.testing.assert_array_equal(plain.labels, shifted.labels)
    if plain.probability is not None:
        np.testing.assert_array_equal(plain.probability, shifted.probability)


def test_scores_moved_from_unaries_to_tables_have_no_effect() -> None:
    """Adding c[a] to the table of an edge and subtracting it from its first site's unary preserves the model."""
    shift = np.random.default_rng(2).integers(-3, 4, size=(H, W - 1, L))
    unary = UNARY.copy()
    unary[:, :-1] -= shift
    moved = infer(Potentials.grid(unary, (RIGHT + shift[..., None], DOWN)), ICM(start=START))
    np.testing.assert_array_equal(moved.labels, icm(UNARY, (RIGHT, DOWN), START))


def test_renumbered_sites() -> None:
    """A star whose centre comes first has the same two colour classes for any order of the other sites."""
    model = random_model("star", n_sites=8, n_labels=3, seed=3)
    order = np.concatenate([[0], 1 + np.random.default_rng(4).permutation(7)])
    start = np.random.default_rng(5).integers(3, size=8)
    labels = infer(Potentials.graph(*model), ICM(start=start)).labels
    number = np.argsort(order)
    transformed = Potentials.graph(model.unary[order], number[model.edges], model.tables)
    np.testing.assert_array_equal(infer(transformed, ICM(start=start[order])).labels, labels[order])


# limits


def test_zero_temperature_equals_icm() -> None:
    """At temperature 0 the first sample equals ICM from the same random start."""
    for pairwise in (0.8, (RIGHT, DOWN)):
        pot = Potentials.grid(UNARY, pairwise)
        cold = infer(pot, LocPMAP(1, temperature=0), seed=7)
        np.testing.assert_array_equal(cold.labels, infer(pot, ICM(), seed=7).labels)
        given = LocPMAP(3, temperature=0, start=START, keep_samples=True)
        expected = infer(pot, ICM(start=START)).labels
        np.testing.assert_array_equal(infer(pot, given).samples, np.stack([expected] * 3))
        nearly = LocPMAP(3, temperature=1e-12, start=START, keep_samples=True)
        np.testing.assert_array_equal(infer(pot, nearly).samples, np.stack([expected] * 3))


@pytest.mark.parametrize("n_labels", [2, 3])
def test_strong_coupling_gives_constant_samples(n_labels: int) -> None:
    """Mixed labellings are not local maxima on a complete graph or inside a block that is solved exactly."""
    unary = np.random.default_rng(6).normal(size=(6, n_labels))
    full = infer(Potentials.graph(unary, np.stack(np.triu_indices(6, 1), axis=1), 1e6), LocPMAP(32, keep_samples=True))
    row = infer(Potentials.grid(unary[None], 1e6), LocPMAP(32, blocks="rows", keep_samples=True))
    tile = infer(Potentials.grid(unary.reshape(2, 3, -1), 1e6), LocPMAP(32, blocks=(2, 3), keep_samples=True))
    for result in (full, row, tile):
        samples = result.samples.reshape(32, 6)
        assert (samples == samples[:, :1]).all()
        assert len(np.unique(samples)) > 1


# division of the work


def models(dtype: Any = np.float64) -> dict[str, Potentials]:
    """Return one batch for every path through the kernels."""
    rng = np.random.default_rng(8)
    two, many = rng.normal(size=(5, 6, 7, 2)).astype(dtype), rng.normal(size=(5, 6, 7, 4)).astype(dtype)
    weights = (rng.random((5, 6, 6)), rng.random((5, 7)))
    return {
        "two labels, one weight": Potentials.grid(two, 0.7),
        "two labels, weights": Potentials.grid(two, weights),
        "many labels": Potentials.grid(many, weights),
        "tables": Potentials.grid(many, rng.normal(size=(4, 4))),
    }


DECODERS = {
    "votes": LocPMAP(22, probability="votes", keep_samples=True),
    "conditional": LocPMAP(22, probability="conditional", keep_samples=True),
    "rows": LocPMAP(22, blocks="rows+columns"),
}


@pytest.mark.parametrize(("decoder", "dtype"), [*((d, np.float64) for d in DECODERS), ("votes", np.float32)])
@pytest.mark.parametrize("name", models())
def test_any_number_of_threads(name: str, decoder: str, dtype: Any) -> None:
    pot = models(dtype)[name]
    one, two, three = (infer(pot, DECODERS[decoder], seed=3, n_threads=n) for n in (1, 2, 3))
    check_identical(one, two)
    check_identical(one, three)
    single = Potentials.grid(pot.unflatten(pot.unary)[0], 0.7)  # one image: threads divide its samples
    check_identical(*(infer(single, DECODERS[decoder], seed=3, n_threads=n) for n in (1, 3)))


@pytest.mark.parametrize("min_shared", [0, 100, 10**9])
@pytest.mark.parametrize("n_images", [1, 5])
@pytest.mark.parametrize("method", ["mean_field", "lbp", "max_product", "gibbs"])
def test_sweeps_over_few_sites_in_one_thread(
    method: str, n_images: int, min_shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late sweeps visit few sites: then one thread replaces all, and images that have converged are skipped."""
    unary = np.random.default_rng(4).normal(size=(n_images, 9, 7, 3))
    unary[-1] *= 10  # converges before the others
    pot = Potentials.grid(unary, 0.8)
    one = infer(pot, method, seed=3, n_threads=1)
    monkeypatch.setattr(dispatch, "MIN_SHARED", min_shared)
    check_identical(one, infer(pot, method, seed=3, n_threads=3))


@pytest.mark.parametrize(
    ("decoder", "backend"),
    [
        ("votes", "numba"),
        ("conditional", "numba"),
        ("rows", "numba"),
        ("votes", "reference"),
        ("conditional", "reference"),
    ],
)
@pytest.mark.parametrize("name", models())
def test_batch_equals_single_images(name: str, decoder: str, backend: str) -> None:
    pot = models()[name]
    if backend == "reference":
        pot = part(pot, 0, 2)
    batch = infer(pot, DECODERS[decoder], seed=4, first_image=11, backend=backend)
    for n in range(pot.n_images):
        alone = infer(part(pot, n, n + 1), DECODERS[decoder], seed=4, first_image=11 + n, backend=backend)
        np.testing.assert_array_equal(alone.labels[0], batch.labels[n])
        assert alone.probability[0].tobytes() == batch.probability[n].tobytes()


def part(pot: Potentials, lo: int, hi: int) -> Potentials:
    """Return images lo to hi - 1 of a batch."""
    weights = pot.pairwise.weights
    pairwise: Any
    if weights is None:
        assert pot.pairwise.tables is not None
        pairwise = pot.pairwise.tables[0, 0, 0]
    elif weights[0].shape == (1, 1):
        pairwise = float(weights[0][0, 0])
    else:
        pairwise = (weights[0][lo:hi].reshape(-1, 6, 6), weights[1].reshape(5, 7))
    return Potentials.grid(pot.unflatten(pot.unary)[lo:hi], pairwise)


def test_icm_of_a_batch_equals_single_images() -> None:
    pot = models()["tables"]
    for decoder in (ICM(), ICM(max_sweeps=1), ICM(start="unary")):
        batch = infer(pot, decoder, seed=4, first_image=11)
        for n in range(pot.n_images):
            alone = infer(part(pot, n, n + 1), decoder, seed=4, first_image=11 + n)
            np.testing.assert_array_equal(alone.labels[0], batch.labels[n])


def test_images_of_a_batch_have_different_noise() -> None:
    pot = Potentials.grid(np.zeros((2, 6, 7, 3)), 0.1)
    result = infer(pot, LocPMAP(20, keep_samples=True))
    assert (result.samples[:, 0] != result.samples[:, 1]).mean() > 0.5


# A negative limit leaves no memory beyond the minimum, whatever the size of the unaries.
@pytest.mark.parametrize(("limit", "value"), [("ROUND_SAMPLES", 4), ("ROUND_BYTES", -1_000_000), ("ROUND_WORK", 2000)])
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("name", models())
def test_any_chunk_size(name: str, decoder: str, limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pot = models()[name]
    whole = infer(pot, DECODERS[decoder], seed=6)
    rounds: list[int] = []
    monkeypatch.setattr(totals, limit, value)
    parts = infer(pot, DECODERS[decoder], seed=6, n_threads=2, progress=lambda done, total: rounds.append(done))
    check_identical(whole, parts)
    assert len(rounds) > 1


@pytest.mark.parametrize("backend", ["numba", "reference"])
@pytest.mark.parametrize("images", [slice(0, 1), slice(0, 3)])
@pytest.mark.parametrize("connectivity", [4, 6, 26])
@pytest.mark.parametrize("decoder", ["votes", "conditional"])
def test_results_by_bands_equal_those_by_rounds(
    decoder: str, connectivity: int, images: slice, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples that wait, and are added and released in bands of one row, give the results of totals."""
    unary = np.random.default_rng(8).normal(size=(3, 4, 5, 3, 3))
    if connectivity == 4:
        pot = Potentials.grid(unary.reshape(3, 20, 3, 3)[images], 0.7)
    else:
        pot = Potentials.volume(unary[images], 0.4, connectivity=connectivity)
    monkeypatch.setattr(totals, "BAND", 1)
    monkeypatch.setattr(totals, "ROUND_SAMPLES", 8)
    bands = infer(pot, DECODERS[decoder], seed=6, n_threads=2, backend=backend)
    monkeypatch.setattr(totals, "ROUND_BYTES", -1_000_000)
    check_identical(bands, infer(pot, DECODERS[decoder], seed=6, n_threads=3, backend=backend))


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("n_images", [1, 3, 12])
def test_more_threads_than_a_word_has_bytes(n_images: int, n_labels: int) -> None:
    """A climb of a grid draws at most 64 samples in a thread, however many threads there are."""
    pot = Potentials.grid(np.random.default_rng(8).normal(size=(n_images, 4, 5, n_labels)), 0.7)
    decoder = LocPMAP(150, keep_samples=True)
    check_identical(infer(pot, decoder, seed=6, n_threads=1), infer(pot, decoder, seed=6, n_threads=12))


@pytest.mark.parametrize("decoder", ["votes", "conditional"])
def test_a_time_limit_keeps_whole_rounds(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pot = Potentials.grid(np.random.default_rng(8).normal(size=(12, 5, 3)), 0.7)
    monkeypatch.setattr(totals, "ROUND_SAMPLES", 16)
    some = infer(pot, DECODERS[decoder], seed=6, n_threads=2, max_seconds=0)
    assert some.n_samples == 16
    few = infer(pot, replace(DECODERS[decoder], n_samples=16), seed=6)
    assert some.probability.tobytes() == few.probability.tobytes()
    np.testing.assert_array_equal(some.labels, few.labels)


@pytest.mark.parametrize("decoder", ["votes", "conditional"])
def test_any_chunk_size_of_the_reference(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pot = part(models()["two labels, weights"], 1, 4)
    whole = infer(pot, DECODERS[decoder], seed=6, backend="reference")
    monkeypatch.setattr(totals, "ROUND_BYTES", -1_000_000)  # one image at a time
    check_identical(whole, infer(pot, DECODERS[decoder], seed=6, backend="reference"))


@pytest.mark.parametrize("name", models())
def test_first_samples_do_not_depend_on_n_samples(name: str) -> None:
    pot = models()[name]
    few, more = (infer(pot, LocPMAP(n, keep_samples=True), seed=9).samples for n in (7, 30))
    np.testing.assert_array_equal(few, more[:7])


# tiles with a halo


@pytest.mark.parametrize("form", ["weight", "weights", "table"])
@pytest.mark.parametrize("n_labels", [2, 4])
@pytest.mark.parametrize("sweeps", [1, 2, 3])
def test_halo_of_two_sites_per_sweep_is_sufficient(n_labels: int, form: str, sweeps: int) -> None:
    check_tile(n_labels, form, sweeps, halo=2 * sweeps)


@pytest.mark.parametrize("vertical", [False, True])
@pytest.mark.parametrize("n_labels", [2, 4])
@pytest.mark.parametrize("sweeps", [1, 2, 5])
def test_smaller_halo_is_detected(n_labels: int, sweeps: int, vertical: bool) -> None:
    assert halo_is_sufficient(n_labels, sweeps, 2 * sweeps, vertical)
    assert not halo_is_sufficient(n_labels, sweeps, 2 * sweeps - 1, vertical)


def test_tile_at_a_wrong_position_is_detected() -> None:
    unary, _, pot = tile_case(2, "weight")
    decoder = LocPMAP(8, max_sweeps=2, keep_samples=True)
    whole = infer(pot, decoder, seed=12).samples
    moved = infer(Potentials.grid(unary, 1.0, window=(0, 1, WIDTH + 1)), decoder, seed=12).samples
    assert (whole != moved).mean() > 0.1
