"""Gibbs sampling by blocks and clusters: plans, exact conditionals, stationary distributions, agreement of chains."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import random_grid, random_model
from tests.oracles.statistics import check_z, chi_square_p_value
from tests.oracles.transfer_matrix import TransferMatrix
from tests.support.decoding import check_identical, problem_of
from tests.support.odd_models import FORBIDDEN, ODD, normal

from locpmap.errors import InputError, InputTypeError, TooLargeError
from locpmap.graphs import Graph, Grid, Volume
from locpmap.graphs.block_draws import combs, forests, plan_draws
from locpmap.inference import decoder, infer, samples
from locpmap.inference.decoder import Problem
from locpmap.inference.gibbs import Gibbs, start_labels
from locpmap.inference.mixing import Halves, agreement, exchange
from locpmap.kernels.block_plan import DrawPlan
from locpmap.kernels.cpu.backend import CpuKernels, spread
from locpmap.kernels.cpu.dispatch import kernel_of
from locpmap.kernels.model import CONDITIONAL, VOTES
from locpmap.kernels.placement import BACKENDS
from locpmap.kernels.spec import Chain
from locpmap.potentials import Potentials
from locpmap.result import Status

KEY = (3, 5)
ON_GRIDS = ["rows", "columns:2", "rows+columns", "strips:2", "trees", (2, 2), [[0, 1, 3, 4], [2]]]
GRIDS = [case for case, pot in ODD.items() if isinstance(pot.structure, Grid) and pot.n_sites > 4]
CASES = [
    *itertools.product(GRIDS, ON_GRIDS),
    *itertools.product([case for case in ODD if case not in GRIDS], ["trees", [[0]]]),
    *itertools.product(["table per edge and image", "factored", "forbidden pairs", "far apart"], [[[0, 1, 2, 4], [3]]]),
]


# plans


def blocks_of(plan: DrawPlan) -> list[list[int]]:
    """Return the sites of each block, after checking its operations."""
    blocks = []
    for begin, stop in itertools.pairwise(plan.ptr.tolist()):
        frontier: list[int] = []
        added: list[int] = []
        for site, removed in zip(plan.site[begin:stop].tolist(), plan.removed[begin:stop].tolist(), strict=True):
            if removed < 0:
                added.append(site)
                frontier.append(site)
            else:
                assert frontier.pop(removed) == site
            assert len(frontier) <= plan.width
        assert not frontier
        assert len(set(added)) == len(added) == (stop - begin) // 2
        blocks.append(added)
    return blocks


def check_plan(plan: DrawPlan, structure: Grid | Graph) -> None:
    """Check that families cover all sites, and that no site is summed out before its neighbours were added."""
    blocks = blocks_of(plan)
    for f, (begin, stop) in enumerate(itertools.pairwise(plan.family_ptr.tolist())):
        assert sorted(itertools.chain(*blocks[begin:stop])) == list(range(structure.n_sites))
        for b in range(begin, stop):
            assert (plan.block_of[f, blocks[b]] == b).all()
            step = {
                (int(site), bool(removed < 0)): t
                for t, (site, removed) in enumerate(
                    zip(plan.site[plan.ptr[b] :], plan.removed[plan.ptr[b] : plan.ptr[b + 1]], strict=False)
                )
            }
            for i, j in structure.edges().tolist():
                if plan.block_of[f, i] == b == plan.block_of[f, j]:
                    assert max(step[i, True], step[j, True]) < min(step[i, False], step[j, False])


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (5, 7), (6, 4)])
@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("blocks", [*ON_GRIDS, (3, 2), "strips:3", (9, 9)], ids=str)
def test_plans_of_grids(blocks: Any, shape: tuple[int, int], connectivity: int) -> None:
    grid = Grid(*shape, connectivity)
    check_plan(plan_draws(blocks, grid, 2), grid)


@pytest.mark.parametrize(("blocks", "width"), [("rows", 2), ("trees", 3), ("strips:4", 5), ((3, 9), 4)])
def test_width_of_the_frontier(blocks: Any, width: int) -> None:
    assert plan_draws(blocks, Grid(12, 11), 2).width == width


def test_strips_move() -> None:
    plan = plan_draws("strips:4", Grid(8, 9), 2)
    first_rows = [sorted({site // 9 for site in block}) for block in blocks_of(plan)]
    assert first_rows[:2] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert plan.family_ptr.tolist() == [0, 2, 5, 8, 11]
    assert first_rows[5:8] == [[0, 1], [2, 3, 4, 5], [6, 7]]


@pytest.mark.parametrize("seed", range(5))
def test_forests_have_no_cycles(seed: int) -> None:
    model = random_model("grid", "random", 30, 2, seed=seed)
    for graph in (Graph(30, model.edges), Graph(9, random_model("full", "random", 9, 2, seed=seed).edges)):
        parts = forests(graph)
        assert sorted(np.concatenate(parts).tolist()) == list(range(graph.n_sites))
        for part in parts:
            inner = [pair for pair in graph.edges().tolist() if set(pair) <= set(part.tolist())]
            assert n_components(part.tolist(), inner) == len(part) - len(inner)


def n_components(sites: list[int], edges: list[list[int]]) -> int:
    of = {site: site for site in sites}
    for i, j in edges:
        old = of[i]
        of = {site: of[j] if root == old else root for site, root in of.items()}
    return len(set(of.values()))


@pytest.mark.parametrize("across", [False, True])
def test_combs_are_trees(across: bool) -> None:
    grid = Grid(5, 6)
    for part in combs(grid, across=across):
        inner = [pair for pair in grid.edges().tolist() if set(pair) <= set(part.tolist())]
        assert (n_components(part.tolist(), inner), len(inner)) == (1, len(part) - 1)


@pytest.mark.parametrize(
    ("blocks", "structure", "n_labels", "message"),
    [
        ((16, 16), Grid(20, 20), 2, r"block of 256 sites that needs a table of 2\^17 entries, expected at most 65536"),
        ("strips:8", Grid(20, 20), 5, r"5\^9"),
        ("rows:9999", Grid(3, 4), 300, r"block of 4 sites .* 300\^2"),
        ("trees", Grid(9, 9), 50, r"50\^3"),
        ([list(range(20))], Graph(20, list(itertools.combinations(range(20), 2))), 2, r"20 sites .* 2\^20"),
        ((2000, 14), Grid(2000, 20), 2, "entries for a block"),
    ],
)
def test_blocks_that_are_too_large_are_refused(blocks: Any, structure: Any, n_labels: int, message: str) -> None:
    with pytest.raises(TooLargeError, match=message):
        plan_draws(blocks, structure, n_labels)


def test_bad_blocks() -> None:
    grid, graph, volume = Grid(3, 4), Graph(3, [[0, 1]]), Volume(2, 3, 4)
    for blocks, structure, error, message in (
        ("row", grid, InputError, "did you mean 'rows'"),
        ("strips:0", grid, InputError, "strips"),
        ("rows", graph, InputError, "list of site lists on a graph"),
        ("rows", volume, InputError, "blocks is 'rows', expected 'sites', 'trees', .* in a volume"),
        ((2, 2, 2), volume, InputError, "list of site lists in a volume"),
        (([1], 2), grid, InputError, r"blocks\[1\] is 2, expected a non-empty list of sites"),
        ((2, 2), graph, InputError, r"\(2, 2\)"),
        ((2, 2, 2), grid, InputError, "tile"),
        ((0, 2), grid, InputError, "at least 1"),
        (3, grid, InputTypeError, "blocks is 3"),
        ([[0, 0]], graph, InputError, "already in a block"),
    ):
        with pytest.raises(error, match=message):
            plan_draws(blocks, structure, 2)
    np.testing.assert_equal(plan_draws(([0, 1], [2]), grid, 2), plan_draws([[0, 1], [2]], grid, 2))


# kernels compared with the reference


@pytest.mark.parametrize(("case", "blocks"), CASES, ids=str)
def test_every_draw_agrees_with_the_reference(case: str, blocks: Any) -> None:
    pot, runs = ODD[case], []
    plan = plan_draws(blocks, pot.structure, pot.n_labels)
    for backend in BACKENDS:
        problem = problem_of(pot, backend)
        votes, sums = np.zeros(pot.unary.shape), np.zeros(pot.unary.shape)
        chain = Chain(start_labels("random", problem), KEY, 2, votes, VOTES, draws=plan)
        problem.kernels.gibbs(problem.view, chain, 6)
        chain.totals, chain.adds, chain.start_temperature = sums, CONDITIONAL, 0.7
        problem.kernels.gibbs(problem.view, chain, 6)
        runs.append((chain.labels, votes, sums))
    (labels, votes, sums), (my_labels, my_votes, my_sums) = runs
    np.testing.assert_array_equal(my_labels, labels)
    np.testing.assert_array_equal(my_votes, votes)
    np.testing.assert_allclose(my_sums, sums, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.sum(axis=2), 6, rtol=1e-12)
    assert (sums[pot.unary == FORBIDDEN] == 0).all()


@pytest.mark.parametrize(
    ("blocks", "height", "width", "scale"), [("strips:4", 9, 12, 1), ("strips:4", 9, 12, 30), ("rows", 1, 3_000, 8)]
)
def test_tables_of_exponentials_and_of_logarithms_give_the_same_draws(
    blocks: str, height: int, width: int, scale: float
) -> None:
    """Long products of small factors are scaled.  The scale of 30 is more than is used with exponentials."""
    terms = (normal(height, width - 1, scale=scale), normal(height - 1, width, scale=scale))
    pot = Potentials.grid(normal(height, width, 2, scale=scale), terms)
    plan = plan_draws(blocks, pot.structure, 2)
    runs = []
    for linear in (True, False):
        labels, sums = np.zeros((1, height * width), np.int64), np.zeros(pot.unary.shape)
        for sweep in range(40):
            kernel_of("numba", "gibbs_blocks")(
                pot.model, plan, labels, sums, CONDITIONAL, 1.0, linear, *KEY, sweep, 0, 0, 1
            )
        runs.append((labels, sums))
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    np.testing.assert_allclose(runs[0][1], runs[1][1], rtol=1e-8, atol=1e-12)


def test_spread_bounds_every_difference_of_local_scores() -> None:
    for case in ("primes", "batch", "table per edge and image", "factored", "forbidden labels", "eight neighbours"):
        pot, rng = ODD[case], np.random.default_rng(0)
        bound = spread(pot.view)
        for _ in range(20):
            labels = rng.integers(0, pot.n_labels, pot.unary.shape[:2])
            scores = pot.local_scores(pot.unflatten(labels)).reshape(-1, pot.n_labels)
            for row in scores:
                finite = row[np.isfinite(row)]
                assert np.ptp(finite) <= bound + 1e-9 if len(finite) else True


def test_forbidden_pairs_along_a_long_row() -> None:
    """All labels are equal, and 300 sites that favour label 0 are outweighed by the next 300."""
    unary = np.zeros((1, 600, 2))
    unary[0, :300, 0], unary[0, 300:, 1] = 5.0, 5.0
    unary[0, 0, 0] += 0.4
    pot = Potentials.grid(unary, np.array([[0.0, FORBIDDEN], [FORBIDDEN, 0.0]]))
    result = infer(pot, Gibbs(n_samples=1_000, burn_in=0, blocks="rows"), seed=1)
    p = 1 / (1 + np.exp(0.4))
    check_z((result.probability[0, 77, 1] - p) / np.sqrt(p * (1 - p) / 1_000))


@pytest.mark.parametrize("case", ["1x1", "1xn", "primes", "eight neighbours", "batch", "forbidden labels", "no edges"])
def test_every_cluster_agrees_with_the_reference(case: str) -> None:
    pot, runs = ODD[case], []
    model = pot.model._replace(features=np.abs(pot.model.features))
    for backend in BACKENDS:
        problem = problem_of(pot, backend)
        labels, votes, sums = start_labels("random", problem), np.zeros(pot.unary.shape), np.zeros(pot.unary.shape)
        for sweep in range(6):
            where = (*KEY, sweep, 2, 0, len(labels))
            kernel_of(backend, "gibbs_clusters")(model, labels, votes, VOTES, 1.0, *where)
            kernel_of(backend, "gibbs_clusters")(model, labels, sums, CONDITIONAL, 0.7, *where)
        runs.append((labels, votes, sums))
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    np.testing.assert_array_equal(runs[0][1], runs[1][1])
    np.testing.assert_allclose(runs[0][2], runs[1][2], rtol=1e-12, atol=1e-15)


# conditionals and stationary distributions, by enumeration


@pytest.mark.parametrize(
    ("blocks", "kind", "n_labels"), [(b, "random", 2) for b in ON_GRIDS] + [("rows", "potts", 3)], ids=str
)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_blocks_are_drawn_with_their_conditional_probability(
    blocks: Any, kind: str, n_labels: int, temperature: float
) -> None:
    """The product of the probabilities from which a block's labels were drawn is p(block | all other labels)."""
    grid = random_grid(2, 3, n_labels, kind, coupling=1.5, seed=4)
    model = grid.flatten()
    exact = Enumeration(model.unary / temperature, model.edges, model.tables / temperature)
    pot = Potentials.grid(grid.unary, (grid.horizontal, grid.vertical))
    plan = plan_draws(blocks, pot.structure, n_labels)
    place = n_labels ** np.arange(6)[::-1]
    every, rng = blocks_of(plan), np.random.default_rng(0)
    for sweep in range(60):
        f = sweep % (len(plan.family_ptr) - 1)
        old = rng.integers(0, n_labels, 6)
        new, p = old[None].copy(), np.zeros(pot.unary.shape)
        kernel_of("numba", "gibbs_blocks")(
            pot.model, plan, new, p, CONDITIONAL, temperature, True, *KEY, sweep, 0, 0, 1
        )
        for block in every[plan.family_ptr[f] : plan.family_ptr[f + 1]]:
            old[block] = new[0, block]  # earlier blocks of the sweep have their new labels
            expected = exact.block_conditional(block)[old @ place]
            assert p[0, block, new[0, block]].prod() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("blocks", [*ON_GRIDS, "clusters"], ids=str)
