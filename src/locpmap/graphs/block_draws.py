"""Blocks that Gibbs sampling draws jointly, with the order of the sums that this takes.

The cost of a block is a table over its *frontier* (see `DrawPlan`): one site more than the narrow side of a tile, two
sites for a line and three for a comb.  Strips and tiles move by half their size from one family to the next, so that
borders move.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array, frozen
from locpmap.errors import InputError, InputTypeError, TooLargeError, unknown, whole_number
from locpmap.graphs.adjacency import Adjacency
from locpmap.graphs.blocks import CACHED_PLANS, LINES, check_near, forest_of, listed_groups
from locpmap.graphs.graph import Graph
from locpmap.graphs.grid import Box, Grid
from locpmap.kernels.block_plan import DrawPlan

MAX_TABLE = 2**16  # entries of the table over a frontier
MAX_ENTRIES = 2**25  # entries of all tables of a block (256 MB), which the draws read
STRIPS = re.compile("strips:[1-9][0-9]{0,3}")


class Order(NamedTuple):
    """Operations of a block, as in `DrawPlan`."""

    site: Array  # (2n,)
    removed: Array  # (2n,)


def plan_draws(blocks: Any, structure: Box | Graph, n_labels: int) -> DrawPlan:
    """Validate blocks and return the operations that draw them."""
    tile = isinstance(blocks, tuple) and all(isinstance(side, int | np.integer) for side in blocks)
    if isinstance(structure, Grid) and (isinstance(blocks, str) or tile):
        return _grid_plan(structure, blocks, n_labels)
    if isinstance(blocks, str) and blocks == "trees":
        groups = forests(structure)
    elif isinstance(blocks, str) or tile:
        where = "in a volume" if isinstance(structure, Box) else "on a graph"
        raise InputError(f"blocks is {blocks!r}, expected 'sites', 'trees', 'clusters' or a list of site lists {where}")
    elif isinstance(blocks, list | tuple):
        groups = listed_groups(blocks, structure)
    else:
        raise InputTypeError(f"blocks is {blocks!r}, expected a name, a tile (h, w) on a grid or a list of site lists")
    near = structure.adjacency()
    return _plan([[in_order(_narrow(group, near), near) for group in groups]], structure, n_labels, blocks)


@lru_cache(CACHED_PLANS)
def _grid_plan(grid: Grid, blocks: str | tuple[int, int], n_labels: int) -> DrawPlan:
    if blocks == "trees":
        near = grid.adjacency()
        families = [combs(grid), combs(grid, across=True)] if grid.connectivity == 4 else [forests(grid)]
        orders = [[in_order(_narrow(group, near), near) for group in family] for family in families]
        return _plan(orders, grid, n_labels, blocks)
    check_near(grid, f"blocks={blocks!r}")
    height, width = max(((h, w) for h, w, _, _ in _tilings(grid, blocks)), key=min)
    if not _fits(n_labels, min(height, width)):  # before the operations of a huge tile are listed
        raise _too_large(blocks, height * width, n_labels, min(height, width) + 1)
    return _plan([list(_tiles(grid, *tiling)) for tiling in _tilings(grid, blocks)], grid, n_labels, blocks)


def _tilings(grid: Grid, blocks: Any) -> list[tuple[int, int, int, int]]:
    """Return height, width and the shifts down and right of the tiles of each family."""
    rows, columns = grid.shape
    if isinstance(blocks, str) and STRIPS.fullmatch(blocks):
        thick = int(blocks.partition(":")[2])
        across, along = (min(thick, rows), columns), (rows, min(thick, columns))
        return [(*across, 0, 0), (*along, 0, 0), (*across, thick // 2, 0), (*along, 0, thick // 2)]
    if isinstance(blocks, str):
        found = []
        for name in blocks.split("+"):
            if not LINES.fullmatch(name):
                known = ("sites", "rows", "columns", "rows+columns", "rows:16", "strips:8", "trees", "clusters")
                raise unknown("blocks", blocks, known)
            line, _, length = name.partition(":")
            side = columns if line == "rows" else rows
            size = min(int(length or side), side)
            found.append((1, size, 0, 0) if line == "rows" else (size, 1, 0, 0))
        return found
    if len(blocks) != 2:
        raise InputError(f"blocks is {blocks!r}, expected a tile (h, w)")
    height, width = (whole_number("a side of the tile in blocks", side, 1) for side in blocks)
    height, width = min(height, rows), min(width, columns)
    moves = (height // 2 if height < rows else 0, width // 2 if width < columns else 0)
    return [(height, width, 0, 0)] + ([(height, width, *moves)] if any(moves) else [])


def _tiles(grid: Grid, height: int, width: int, down: int, right: int) -> Iterator[Order]:
    """Yield the tiles of one family; tiles of equal shape share the order of their operations."""
    number = np.arange(grid.n_sites).reshape(grid.shape)
    known: dict[tuple[int, int], Order] = {}
    for top, bottom in _cuts(grid.height, height, down):
        for begin, stop in _cuts(grid.width, width, right):
            tile = number[top:bottom, begin:stop]
            tile = tile.T if tile.shape[1] > tile.shape[0] else tile  # the narrow side changes fastest
            shape = (tile.shape[0], tile.shape[1])
            if shape not in known:
                known[shape] = in_order(np.arange(tile.size), Grid(*shape, grid.connectivity).adjacency())
            yield Order(tile.ravel()[known[shape].site], known[shape].removed)


def _cuts(size: int, part: int, shift: int) -> list[tuple[int, int]]:
    bounds = [0, *range(shift or part, size, part), size]
    return list(pairwise(bounds))


def combs(grid: Grid, *, across: bool = False) -> list[Array]:
    """Return two trees that cover a 4-connected grid: a first row with every other column, and the rest."""
    number = np.arange(grid.n_sites).reshape(grid.shape)
    number = number.T if across else number
    row, column = np.indices(number.shape)
    first = (row == 0) | ((column % 2 == 0) & (row < len(number) - 1))
    return [part for part in (number[first], number[~first]) if len(part)]


def forests(structure: Box | Graph) -> list[Array]:
    """Return forests that cover a graph: each site joins the first one in which it closes no cycle."""
    near = structure.adjacency()
    forest = np.full(structure.n_sites, -1)
    root = list(range(structure.n_sites))

    def find(site: int) -> int:
        while root[site] != site:
            root[site] = root[root[site]]
            site = root[site]
        return site

    for site in range(structure.n_sites):
        others = [o for o in near.neighbour[near.indptr[site] : near.indptr[site + 1]].tolist() if forest[o] >= 0]
        number = 0
        while True:
            roots = [find(other) for other in others if forest[other] == number]
            if len(set(roots)) == len(roots):
                break
            number += 1
        forest[site] = number
        for other in roots:
            root[other] = site
    return [np.flatnonzero(forest == number) for number in range(int(forest.max()) + 1)]


def _narrow(sites: Array, near: Adjacency) -> Array:
    """Return the sites in an order with a short frontier.

    In a tree, children come before parents and large subtrees before small ones, so that the frontier of n sites has at
    most log2(n) + 2.
    """
    forest = forest_of(sites, near)
    if forest is None:
        return _along(sites, near)
    ordered, parents = forest
    size = np.ones(len(ordered), int)
    for place in np.flatnonzero(parents >= 0)[::-1]:
        size[parents[place]] += size[place]
    children: list[list[int]] = [[] for _ in ordered]
    for place in np.flatnonzero(parents >= 0).tolist():
        children[parents[place]].append(place)
    found: list[int] = []
    for root in np.flatnonzero(parents < 0).tolist():
        stack, smallest_first = [root], []
        while stack:
            smallest_first.append(stack.pop())
            stack += sorted(children[smallest_first[-1]], key=size.__getitem__, reverse=True)
        found += reversed(smallest_first)
    return ordered[found]


def _along(sites: Array, near: Adjacency) -> Array:
    """Return the sites of a block with cycles in an order that runs along it."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    graph = csr_array((np.ones(len(near.neighbour), np.int8), near.neighbour, near.indptr))[sites][:, sites]
    return sites[reverse_cuthill_mckee(csr_array(graph), symmetric_mode=True)]


