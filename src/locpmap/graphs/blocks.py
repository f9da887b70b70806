"""Blocks of sites that a decoder solves together.

``"rows"`` and ``"columns"`` are chains, solved exactly by dynamic programming.  Tiles ``(h, w)`` are enumerated.
A list of site lists takes whatever fits: enumeration for small blocks, dynamic programming for forests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from locpmap.arrays import frozen, to_numpy
from locpmap.errors import InputError, InputTypeError, TooLargeError, unknown, whole_number
from locpmap.graphs.adjacency import Adjacency, adjacency, greedy_colours
from locpmap.graphs.graph import Graph
from locpmap.graphs.grid import Grid
from locpmap.kernels.block_plan import BlockPlan

Array = npt.NDArray[Any]
MAX_JOINT = 4096  # joint labellings of an enumerated block

Family = list[tuple[Array, Array | None]]  # (sites, parents' positions or None for a joint block), in visiting order


def plan_blocks(blocks: Any, structure: Grid | Graph, n_labels: int, max_joint: int = MAX_JOINT) -> BlockPlan:
    """Validate a specification of blocks and flatten it; ``max_joint`` limits a listed block that is no forest."""
    near = structure.adjacency()
    if isinstance(blocks, str):
        families = [_lines(structure, name) for name in blocks.split("+")]
    elif isinstance(blocks, tuple) and len(blocks) == 2 and all(isinstance(b, int | np.integer) for b in blocks):
        height, width = (whole_number("a side of the tile in blocks", side, 1, 2**31 - 1) for side in blocks)
        families = [_tiles(structure, height, width, n_labels)]
    elif isinstance(blocks, Sequence):
        families = [_listed(blocks, near, structure.n_sites, n_labels, max_joint)]
    else:
        raise InputTypeError(f"blocks is {blocks!r}, expected a name, a tile (h, w) or a list of site lists")
    return _flatten(families, near, structure.n_sites)


def _lines(structure: Grid | Graph, name: str) -> Family:
    if not isinstance(structure, Grid):
        raise InputError(f"blocks={name!r} needs a grid; on a graph give a list of site lists")
    if name not in ("rows", "columns"):
        raise unknown("blocks", name, ("rows", "columns", "rows+columns"))
    _check_near(structure, f"blocks={name!r}")
    number = np.arange(structure.n_sites).reshape(structure.shape)
    lines, first = (number, structure.row) if name == "rows" else (number.T, structure.column)
    chain = np.arange(-1, lines.shape[1] - 1)
    # Even lines first, by their number in the whole grid: lines of one parity do not touch.
    order = sorted(range(len(lines)), key=lambda k: ((first + k) % 2, k))
    return [(lines[k], chain) for k in order]


def _tiles(structure: Grid | Graph, height: int, width: int, n_labels: int) -> Family:
    if not isinstance(structure, Grid):
        raise InputError("blocks given as a tile (h, w) need a grid; on a graph give a list of site lists")
    _check_near(structure, f"blocks=({height}, {width})")
    if not fits(n_labels, height * width):
        raise TooLargeError(
            f"blocks=({height}, {width}) has {n_labels}^{height * width} joint labellings,"
            f" expected at most {MAX_JOINT}: take smaller tiles, or rows and columns"
        )
    rows, columns = structure.global_coordinates()
    tile_row, tile_column = np.broadcast_arrays(rows // height, columns // width)
    colour = (tile_row + tile_column) % 2 if structure.connectivity == 4 else 2 * (tile_row % 2) + tile_column % 2
    keys = np.stack([colour.ravel(), tile_row.ravel(), tile_column.ravel()])
    order = np.lexsort(keys[::-1])
    starts = np.flatnonzero(np.diff(keys[:, order], axis=1).any(axis=0)) + 1
    return [(sites, None) for sites in np.split(order, starts)]


def _check_near(grid: Grid, what: str) -> None:
    if isinstance(grid.connectivity, tuple):
        raise InputError(f"{what} needs a grid of 4 or 8 neighbours; with further ones give a list of site lists")


def _listed(blocks: Sequence[Any], near: Adjacency, n_sites: int, n_labels: int, max_joint: int) -> Family:
    """Blocks as given; sites in none of them become blocks of their own."""
    taken = np.full(n_sites, -1)
    groups: list[Array] = []
    for b, block in enumerate(blocks):
        sites = to_numpy(block, f"blocks[{b}]")
        if sites.ndim != 1 or not len(sites) or sites.dtype.kind not in "iu":
            raise InputError(f"blocks[{b}] is {block!r}, expected a non-empty list of sites")
        if sites.min() < 0 or sites.max() >= n_sites:
            raise InputError(f"blocks[{b}] runs from {sites.min()} to {sites.max()}, expected sites 0 to {n_sites - 1}")
        twice = sites[taken[sites] >= 0]
        if len(twice) or len(np.unique(sites)) < len(sites):
            raise InputError(f"blocks[{b}] holds a site that a block already has, expected disjoint blocks")
        taken[sites] = b
        groups.append(np.sort(sites))
    groups += [np.array([site]) for site in np.flatnonzero(taken < 0)]
    family = [_structured(sites, near, n_labels, b, max_joint) for b, sites in enumerate(groups)]
    return [family[b] for b in _coloured(groups, near, n_sites)]


def _structured(sites: Array, near: Adjacency, n_labels: int, b: int, max_joint: int) -> tuple[Array, Array | None]:
    """A block small enough to enumerate, or a forest ordered so that parents come first."""
    if fits(n_labels, len(sites)):
        return sites, None
    member = {int(site): False for site in sites}
    ordered: list[int] = []
    parents: list[int] = []
    for root in member:
        if member[root]:
            continue
        member[root] = True
        queue = [(root, -1)]
        for site, parent in queue:
            ordered.append(site)
            parents.append(parent)
            before = ordered[parent] if parent >= 0 else -1
            for other in near.neighbour[near.indptr[site] : near.indptr[site + 1]].tolist():
                if other not in member or other == before:
                    continue
                if member[other]:
                    if fits(n_labels, len(sites), max_joint):
                        return sites, None
                    raise TooLargeError(
                        f"blocks[{b}] has {len(sites)} sites with a loop and {n_labels}^{len(sites)} joint labellings,"
                        f" expected a forest or at most {max_joint} joint labellings: split it"
                    )
                member[other] = True
                queue.append((other, len(ordered) - 1))
    return np.array(ordered), np.array(parents)


def _coloured(groups: list[Array], near: Adjacency, n_sites: int) -> list[int]:
    """Visiting order: classes of blocks that do not touch, by greedy colouring."""
    block_of = np.empty(n_sites, np.int64)
    for b, sites in enumerate(groups):
        block_of[sites] = b
    site_of_slot = np.repeat(np.arange(n_sites), np.diff(near.indptr))
    pairs = np.stack([block_of[site_of_slot], block_of[near.neighbour]], axis=1)
    touching = adjacency(len(groups), np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0).astype(np.int32))
    return np.argsort(greedy_colours(touching.indptr, touching.neighbour), kind="stable").tolist()


def _flatten(families: list[Family], near: Adjacency, n_sites: int) -> BlockPlan:
    flat = [block for family in families for block in family]
    site = np.concatenate([sites for sites, _ in flat]).astype(np.int32)
    lengths = [len(sites) for sites, _ in flat]
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    parent = np.concatenate([np.full(len(sites), -1) if parents is None else parents for sites, parents in flat])
    up = parent + np.repeat(ptr[:-1], lengths)  # positions in `site` where parent >= 0
    slot = np.full(len(site), -1)
    inner = np.flatnonzero(parent >= 0)
    slot[inner] = _slots(near, n_sites, site[inner].astype(np.int64), site[up[inner]].astype(np.int64))
    block_of = np.empty((len(families), n_sites), np.int32)
    b = 0
    for f, family in enumerate(families):
        for sites, _ in family:
            block_of[f, sites] = b
            b += 1
    joint = np.array([parents is None for _, parents in flat])
    arrays = (ptr.astype(np.int64), site, parent.astype(np.int32), slot.astype(np.int32), joint, block_of)
    return BlockPlan(*(frozen(array) for array in arrays))


def _slots(near: Adjacency, n_sites: int, sites: Array, others: Array) -> Array:
    """Where each site's neighbour list names the other site."""
    keys = np.repeat(np.arange(n_sites), np.diff(near.indptr)) * n_sites + near.neighbour
    order = np.argsort(keys)
    return order[np.searchsorted(keys[order], sites * n_sites + others)]


def fits(n_labels: int, n_sites: int, max_joint: int = MAX_JOINT) -> bool:
    """Whether a block of so many sites can be enumerated."""
    return n_labels ** min(n_sites, max_joint.bit_length()) <= max_joint  # of 2 labels or more, so many never fit
