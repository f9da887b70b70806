"""Upper bounds on the best score and on log Z, compared with enumeration and variable elimination."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import KINDS, STRUCTURES, PairwiseModel, random_grid, random_model

import locpmap as lp
from locpmap.kernels.reference.noise import gumbel
from locpmap.noise import key_of
from locpmap.result import BoundKind


def potentials(model: PairwiseModel) -> lp.Potentials:
    return lp.Potentials.graph(model.unary, model.edges, model.tables if len(model.edges) else 0.0)


# the best score


@given(
    structure=st.sampled_from(STRUCTURES),
    kind=st.sampled_from(KINDS),
    n_labels=st.integers(2, 3),
    coupling=st.floats(0, 20),
    forbidden=st.sampled_from([0.0, 0.3]),
    n_forests=st.integers(1, 4),
    max_sweeps=st.sampled_from([1, 3, 100]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_no_labelling_exceeds_the_bound(
    structure: str,
    kind: str,
    n_labels: int,
    coupling: float,
    forbidden: float,
    n_forests: int,
    max_sweeps: int,
    seed: int,
) -> None:
    """The bound holds before convergence, too."""
    model = random_model(structure, kind, 6, n_labels, coupling=coupling, forbidden=forbidden, seed=seed)
    best = Enumeration(*model).map_score
    for method in ("trw", "max_product"):
        result = lp.infer(potentials(model), method, n_forests=n_forests, max_sweeps=max_sweeps)
        slack = 1e-9 * (1 + abs(best))
        assert result.score <= best + slack
        assert result.bound >= best - slack


@pytest.mark.parametrize(("kind", "n_labels", "size"), [("random", 2, 12), ("attractive", 2, 12), ("random", 3, 7)])
@pytest.mark.parametrize("coupling", [0.5, 2.0, 6.0])
def test_bounds_of_grids(kind: str, n_labels: int, size: int, coupling: float) -> None:
    grid = random_grid(size, size, n_labels, kind, coupling=coupling, seed=3)
    pot = lp.Potentials.grid(grid.unary, (grid.horizontal, grid.vertical))
    exact = lp.infer(pot, "exact")
    result = lp.infer(pot, "max_product", n_forests=8, max_sweeps=300)
    sums = lp.infer(pot, "trw")
    assert exact.score - 1e-6 <= result.bound
    assert exact.score - 1e-6 <= sums.bound <= sums.log_partition
    if kind == "attractive":  # the relaxation of attractive two-label models has no gap
        assert result.bound == pytest.approx(exact.score, abs=1e-3)


def test_no_bound_by_default() -> None:
    pot = lp.Potentials.grid(np.zeros((3, 3, 2)), 1.0)
    plain = lp.infer(pot, "max_product")
    assert plain.bound is None
    bounded = lp.infer(pot, "max_product", n_forests=4)
    np.testing.assert_array_equal(bounded.labels, plain.labels)
    assert (bounded.n_sweeps, bounded.status) == (plain.n_sweeps, plain.status)
    with pytest.raises(lp.InputError, match="n_forests is -1"):
        lp.MaxProduct(n_forests=-1)


# log Z


@pytest.mark.parametrize("structure", STRUCTURES)
def test_joint_noise_estimates_the_log_partition(structure: str) -> None:
    model = random_model(structure, n_sites=6, n_labels=3, forbidden=0.2, seed=4)
    result = lp.infer(potentials(model), "perturb_and_map", n_samples=4096, seed=5)
    assert result.log_partition_kind is BoundKind.ESTIMATE
    assert result.log_partition_error == pytest.approx(np.pi / np.sqrt(6 * 4096), rel=0.1)  # one Gumbel maximum
    assert result.log_partition == pytest.approx(Enumeration(*model).log_partition, abs=5 * result.log_partition_error)


def test_noise_on_sites_gives_the_perturbed_maxima() -> None:
    """The estimate is the mean of the maxima that enumeration finds for the same noise."""
    model = random_model("grid", "attractive", 6, 2, seed=6)
    model.unary[2, 0] = -np.inf
    exact = Enumeration(*model)
    result = lp.infer(potentials(model), "perturb_and_map", n_samples=20, perturbation="sites", seed=7)
    maxima = []
    for s in range(20):
        noise = gumbel(key_of(7), 0, s, np.arange(6), 2) - np.euler_gamma
        noise[2] = 0.0  # a site with one label needs no noise
        maxima.append((exact.scores + noise[np.arange(6), exact.labellings].sum(axis=1)).max())
    assert result.log_partition == pytest.approx(np.mean(maxima), abs=1e-9)
    assert result.log_partition_error == pytest.approx(np.std(maxima, ddof=1) / np.sqrt(20), rel=1e-9)
    assert result.log_partition_kind is BoundKind.UPPER_ESTIMATE


@pytest.mark.parametrize("coupling", [0.2, 1.0, 3.0])
def test_noise_on_sites_bounds_the_log_partition(coupling: float) -> None:
    grid = random_grid(10, 10, 2, "attractive", coupling=coupling, seed=8)
    pot = lp.Potentials.grid(grid.unary, (grid.horizontal, grid.vertical))
    result = lp.infer(pot, "perturb_and_map", n_samples=400, seed=9)
    assert result.log_partition + 4 * result.log_partition_error >= lp.infer(pot, "exact").log_partition


def test_one_sample_has_no_standard_error() -> None:
    pot = lp.Potentials.grid(np.zeros((2, 2, 2)), 1.0)
    assert lp.infer(pot, "perturb_and_map", n_samples=1).log_partition_error == np.inf