def test_one_sweep_leaves_the_distribution_invariant(blocks: Any) -> None:
    """Exact samples remain exact after every sweep; 20,000 images are 20,000 chains."""
    n_chains, kind = 20_000, "attractive" if blocks == "clusters" else "random"
    grid = random_grid(2, 3, 2, kind, coupling=1.2, seed=5)
    exact = Enumeration(*grid.flatten())
    terms = (grid.horizontal, grid.vertical)
    if blocks == "clusters":  # as Potts weights, which equal the tables up to unary terms in this model
        pot = Potentials.grid(grid.unary, 0.8)
        tables = np.broadcast_to(0.8 * np.eye(2), (len(pot.model.edges), 2, 2))
        exact = Enumeration(grid.unary.reshape(6, 2), pot.model.edges.astype(np.int64), tables)
        terms = 0.8  # type: ignore[assignment]
    pot = Potentials.grid(np.broadcast_to(grid.unary, (n_chains, 2, 3, 2)), terms)
    drawn = np.random.default_rng(1).choice(len(exact.probability), n_chains, p=exact.probability)
    place = 2 ** np.arange(6)[::-1]
    plan = None if blocks == "clusters" else plan_draws(blocks, pot.structure, 2)
    chain = Chain(exact.labellings[drawn].astype(np.int64), KEY, 0, draws=plan, clusters=plan is None)
    for _ in range(5):
        CpuKernels("numba").gibbs(pot.view, chain, 1)
        counts = np.bincount(chain.labels @ place, minlength=64)
        assert chi_square_p_value(counts, exact.probability) > 1e-6
    assert (chain.labels @ place != exact.labellings[drawn] @ place).mean() > 0.5