def in_order(sites: Array, near: Adjacency) -> Order:
    """Return the operations that add the sites in this order and sum out each one as soon as possible."""
    step = {site: t for t, site in enumerate(sites.tolist())}
    frontier: list[int] = []
    operations: list[tuple[int, int]] = []
    last = {
        site: max([t, *(step.get(other, -1) for other in near.neighbour[near.indptr[site] : near.indptr[site + 1]])])
        for site, t in step.items()
    }
    for site, t in step.items():
        operations.append((site, -1))
        frontier.append(site)
        for done in [other for other in frontier if last[other] == t]:
            operations.append((done, frontier.index(done)))
            frontier.remove(done)
    return Order(*np.array(operations, np.int32).T)


def _plan(families: list[list[Order]], structure: Box | Graph, n_labels: int, blocks: Any) -> DrawPlan:
    """Concatenate the operations of all blocks, or raise if the tables of a block are too large."""
    width, entries = 0, 1
    block_of = np.empty((len(families), structure.n_sites), np.int32)
    orders = [order for family in families for order in family]
    first = 0
    for numbers, family in zip(block_of, families, strict=True):
        for b, order in enumerate(family, start=first):
            numbers[order.site] = b
            lengths = np.cumsum(np.where(order.removed < 0, 1, -1))
            width = max(width, int(lengths.max()))
            if not _fits(n_labels, int(lengths.max()) - 1):
                raise _too_large(blocks, len(order.site) // 2, n_labels, int(lengths.max()))
            entries = max(entries, 1 + int((float(n_labels) ** lengths).sum()))
        first += len(family)
    if entries > MAX_ENTRIES:
        raise TooLargeError(
            f"blocks={blocks!r} needs tables of {entries} entries for a block, expected at most {MAX_ENTRIES}:"
            " take smaller blocks"
        )
    counts = accumulate((len(family) for family in families), initial=0)
    ptr = accumulate((len(order.site) for order in orders), initial=0)
    site, removed = (np.concatenate(parts).astype(np.int32) for parts in zip(*orders, strict=True))
    arrays = (np.array(list(counts)), np.array(list(ptr)), site, removed, block_of)
    return DrawPlan._make((*(frozen(array) for array in arrays), width, entries))


def _fits(n_labels: int, narrow: int) -> bool:
    """Return whether a frontier of ``narrow + 1`` sites has at most MAX_TABLE labellings."""
    return (narrow + 1) * np.log2(n_labels) <= np.log2(MAX_TABLE)


def _too_large(blocks: Any, n_sites: int, n_labels: int, width: int) -> TooLargeError:
    return TooLargeError(
        f"blocks={blocks!r} has a block of {n_sites} sites that needs a table of {n_labels}^{width} entries,"
        f" expected at most {MAX_TABLE}: take narrower blocks"
    )
