"""Blocks: their sites and order, errors for invalid blocks, and climbs that solve every block exactly."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import statistics
from tests.oracles.enumeration import Enumeration
from tests.oracles.models import Floats, Ints, PairwiseModel, random_grid, random_model, structure_edges
from tests.support.strategies import models

from locpmap.errors import InputError, InputTypeError, TooLargeError
from locpmap.graphs import Box, Graph, Grid
from locpmap.graphs import blocks as blocks_module
from locpmap.graphs.blocks import MAX_JOINT, fits, plan_blocks
from locpmap.inference import infer
from locpmap.inference.locpmap import LocPMAP
from locpmap.kernels.block_plan import BlockPlan
from locpmap.kernels.reference import noise
from locpmap.kernels.reference.scores import edge_tables
from locpmap.noise import key_of
from locpmap.potentials import Potentials
from locpmap.result import Status


def block_sites(plan: BlockPlan) -> list[list[int]]:
    return [plan.site[begin:stop].tolist() for begin, stop in itertools.pairwise(plan.ptr.tolist())]


def check_plan(plan: BlockPlan, structure: Box | Graph) -> None:
    """Check that each family covers every site once, and that parents come first and are listed as neighbours."""
    blocks, near = block_sites(plan), structure.adjacency()
    n_families = len(plan.block_of)
    assert sorted(itertools.chain(*blocks)) == sorted(n_families * list(range(structure.n_sites)))
    seen = set()
    for f in range(n_families):
        for site in range(structure.n_sites):
            assert site in blocks[plan.block_of[f, site]]
            seen.add((int(plan.block_of[f, site]), site))
    assert len(seen) == len(plan.site)  # no block belongs to two families
    for b, sites in enumerate(blocks):
        inner = [pair for pair in structure.edges().tolist() if set(pair) <= set(sites)]
        parents = plan.parent[plan.ptr[b] : plan.ptr[b + 1]]
        slots = plan.parent_slot[plan.ptr[b] : plan.ptr[b + 1]]
        assert ((parents < 0) == (slots < 0)).all()
        if plan.joint[b]:
            assert (parents == -1).all()
            continue
        assert (parents < np.arange(len(sites))).all()
        assert (parents >= 0).sum() == len(inner)  # a forest: every inner edge joins a site to its parent
        for j in np.flatnonzero(parents >= 0):
            assert near.indptr[sites[j]] <= slots[j] < near.indptr[sites[j] + 1]
            assert near.neighbour[slots[j]] == sites[parents[j]]


def check_classes(blocks: list[list[int]], classes: list[int], structure: Box | Graph) -> None:
    """Check that blocks of one class are consecutive and share no edge."""
    assert classes == sorted(classes)
    class_of = np.full(structure.n_sites, -1)
    block_of = np.full(structure.n_sites, -1)
    for b, sites in enumerate(blocks):
        class_of[sites], block_of[sites] = classes[b], b
    first, second = structure.edges().T
    touching = block_of[first] != block_of[second]
    assert (class_of[first] != class_of[second])[touching].all()


# lines


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 1), (3, 5)])
@pytest.mark.parametrize("name", ["rows", "columns"])
def test_lines_are_chains_with_even_lines_first(name: str, shape: tuple[int, int], connectivity: int) -> None:
    grid = Grid(*shape, connectivity)
    plan = plan_blocks(name, grid, 2)
    number = np.arange(grid.n_sites).reshape(shape)
    lines = (number if name == "rows" else number.T).tolist()
    assert block_sites(plan) == lines[::2] + lines[1::2]
    assert not plan.joint.any()
    check_plan(plan, grid)
    check_classes(block_sites(plan), [0] * len(lines[::2]) + [1] * len(lines[1::2]), grid)


def test_rows_and_columns_are_two_families() -> None:
    grid = Grid(2, 3)
    plan = plan_blocks("rows+columns", grid, 5)
    assert block_sites(plan) == [[0, 1, 2], [3, 4, 5], [0, 3], [2, 5], [1, 4]]
    assert plan.block_of.tolist() == [[0, 0, 0, 1, 1, 1], [2, 4, 3, 2, 4, 3]]
    check_plan(plan, grid)


def test_lines_of_a_window_have_the_parity_of_the_whole_grid() -> None:
    window = Grid(3, 2, row=3, column=1, full_width=8)
    assert block_sites(plan_blocks("rows", window, 2)) == [[2, 3], [0, 1], [4, 5]]  # rows 4, then 3 and 5
    assert block_sites(plan_blocks("columns", window, 2)) == [[1, 3, 5], [0, 2, 4]]  # column 2, then 1


# tiles


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("tile", [(1, 1), (2, 2), (1, 3), (3, 1), (9, 9)])
def test_tiles_of_one_class_do_not_touch(tile: tuple[int, int], connectivity: int) -> None:
    grid = Grid(5, 7, connectivity)
    if tile == (9, 9):
        grid, tile = Grid(2, 3, connectivity), (3, 4)  # larger than the grid: one block
    plan = plan_blocks(tile, grid, 2)
    blocks = block_sites(plan)
    check_plan(plan, grid)
    assert plan.joint.all()
    classes = []
    for sites in blocks:
        rows, columns = np.divmod(sites, grid.width)
        (tile_row,), (tile_column,) = set(rows // tile[0]), set(columns // tile[1])
        classes.append((tile_row + tile_column) % 2 if connectivity == 4 else 2 * (tile_row % 2) + tile_column % 2)
        assert sites == sorted(sites)
    check_classes(blocks, [int(c) for c in classes], grid)
    n_tiles = -(-grid.height // tile[0]) * -(-grid.width // tile[1])
    assert len(blocks) == n_tiles


def test_window_has_the_tiles_of_the_whole_grid() -> None:
    """Tiles are aligned to the whole grid, so tile borders inside a window are the same."""
    whole, window = Grid(6, 8), Grid(3, 4, row=2, column=3, full_width=8)
    ids = window.site_ids()
    cut = [sorted(set(sites) & set(ids.tolist())) for sites in block_sites(plan_blocks((2, 2), whole, 2))]
    found = [ids[sites].tolist() for sites in block_sites(plan_blocks((2, 2), window, 2))]
    assert found == [sites for sites in cut if sites]


# lists


def test_unlisted_sites_become_single_site_blocks() -> None:
    graph = Graph(5, [[0, 1], [1, 2], [2, 3], [3, 4]])
    plan = plan_blocks([[2, 1]], graph, 2)
    assert sorted(block_sites(plan)) == [[0], [1, 2], [3], [4]]
    assert plan.joint.all()
    check_plan(plan, graph)


@pytest.mark.parametrize("structure", ["tree", "star", "chain"])
@pytest.mark.parametrize("n_labels", [2, 3])
def test_forests_too_large_to_enumerate_are_solved_as_forests(structure: str, n_labels: int) -> None:
    graph = Graph(20, structure_edges(structure, 20, np.random.default_rng(1)))
    every_other = [s for s in range(20) if s != 5]  # omitting a site splits the tree
    for blocks in ([list(range(20))], [every_other]):
        plan = plan_blocks(blocks, graph, n_labels)
        check_plan(plan, graph)
        longest = int(np.diff(plan.ptr).argmax())
        assert not plan.joint[longest]
        assert set(block_sites(plan)[longest]) == set(blocks[0])


def test_small_blocks_are_enumerated_and_large_forests_are_not() -> None:
    chain = Graph(13, structure_edges("chain", 13, np.random.default_rng(0)))
    assert plan_blocks([list(range(12))], chain, 2).joint[0]  # 2^12 = MAX_JOINT
    assert not plan_blocks([list(range(13))], chain, 2).joint[0]
    assert MAX_JOINT == 4096
    assert fits(2, 12)
    assert not fits(2, 13)
    assert fits(4096, 1)
    assert not fits(4097, 1)
    assert fits(1, 10_000)


def test_listed_blocks_of_one_class_do_not_touch() -> None:
    grid = Grid(4, 6)
    number = np.arange(24).reshape(4, 6)
    corners = [number[r : r + 2, c : c + 2].ravel().tolist() for r in (0, 2) for c in (0, 2, 4)]
    plan = plan_blocks(corners, grid, 2)
    check_plan(plan, grid)
    colour = [((sites[0] // 6) // 2 + (sites[0] % 6) // 2) % 2 for sites in block_sites(plan)]
    check_classes(block_sites(plan), colour, grid)


def test_large_block_with_a_loop_raises_an_error() -> None:
    cycle = Graph(14, structure_edges("cycle", 14, np.random.default_rng(0)))
    with pytest.raises(TooLargeError) as error:
        plan_blocks([list(range(14))], cycle, 2)
    assert str(error.value) == (
        "blocks[0] has 14 sites with a loop and 2^14 joint labellings,"
        " expected a forest or at most 4096 joint labellings: split it"
    )
    check_plan(plan_blocks([list(range(13))], cycle, 2), cycle)  # one site less is a chain


GRID, GRAPH = Grid(3, 4), Graph(4, [[0, 1], [1, 2], [2, 3]])


@pytest.mark.parametrize(
    ("blocks", "structure", "error", "message"),
    [
        ("rows", GRAPH, InputError, "blocks='rows' needs a grid or a volume; on a graph give a list of site lists"),
        ((2, 2), GRAPH, InputError, "blocks given as a tile (h, w) need a grid; on a graph give a list of site lists"),
        ((0, 2), GRID, InputError, "a side of the tile in blocks is 0, expected a whole number of at least 1"),
        ((3, 5), GRID, TooLargeError, "blocks=(3, 5) has 2^15 joint labellings, expected at most 4096"),
        ([[0, 1], [1, 2]], GRAPH, InputError, "blocks[1] holds a site that is already in a block, expected disjoint"),
        ([[0, 0]], GRAPH, InputError, "blocks[0] holds a site that is already in a block, expected disjoint blocks"),
        ([[0, 4]], GRAPH, InputError, "blocks[0] runs from 0 to 4, expected sites 0 to 3"),
        ([[-1, 2]], GRAPH, InputError, "blocks[0] runs from -1 to 2, expected sites 0 to 3"),
        ([[0], []], GRAPH, InputError, "blocks[1] is [], expected a non-empty list of sites"),
        ([[0.5, 1.0]], GRAPH, InputError, "blocks[0] is [0.5, 1.0], expected a non-empty list of sites"),
        ([0, 1], GRAPH, InputError, "blocks[0] is 0, expected a non-empty list of sites"),
        ([[0, [1, 2]]], GRAPH, InputError, "blocks[0] is ragged: expected an array with one shape"),
        (None, GRID, InputTypeError, "blocks is None, expected a name, a tile such as (h, w) or a list of site lists"),
        (7, GRID, InputTypeError, "blocks is 7, expected a name, a tile such as (h, w) or a list of site lists"),
    ],
)
def test_bad_blocks_raise_errors(blocks: Any, structure: Grid | Graph, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as refusal:
        plan_blocks(blocks, structure, 2)
    assert str(refusal.value).startswith(message)


# climbing by blocks


def check_block_optimal(model: PairwiseModel, plan: BlockPlan, seed: int, sample: int, y: Ints, scale: float) -> None:
    """Check by enumeration that no other joint labelling of any block raises the perturbed score."""
    n_labels, sites = model.unary.shape[1], np.arange(len(model.unary))
    on_sites = scale * noise.gumbel(key_of(seed), 0, sample, sites, n_labels)
    number = np.ravel_multi_index(tuple(y), (n_labels,) * len(y))
    for b, block in enumerate(block_sites(plan)):
        unary: Floats = model.unary if plan.joint[b] else model.unary + on_sites
        exact = Enumeration(unary, model.edges, model.tables)
        index = exact.block_index(block)
        column = int(np.flatnonzero((index == number).any(axis=0))[0])
        scores = exact.scores[index[:, column]]
        if plan.joint[b]:
            scores = scores + scale * noise.gumbel(key_of(seed), 0, sample, sites[block[:1]], len(scores))[0]
        found = scores[np.flatnonzero(index[:, column] == number)[0]]
        assert scores.max() <= found + 1e-6, f"block {block} has a better labelling"


@pytest.mark.parametrize("backend", ["reference", "numba"])
@pytest.mark.parametrize(
    "blocks", ["rows", "columns", "rows+columns", "rows:2", (2, 2), (1, 3), [[0, 1, 4], [2, 6], [7, 3]]], ids=str
)
@pytest.mark.parametrize("kind", ["potts", "random"])
def test_every_block_is_optimal(kind: str, blocks: Any, backend: str) -> None:
    grid = random_grid(2, 4, 3, kind, coupling=1.5, seed=1)
    pot = Potentials.grid(grid.unary, (grid.horizontal, grid.vertical))
    plan = plan_blocks(blocks, pot.structure, 3)
    result = infer(pot, LocPMAP(6, blocks=blocks, keep_samples=True, temperature=0.7), seed=3, backend=backend)
    assert result.status is Status.COMPLETE
    for sample, y in enumerate(result.samples.reshape(6, 8)):
        check_block_optimal(grid.flatten(), plan, 3, sample, y, 0.7)


@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_tree_blocks_on_a_graph_are_optimal(backend: str) -> None:
    model = random_model("tree", n_sites=14, n_labels=2, coupling=2.0, forbidden=0.1, seed=2)
    blocks = [[s for s in range(14) if s != 6]]
    plan = plan_blocks(blocks, Graph(14, model.edges), 2)
    assert not plan.joint.all()
    result = infer(Potentials.graph(*model), LocPMAP(4, blocks=blocks, keep_samples=True), backend=backend)
    for sample, y in enumerate(result.samples):
        check_block_optimal(model, plan, 0, sample, y, 1.0)


def has_loop(edges: np.ndarray, sites: list[int]) -> bool:
    """Return whether the edges between the sites contain a loop."""
    tree = {site: site for site in sites}

    def root(site: int) -> int:
        return site if tree[site] == site else root(tree[site])

    for i, j in edges.tolist():
        if i in tree and j in tree:
            if root(i) == root(j):
                return True
            tree[root(i)] = root(j)
    return False


@settings(max_examples=60)
@given(pot=models(), data=st.data(), seed=st.integers(0, 999))
def test_any_blocks_of_any_graph(pot: Potentials, data: st.DataObject, seed: int) -> None:
    """A low limit on enumeration makes most blocks forests.  Rejected blocks have a loop; all others are solved."""
    block_of = data.draw(st.lists(st.integers(0, 2), min_size=pot.n_sites, max_size=pot.n_sites))
    listed = [[s for s in range(pot.n_sites) if block_of[s] == b] for b in (0, 1)]  # the rest are single sites
    listed = [sites for sites in listed if sites]
    decoder = LocPMAP(3, blocks=listed, keep_samples=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "MAX_JOINT", 4)
        try:
            plan = plan_blocks(listed, pot.structure, pot.n_labels)
        except TooLargeError:
            assert any(has_loop(pot.structure.edges(), sites) for sites in listed)
            return
        check_plan(plan, pot.structure)
        found, reference = (infer(pot, decoder, seed=seed, backend=backend) for backend in ("numba", "reference"))
    np.testing.assert_array_equal(found.samples, reference.samples)
    if pot.n_labels**pot.n_sites <= 5000:
        tables = edge_tables(pot.model, 0, np.arange(len(pot.model.edges)))
        for sample, y in enumerate(reference.samples):
            check_block_optimal(
                PairwiseModel(pot.unary[0], pot.structure.edges().astype(np.int64), tables), plan, seed, sample, y, 1.0
            )


def test_one_block_of_all_sites_samples_the_model() -> None:
    """One block is global Perturb-and-MAP with noise on joint labellings, whose samples have distribution p."""
    grid = random_grid(2, 3, 2, seed=5)
    pot = Potentials.grid(grid.unary, (grid.horizontal, grid.vertical))
    samples = infer(pot, LocPMAP(4000, blocks=[list(range(6))], keep_samples=True)).samples.reshape(4000, 6)
    counts = np.bincount(samples @ 2 ** np.arange(5, -1, -1), minlength=64)
    assert statistics.chi_square_p_value(counts, Enumeration(*grid.flatten()).probability) > statistics.ERROR


def test_single_chain_block_does_not_depend_on_the_start() -> None:
    """The first update replaces all labels of the only row, so all starts give the same samples."""
    pot = Potentials.grid(np.random.default_rng(6).normal(size=(1, 9, 4)), np.random.default_rng(7).normal(size=(4, 4)))
    starts: list[Any] = ["random", "perturbed", np.zeros((1, 9), int)]
    runs = [infer(pot, LocPMAP(8, blocks="rows", start=start, keep_samples=True)).samples for start in starts]
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


@pytest.mark.parametrize(
    "blocks", ["rows", "rows+columns", "rows:3+columns:2", (2, 2), (3, 1), [[0, 1], [9, 8, 7]]], ids=str
)
@pytest.mark.parametrize("case", range(6))
def test_numba_blocks_equal_the_reference(blocks: Any, case: int) -> None:
    rng = np.random.default_rng(case)
    n_labels, images = (2, 3)[case % 2], ((2,), ())[case // 2 % 2]
    unary = rng.normal(size=(*images, 5, 4, n_labels))
    unary[..., 2, 1, 0] = -np.inf
    table = rng.normal(size=(n_labels, n_labels))
    table[0, 1] = -np.inf if case == 3 else 0.0
    pairwise: Any = (0.6, (rng.normal(size=(5, 3)), rng.normal(size=(4, 4))), table)[case % 3]
    connectivity = 8 if case == 4 else 4
    pairwise = 0.4 if case == 4 else pairwise
    pot = Potentials.grid(unary, pairwise, connectivity=connectivity, window=(1, 3, 9) if case % 2 else None)
    start: Any = ("random", "perturbed", pot.unflatten(pot.unary.argmax(axis=2)))[case % 3]
    decoder = LocPMAP(5, blocks=blocks, start=start, temperature=(1.0, 0.0, 2.0)[case // 2], keep_samples=True)
    found, reference = (infer(pot, decoder, seed=case, backend=backend) for backend in ("numba", "reference"))
    np.testing.assert_array_equal(found.samples, reference.samples)
    assert (found.n_sweeps, found.status) == (reference.n_sweeps, reference.status)


def test_parts_of_lines_are_aligned_and_coloured() -> None:
    grid = Grid(3, 5, row=1, column=2, full_width=9)
    plan = plan_blocks("rows:3", grid, 2)
    check_plan(plan, grid)
    # The window has columns 2 to 6 of the grid.  Parts end after columns 2 and 5.  Odd rows begin with odd parts.
    assert block_sites(plan) == [[1, 2, 3], [5], [9], [11, 12, 13], [0], [4], [6, 7, 8], [10], [14]]
    assert plan.parent.tolist() == [-1, 0, 1, -1, -1, -1, 0, 1, -1, -1, -1, 0, 1, -1, -1]
    assert not plan.joint.any()


@pytest.mark.parametrize("connectivity", [4, 8])
def test_parts_of_full_length_equal_whole_lines(connectivity: int) -> None:
    pot = Potentials.grid(np.random.default_rng(0).normal(size=(5, 6, 3)), 0.7, connectivity=connectivity)
    whole, parts = (infer(pot, LocPMAP(9, blocks=b, keep_samples=True)).samples for b in ("rows", "rows:6"))
    np.testing.assert_array_equal(whole, parts)