@pytest.mark.parametrize("structure", ["graph", "volume", "eight neighbours"])
def test_one_sweep_over_trees_leaves_the_distribution_invariant(structure: str) -> None:
    """Trees of any structure, which differ from those of a grid of four neighbours."""
    n_chains, unary = 20_000, np.random.default_rng(0).normal(size=(6, 2))
    many = np.broadcast_to(unary, (n_chains, 6, 2))
    if structure == "graph":
        edges = [[i, j] for i, j in itertools.combinations(range(6), 2) if (i + j) % 3]
        pot = Potentials.graph(many, edges, 0.7)
    elif structure == "volume":
        pot = Potentials.volume(many.reshape(n_chains, 1, 2, 3, 2), 0.7)
    else:
        pot = Potentials.grid(many.reshape(n_chains, 2, 3, 2), 0.7, connectivity=8)
    edges = pot.model.edges.astype(np.int64)
    exact = Enumeration(unary, edges, np.broadcast_to(0.7 * np.eye(2), (len(edges), 2, 2)))
    drawn = np.random.default_rng(1).choice(len(exact.probability), n_chains, p=exact.probability)
    chain = Chain(exact.labellings[drawn].astype(np.int64), KEY, 0, draws=plan_draws("trees", pot.structure, 2))
    place = 2 ** np.arange(6)[::-1]
    for _ in range(5):
        CpuKernels("numba").gibbs(pot.view, chain, 1)
        assert chi_square_p_value(np.bincount(chain.labels @ place, minlength=64), exact.probability) > 1e-6
    moved = (chain.labels @ place != exact.labellings[drawn] @ place).mean()
    assert moved > 0.5 * (1 - (exact.probability**2).sum())  # of independent samples, 1 - sum(p²) differ


