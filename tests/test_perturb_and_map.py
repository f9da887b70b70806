"""Global Perturb-and-MAP: exact samples with joint noise, graph cuts with noise on sites."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import STRUCTURES, PairwiseModel, random_grid, random_model
from tests.oracles.statistics import check_events, chi_square_p_value

import locpmap as lp
from locpmap.inference.perturb_and_map import PerturbAndMAP, joint_gumbel
from locpmap.kernels.reference.noise import gumbel
from locpmap.noise import key_of


def potentials(model: PairwiseModel) -> lp.Potentials:
    return lp.Potentials.graph(model.unary, model.edges, model.tables)


def labelling_numbers(samples: np.ndarray, n_labels: int) -> np.ndarray:
    """Return the labelling numbers of samples (M, S), the last site fastest."""
    return samples.astype(np.int64) @ n_labels ** np.arange(samples.shape[1])[::-1]


# joint noise


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(("kind", "n_labels", "forbidden"), [("random", 2, 0.0), ("potts", 3, 0.3)])
def test_joint_noise_gives_exact_samples(structure: str, kind: str, n_labels: int, forbidden: float) -> None:
    model = random_model(structure, kind, 4, n_labels, forbidden=forbidden, seed=1)
    result = lp.infer(potentials(model), PerturbAndMAP(n_samples=8192, keep_samples=True), seed=2)
    exact = Enumeration(*model)
    counts = np.bincount(labelling_numbers(result.samples, n_labels), minlength=n_labels**4)
    assert chi_square_p_value(counts, exact.probability) > 1e-6
    site, label = np.indices((4, n_labels)).reshape(2, -1)
    check_events((result.samples[:, site] == label).T, exact.marginals.ravel())


def test_joint_noise_is_keyed_by_the_first_site() -> None:
    noise = joint_gumbel(key_of(5), 6, np.array([7, 9]), 8, 1003)
    for row, sample in zip(noise, (7, 9), strict=True):
        np.testing.assert_array_equal(row, gumbel(key_of(5), 6, sample, np.array([8]), 1003)[0])


def test_joint_samples_are_the_argmax() -> None:
    model = random_model("cycle", n_sites=5, n_labels=3, seed=3)
    result = lp.infer(potentials(model), PerturbAndMAP(n_samples=9, keep_samples=True), seed=4, first_image=2)
    exact = Enumeration(*model)
    for s, sample in enumerate(result.samples):
        noise = gumbel(key_of(4), 2, s, np.array([0]), 3**5)[0]
        np.testing.assert_array_equal(sample, exact.labellings[(exact.scores + noise).argmax()])


def test_locpmap_with_one_block_gives_the_same_samples() -> None:
    pot = potentials(random_model("grid", n_sites=9, seed=5))
    everywhere = lp.infer(pot, "locpmap", blocks=[list(range(9))], keep_samples=True, seed=6)
    np.testing.assert_array_equal(lp.infer(pot, PerturbAndMAP(keep_samples=True), seed=6).samples, everywhere.samples)


def test_model_without_an_allowed_labelling_is_rejected() -> None:
    pot = lp.Potentials.graph(np.zeros((2, 2)), [[0, 1]], np.full((1, 2, 2), -np.inf))
    with pytest.raises(lp.InputError, match="forbids"):
        lp.infer(pot, PerturbAndMAP())


# noise on sites


def test_site_samples_are_the_argmax() -> None:
    model = random_model("grid", "submodular", 12, 2, coupling=1.5, forbidden=0.1, seed=7)
    how = PerturbAndMAP(n_samples=20, perturbation="sites", keep_samples=True)
    result = lp.infer(potentials(model), how, seed=8, first_image=3)
    for s, sample in enumerate(result.samples):
        noisy = model.unary + gumbel(key_of(8), 3, s, np.arange(12), 2)
        exact = Enumeration(noisy, model.edges, model.tables)
        assert exact.scores[labelling_numbers(sample[None], 2)[0]] == pytest.approx(exact.map_score, abs=1e-9)


def test_without_edges_noise_on_sites_gives_exact_samples() -> None:
    unary = np.random.default_rng(9).normal(size=(40, 2))
    pot = lp.Potentials.graph(unary, np.zeros((0, 2), int), 0.0)
    result = lp.infer(pot, PerturbAndMAP(n_samples=4096, keep_samples=True), seed=10)
    check_events((result.samples == 1).T, 1 / (1 + np.exp(unary[:, 0] - unary[:, 1])))


def test_probability_is_the_fraction_of_the_samples() -> None:
    grid = random_grid(6, 7, 2, "attractive", seed=11)
    pot = lp.Potentials.grid(grid.unary, (grid.horizontal, grid.vertical))
    result = lp.infer(pot, PerturbAndMAP(n_samples=50, keep_samples=True), seed=12)
    np.testing.assert_allclose(result.probability[..., 1], result.samples.mean(axis=0))
    np.testing.assert_array_equal(result.labels, result.probability.argmax(axis=-1))
    assert result.status is lp.result.Status.COMPLETE
    assert result.noise == "plain"
    assert result.n_samples == 50


@pytest.mark.parametrize("shape", [(4, 2, 3, 2), (4, 6, 5, 2)])
def test_samples_do_not_depend_on_threads_or_batches(shape: tuple[int, ...]) -> None:
    unary = np.random.default_rng(13).normal(size=shape)
    how = PerturbAndMAP(n_samples=11, keep_samples=True)
    results = [lp.infer(lp.Potentials.grid(unary, 0.6), how, seed=14, n_threads=n) for n in (1, 2, 3)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].samples, other.samples)
    for n in range(len(unary)):
        alone = lp.infer(lp.Potentials.grid(unary[n], 0.6), how, seed=14, first_image=n)
        np.testing.assert_array_equal(results[0].samples[:, n], alone.samples)


# errors


def test_unsupported_models_raise_errors() -> None:
    three = lp.Potentials.grid(np.zeros((4, 4, 3)), 1.0)
    with pytest.raises(lp.errors.TooLargeError, match=r"3 labels and 2\^25\.4 labellings"):
        lp.infer(three, PerturbAndMAP())
    with pytest.raises(lp.InputError, match="needs two labels, but the model has 3"):
        lp.infer(three, PerturbAndMAP(perturbation="sites"))
    with pytest.raises(lp.errors.TooLargeError, match=r"2\^25\.0 labellings"):
        lp.infer(lp.Potentials.grid(np.zeros((5, 5, 2)), 1.0), PerturbAndMAP(perturbation="joint"))
    with pytest.raises(lp.InputError, match="attract"):
        lp.infer(lp.Potentials.grid(np.zeros((5, 5, 2)), -1.0), PerturbAndMAP())
    with pytest.raises(lp.InputError, match="n_samples is 0"):
        PerturbAndMAP(n_samples=0)
    with pytest.raises(lp.InputError, match="perturbation is 'site'"):
        PerturbAndMAP(perturbation="site")
