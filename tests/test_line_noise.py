"""Independent noise on all joint labellings of rows: the theorem for rows, and climbs as with enumerated noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.oracles import statistics
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import random_grid
from tests.support.odd_models import ODD, normal

from locpmap.errors import BackendError, InputError
from locpmap.graphs import Grid
from locpmap.inference import infer
from locpmap.inference.locpmap import LocPMAP
from locpmap.kernels.placement import BACKENDS
from locpmap.potentials import Potentials

GRIDS = [case for case, pot in ODD.items() if isinstance(pot.structure, Grid)]


@pytest.mark.parametrize("blocks", ["rows", "columns", "rows:2"])
@pytest.mark.parametrize("case", GRIDS)
def test_every_climb_agrees_with_the_reference(case: str, blocks: str) -> None:
    decoder = LocPMAP(n_samples=9, blocks=blocks, line_noise="joint", temperature=1.3)
    one, other = (infer(ODD[case], decoder, seed=4, backend=backend) for backend in BACKENDS)
    np.testing.assert_allclose(one.probability, other.probability, rtol=1e-9, atol=1e-12)
    assert (one.n_sweeps, one.noise) == (other.n_sweeps, "joint")


@pytest.mark.parametrize(("shape", "n_labels"), [((2, 3), 2), ((3, 3), 2), ((2, 3), 3)])
def test_theorem_for_rows(shape: tuple[int, int], n_labels: int) -> None:
    """A labelling y is a local maximum, so that a climb from y stays there, with probability Π_β p(y_β | y_¬β)."""
    grid = random_grid(*shape, n_labels, "random", coupling=0.8, seed=2)
    exact = Enumeration(*grid.flatten())
    n_sites, n_draws = shape[0] * shape[1], 1_000
    expected = exact.block_product(np.arange(n_sites).reshape(shape).tolist())
    testable = n_draws * expected > statistics.MIN_EXPECTED
    start = exact.labellings[testable].reshape(-1, *shape)
    pot = Potentials.grid(
        np.broadcast_to(grid.unary, (len(start), *grid.unary.shape)), (grid.horizontal, grid.vertical)
    )
    decoder = LocPMAP(
        n_draws, "rows", start=start, probability="votes", max_sweeps=1, keep_samples=True, line_noise="joint"
    )
    found = infer(pot, decoder, seed=1).samples  # every labelling is the start of one image
    stayed = (found == start).all(axis=(2, 3)).sum(axis=0)
    statistics.check_z(statistics.z_scores(stayed, expected[testable], n_draws))


@pytest.mark.parametrize(("shape", "coupling"), [((2, 3), 1.0), ((3, 3), 1.5), ((4, 3), 1.0)])
def test_climbs_end_as_with_enumerated_noise(shape: tuple[int, int], coupling: float) -> None:
    """Later visits reuse what earlier ones revealed of the noise.  Tiles of one row have the same noise, enumerated."""
    grid = random_grid(*shape, 2, "random", coupling=coupling, seed=3)
    pot = Potentials.grid(grid.unary, (grid.horizontal, grid.vertical))
    options: dict[str, Any] = {"n_samples": 30_000, "keep_samples": True, "probability": "votes"}
    lines = infer(pot, LocPMAP(blocks="rows", line_noise="joint", **options), seed=1)
    tiles = infer(pot, LocPMAP(blocks=(1, 3), **options), seed=2)
    place = 2 ** np.arange(shape[0] * shape[1])
    states = [result.samples.reshape(30_000, -1) @ place for result in (lines, tiles)]
    counts = np.stack([np.bincount(s, minlength=2 ** len(place)) for s in states])
    order = np.argsort(counts.sum(axis=0))[::-1]
    kept = counts[:, order[: (counts.sum(axis=0) >= 20).sum()]]
    table = np.concatenate([kept, 30_000 - kept.sum(axis=1, keepdims=True)], axis=1)
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > 1e-6
    error = 5 / np.sqrt(30_000)  # of a mean number of sweeps whose standard deviation is below 1
    assert abs(lines.n_sweeps - tiles.n_sweeps) < np.sqrt(2) * error
    sites = infer(pot, LocPMAP(blocks="rows", **options), seed=2)  # noise on sites gives another distribution
    other = np.bincount(sites.samples.reshape(30_000, -1) @ place, minlength=2 ** len(place))
    assert stats.chi2_contingency(np.stack([counts[1], other])[:, counts[1] + other > 40]).pvalue < 1e-6


def test_one_row_samples_the_model() -> None:
    """With one block of all sites, the theorem says that samples are exact, at any width."""
    unary, right = normal(1, 40, 2), normal(1, 39, scale=2.0)
    pot = Potentials.grid(unary, (right, np.zeros((0, 40))))
    result = infer(pot, LocPMAP(4_000, "rows", probability="votes", line_noise="joint"), seed=2)
    exact = infer(pot, "exact").probability[0, :, 1]
    z = statistics.z_scores(4_000 * result.probability[0, :, 1], exact, 4_000)
    assert np.abs(z).max() < statistics.z_bound(40)
    assert result.n_sweeps <= 1


@pytest.mark.parametrize("case", ["batch", "primes"])
def test_results_do_not_depend_on_threads(case: str) -> None:
    decoder = LocPMAP(n_samples=40, blocks="rows", line_noise="joint")
    one, *others = (infer(ODD[case], decoder, n_threads=n, seed=3) for n in (1, 2, 3))
    for other in others:
        assert one.probability.tobytes() == other.probability.tobytes()


def test_tiles_give_the_result_of_the_whole_grid() -> None:
    scale = pytest.importorskip("locpmap.scale", exc_type=ImportError)
    unary = normal(24, 40, 2)
    decoder = LocPMAP(16, "rows:4", line_noise="joint", max_sweeps=3, probability="votes")
    whole = infer(Potentials.grid(unary, 0.7), decoder, seed=3)
    tiled = scale.infer_tiled(unary, 0.7, decoder, seed=3, tile=(12, 16))
    assert np.asarray(tiled.probability).tobytes() == whole.probability.tobytes()


def test_bad_options() -> None:
    with pytest.raises(InputError, match="line_noise is 'row'"):
        LocPMAP(line_noise="row")
    for blocks in ("sites", "rows+columns", (1, 3)):
        with pytest.raises(InputError, match="expected 'rows' or 'columns'"):
            LocPMAP(blocks=blocks, line_noise="joint")
    with pytest.raises(BackendError):
        infer(ODD["primes"], LocPMAP(blocks="rows", line_noise="joint"), device="cuda")
    cold = infer(ODD["primes"], LocPMAP(n_samples=3, blocks="rows", line_noise="joint", temperature=0))
    assert cold.noise == "none"