def cluster_transitions(unary: np.ndarray, edges: np.ndarray, weight: float) -> tuple[Enumeration, np.ndarray]:
    """Return the Swendsen-Wang transition matrix by enumeration of labels and joined edges."""
    exact = Enumeration(unary, edges, np.broadcast_to(weight * np.eye(unary.shape[1]), (len(edges), 2, 2)))
    matrix = np.zeros((len(exact.labellings),) * 2)
    for state, y in enumerate(exact.labellings):
        equal = y[edges[:, 0]] == y[edges[:, 1]]
        for joined in itertools.product([False, True], repeat=len(edges)):
            if (np.array(joined) & ~equal).any():
                continue
            p = np.prod(
                [(1 - np.exp(-weight)) if j else np.exp(-weight) for j, e in zip(joined, equal, strict=True) if e]
            )
            of = np.arange(len(unary))
            for i, j in edges[list(joined)]:
                of[of == of[i]] = of[j]
            for target, z in enumerate(exact.labellings):
                if all(len(set(z[of == c])) == 1 for c in of):
                    q = [np.exp(unary[of == c].sum(0)) for c in set(of)]
                    chosen = [z[of == c][0] for c in set(of)]
                    matrix[state, target] += p * np.prod([w[k] / w.sum() for w, k in zip(q, chosen, strict=True)])
    return exact, matrix


def test_transitions_of_clusters() -> None:
    """From every state of a 2 × 2 grid, transitions have the enumerated probabilities, which leave p invariant."""
    unary, weight, n = np.random.default_rng(0).normal(size=(4, 2)), 0.9, 4_000
    edges = Grid(2, 2).edges().astype(np.int64)
    exact, matrix = cluster_transitions(unary, edges, weight)
    np.testing.assert_allclose(exact.probability @ matrix, exact.probability, atol=1e-12)
    pot = Potentials.grid(np.broadcast_to(unary.reshape(2, 2, 2), (n, 2, 2, 2)), weight)
    for state, y in enumerate(exact.labellings):
        chain = Chain(np.tile(y, (n, 1)).astype(np.int64), KEY, n * state, clusters=True)
        CpuKernels("numba").gibbs(pot.view, chain, 1)
        counts = np.bincount(chain.labels @ [8, 4, 2, 1], minlength=16)
        assert chi_square_p_value(counts, matrix[state]) > 1e-7


def test_exchange_leaves_the_joint_distribution_invariant() -> None:
    n, temperatures = 40_000, (1.0, 2.5)
    unary, table = np.array([[0.3, -0.2], [0.1, 0.4]]), np.array([[1.5, -1.0], [-0.5, 2.0]])
    pot = Potentials.graph(np.broadcast_to(unary, (n, 2, 2)), [[0, 1]], table)
    models = [Enumeration(unary / t, np.array([[0, 1]]), table[None] / t) for t in temperatures]
    rng = np.random.default_rng(2)
    drawn = [rng.choice(4, n, p=model.probability) for model in models]
    ladder = [
        Chain(models[0].labellings[d].astype(np.int64), KEY, 0, start_temperature=t)
        for d, t in zip(drawn, temperatures, strict=True)
    ]
    exchange(problem_of(pot, "numba"), [ladder])
    states = [chain.labels @ [2, 1] for chain in ladder]
    joint = np.outer(models[0].probability, models[1].probability)
    assert chi_square_p_value(np.bincount(4 * states[0] + states[1], minlength=16), joint) > 1e-6
    assert (states[0] != drawn[0]).mean() > 0.1  # labels were exchanged
    ladder[0].sweeps = 1  # odd sweeps exchange from the second temperature on, which has no partner
    before = ladder[0].labels
    exchange(problem_of(pot, "numba"), [ladder])
    assert ladder[0].labels is before


@pytest.mark.parametrize(
    "options", [{"blocks": "strips:2"}, {"blocks": "trees"}, {"tempering": 3}, {"blocks": (2, 3)}], ids=str
)
def test_marginals_of_a_narrow_grid(options: dict[str, Any]) -> None:
    """Means of 100 independent images agree with the transfer matrix."""
    grid = random_grid(7, 5, 2, "random", coupling=1.0, seed=6)
    unary = np.broadcast_to(grid.unary, (100, *grid.unary.shape))
    pot = Potentials.grid(unary, (grid.horizontal, grid.vertical))
    result = infer(pot, Gibbs(n_samples=40, burn_in=60, probability="conditional", **options), seed=3)
    means = result.probability[..., 1].reshape(100, -1)
    exact = TransferMatrix(*grid).marginals[..., 1].ravel()
    z = (means.mean(axis=0) - exact) / (means.std(axis=0, ddof=1) / 10)
    assert np.abs(z).max() < 5.5  # Student's t of 99 degrees of freedom at 35 sites: 1e-5


# agreement of chains


def markov_means(n_parts: int, length: int, stay: float, p: float, n_sites: int, seed: int = 0) -> np.ndarray:
    """Return means (J, 1, S, 2) of chains that keep their label with probability ``stay``, else draw it anew."""
    rng = np.random.default_rng(seed)
    state = rng.random((n_parts, n_sites)) < p
    total = np.zeros(state.shape)
    for _ in range(length):
        state = np.where(rng.random(state.shape) < stay, state, rng.random(state.shape) < p)
        total += state
    return np.stack([1 - total / length, total / length], axis=-1)[:, None]


@pytest.mark.parametrize("stay", [0.0, 0.5, 0.9])
def test_effective_number_of_samples_of_known_chains(stay: float) -> None:
    """The autocorrelation stay^k leaves (1 - stay) / (1 + stay) of the samples."""
    n_parts, length, n_sites = 8, 500, 2_000
    r_hat, n_effective = agreement(markov_means(n_parts, length, stay, 0.3, n_sites), length)
    expected = n_parts * length * (1 - stay) / (1 + stay)
    assert n_effective[0] == pytest.approx(expected, rel=5 * np.sqrt(2 / (n_sites * (n_parts - 1))) + 0.02)
    assert r_hat[0] < 1.1


def test_coverage_of_r_hat() -> None:
    """Chains that mix are hardly ever rejected; chains of which one has other marginals always are."""
    mixed = [agreement(markov_means(8, 200, 0.5, 0.4, 50, seed), 200)[0][0] for seed in range(200)]
    assert (np.array(mixed) > 1.1).mean() < 0.02
    for seed in range(20):
        means = markov_means(8, 200, 0.5, 0.3, 50, seed)
        means[:2] = markov_means(2, 200, 0.5, 0.9, 50, seed + 100)  # the halves of one chain
        assert agreement(means, 200)[0][0] > 1.1
    stuck = np.array([0.0, 1.0, 0.0, 1.0])[:, None, None, None] * np.ones((1, 1, 3, 1))
    assert agreement(stuck, 10)[0][0] == np.inf
    r_hat, n_effective = agreement(np.ones((4, 1, 3, 1)), 10)
    assert (r_hat[0] <= 1, n_effective[0]) == (True, 40)


@pytest.mark.parametrize("step", [1, 3, 64])
def test_halves_of_any_number_of_samples(step: int) -> None:
    halves, n = Halves(), 0
    while n < 600:
        n = min(n + step, max(1, 2 * n))  # as chains advance
        totals = [np.full((1, 1, 1), n / 2.0), np.full((1, 1, 1), n / 4.0)]
        halves.note(n, totals)
        if n >= 4:
            first = min(halves.marks, key=lambda mark: abs(2 * mark[0] - n))[0]
            assert 1 / 4 <= first / n <= 3 / 4
            between = np.var([0.5, 0.25, 0.5, 0.25], ddof=1)
            within = (0.25 + 0.1875) / 2 * (n / 2) / (n / 2 - 1)
            assert halves.read(n, totals)[0][0] == pytest.approx(np.sqrt(1 - 2 / n + between / within))


@pytest.mark.parametrize("probability", ["votes", "conditional"])
def test_status_tells_whether_chains_agree(probability: str) -> None:
    """Single sites never leave one of the two modes of a strong ferromagnet; clusters change between them."""
    pot = Potentials.grid(np.zeros((8, 8, 2)), 4.0)
    sites = Gibbs(n_samples=400, n_chains=4, probability=probability)
    stuck = infer(pot, sites, seed=1)
    assert (stuck.status, stuck.converged) == (Status.NOT_MIXED, False)
    assert stuck.r_hat > 1.1 > infer(pot, replace(sites, blocks="clusters"), seed=1).r_hat


@pytest.mark.parametrize("burn_in", [0, 10])
def test_several_sweeps_per_step_give_the_same_chains(burn_in: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU performs up to 64 sweeps per step, which may be all counted ones of a chain."""
    pot = Potentials.grid(np.zeros((8, 8, 2)), 4.0)
    chains = Gibbs(n_samples=64, n_chains=4, burn_in=burn_in, thin=2, keep_samples=True)
    one = infer(pot, chains, seed=1)
    monkeypatch.setattr(Problem, "sweeps_per_step", property(lambda self: 64))
    many = infer(pot, chains, seed=1)
    assert (many.status, one.status) == (Status.NOT_MIXED, Status.NOT_MIXED)
    assert (many.r_hat, many.n_effective) == (one.r_hat, one.n_effective)
    np.testing.assert_array_equal(many.samples, one.samples)


def test_status_of_mixed_and_of_short_chains() -> None:
    pot = Potentials.grid(np.zeros((8, 8, 2)), 4.0)
    mixed = infer(pot, Gibbs(n_samples=4_000, n_chains=4, blocks="clusters"), seed=1)
    assert (mixed.status, mixed.n_samples) == (Status.COMPLETE, 4_000)
    error = 0.5 / np.sqrt(mixed.n_effective)
    check_z((mixed.probability[0, 0, 1] - 0.5) / error)
    stopped = infer(pot, Gibbs(n_samples=10**9, n_chains=4, burn_in=0), max_seconds=0.2, seed=1)
    assert stopped.status is Status.NOT_MIXED
    early = infer(pot, Gibbs(n_samples=400, n_chains=4), max_seconds=0)
    assert (early.status, early.r_hat, early.n_effective, early.n_sweeps) == (Status.BURN_IN, None, None, 1)
    assert infer(pot, Gibbs(n_samples=4), seed=1).r_hat is None


@pytest.mark.parametrize(
    "options", [{}, {"blocks": "rows"}, {"blocks": "strips:2"}, {"blocks": "clusters"}, {"tempering": 3}], ids=str
)
def test_time_limit_ends_a_run_after_the_sweep(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances by a second when it is read, which is once before the first sweep and once after each."""
    monkeypatch.setattr(decoder, "time", SimpleNamespace(perf_counter=itertools.count().__next__))
    pot = Potentials.grid(normal(5, 6, 2), 0.5)
    result = infer(pot, Gibbs(n_samples=4_000, n_chains=4, burn_in=0, **options), max_seconds=6.5)
    assert (result.n_sweeps, result.n_samples) == (7, 28)


@pytest.mark.parametrize("scale", [5.0, 10.0])
def test_strips_solve_frustrated_grids_where_single_sites_fail(scale: float) -> None:
    rng = np.random.default_rng(0)
    unary, right, down = (
        rng.uniform(-1, 1, (10, 10, 2)),
        rng.uniform(-scale, scale, (10, 9)),
        rng.uniform(-scale, scale, (9, 10)),
    )
    pot = Potentials.grid(unary, (right, down))
    exact = infer(pot, "exact").probability
    strips = infer(pot, Gibbs(n_samples=2_000, burn_in=50, n_chains=4, blocks="strips:7", probability="conditional"))
    sites = infer(pot, Gibbs(n_samples=4_000, n_chains=4))
    assert np.abs(strips.probability - exact).mean() < 0.02
    assert (strips.status, sites.status) == (Status.COMPLETE, Status.NOT_MIXED)
    rms = np.sqrt(strips.variance.mean() / strips.n_effective)
    assert 0.3 < np.sqrt(((strips.probability - exact) ** 2).mean()) / rms < 3


# options, threads, batches, samples

SETTINGS = [
    Gibbs(n_samples=6, n_chains=3, burn_in=2, probability="conditional"),
    Gibbs(n_samples=6, n_chains=3, blocks="trees", burn_in=2, probability="conditional"),
    Gibbs(n_samples=4, n_chains=2, blocks="trees", tempering=[1, 1.5, 4], burn_in=2),
    Gibbs(n_samples=4, blocks="trees", tempering=2, burn_in=2),
]


@pytest.mark.parametrize("decoder", SETTINGS, ids=repr)
@pytest.mark.parametrize("case", ["batch", "factored", "table per edge and image", "primes", "forbidden pairs"])
def test_results_do_not_depend_on_threads(decoder: Any, case: str) -> None:
    one, *others = (infer(ODD[case], decoder, n_threads=n, seed=3) for n in (1, 2, 3))
    for other in others:
        check_identical(one, other)
        np.testing.assert_array_equal(one.r_hat, other.r_hat)


@pytest.mark.parametrize(
    "decoder", [*SETTINGS, Gibbs(n_samples=4, n_chains=2, blocks="clusters", tempering=2)], ids=repr
)
def test_batch_equals_single_images(decoder: Any) -> None:
    unary, right, down = normal(3, 4, 5, 3), np.abs(normal(3, 4, 4)), np.abs(normal(3, 3, 5))
    batch = infer(Potentials.grid(unary, (right, down)), decoder, first_image=9)
    for n in range(3):
        alone = infer(Potentials.grid(unary[n], (right[n], down[n])), decoder, first_image=9 + n)
        assert alone.probability.tobytes() == batch.probability[n].tobytes()
        assert alone.r_hat == (None if batch.r_hat is None else batch.r_hat[n])


@pytest.mark.parametrize("chunk", [8, 64])
@pytest.mark.parametrize("n_chains", [1, 3, 10])
def test_samples_of_several_chains(n_chains: int, chunk: int) -> None:
    decoder = Gibbs(n_samples=30, n_chains=n_chains, burn_in=3, thin=2, keep_samples=True, blocks="rows")
    result = infer(ODD["primes"], decoder, seed=2)
    assert result.samples.shape == (30, 3, 5)
    np.testing.assert_array_equal(np.stack(list(samples(ODD["primes"], decoder, seed=2, chunk=chunk))), result.samples)
    np.testing.assert_allclose(result.probability, (result.samples[..., None] == np.arange(3)).mean(axis=0))


def test_first_chain_is_that_of_a_single_chain() -> None:
    one = infer(ODD["primes"], Gibbs(n_samples=5, keep_samples=True), seed=2)
    three = infer(ODD["primes"], Gibbs(n_samples=15, n_chains=3, keep_samples=True), seed=2)
    np.testing.assert_array_equal(three.samples[::3], one.samples)
    assert (three.samples[::3] != three.samples[1::3]).any()


@pytest.mark.parametrize("case", ["far apart", "far apart, tables", "nothing allowed"])
def test_extreme_scores(case: str) -> None:
    result = infer(ODD[case], SETTINGS[1])
    np.testing.assert_allclose(result.probability.sum(axis=-1), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_chains": 0}, "n_chains"),
        ({"n_chains": 3}, "n_samples is 100, expected a multiple of n_chains = 3"),
        ({"tempering": 0}, "tempering"),
        ({"tempering": [2, 3]}, "the first is 1"),
        ({"tempering": [1, 3, 2]}, "increasing"),
        ({"tempering": []}, "increasing"),
        ({"tempering": [1, 0.5]}, "temperature"),
    ],
    ids=str,
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Gibbs(**options)


def test_clusters_need_weights_of_at_least_0() -> None:
    for pot in (Potentials.grid(np.zeros((2, 2, 2)), -0.1), Potentials.grid(np.zeros((2, 2, 2)), np.eye(2))):
        if not pot.pairwise.least_weight >= 0:
            with pytest.raises(InputError, match="Potts weights"):
                infer(pot, Gibbs(blocks="clusters"))


def test_blocks_run_on_the_cpu() -> None:
    assert Gibbs().on_gpu
    assert not Gibbs(blocks="rows").on_gpu
