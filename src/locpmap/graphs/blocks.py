"""Blocks of sites that a decoder updates together.

- ``"rows"`` and ``"columns"`` are chains along the last axis and the one before it, solved by dynamic programming.
- ``"rows:16"`` are parts of rows, 16 sites long, which begin at multiples of 16 in the whole grid or volume.
- ``(h, w)`` on a grid and ``(d, h, w)`` on a volume are tiles, whose joint labellings are enumerated.
- A list of site lists is enumerated for small blocks, or solved by dynamic programming for forests.
"""

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from locpmap.arrays import Array, frozen, to_numpy
from locpmap.errors import InputError, InputTypeError, TooLargeError, unknown, whole_number
from locpmap.graphs.adjacency import Adjacency, adjacency, greedy_colours
from locpmap.graphs.graph import Graph
from locpmap.graphs.grid import Box, Grid
from locpmap.kernels.block_plan import BlockPlan

MAX_JOINT = 4096  # joint labellings of an enumerated block

LENGTH = "(:[1-9][0-9]{0,8})?"  # optional length of the parts of lines
LINES = re.compile(f"rows{LENGTH}|columns{LENGTH}")

CACHED_PLANS = 4  # on grids: a plan takes about 16 bytes per site and family


class Family(NamedTuple):
    """Blocks that partition the sites, in the order of updates."""

    site: Array  # (S,) block by block
    length: Array  # (B,) number of sites of each block
    parent: Array  # (S,) the parent's position within the block, -1 at a root and in joint blocks
    joint: Array  # (B,) bool


def plan_blocks(blocks: Any, structure: Box | Graph, n_labels: int, max_joint: int = MAX_JOINT) -> BlockPlan:
    """Validate blocks and return flat arrays; ``max_joint`` limits joint labellings of listed blocks with cycles."""
    if isinstance(blocks, str):
        names = tuple(blocks.split("+"))
        for name in names:
            if not isinstance(structure, Box):
                raise InputError(f"blocks={name!r} needs a grid or a volume; on a graph give a list of site lists")
            if not LINES.fullmatch(name):
                raise unknown("blocks", name, ("rows", "columns", "rows+columns", "rows:16"))
            check_near(structure, f"blocks={name!r}")
        assert isinstance(structure, Box)
        return _line_plan(structure, names)
    if isinstance(blocks, tuple) and len(blocks) in (2, 3) and all(isinstance(b, int | np.integer) for b in blocks):
        sides = tuple(whole_number("a side of the tile in blocks", side, 1) for side in blocks)
        if not isinstance(structure, Box):
            raise InputError("blocks given as a tile (h, w) need a grid; on a graph give a list of site lists")
        if len(sides) != len(structure.shape):
            raise InputError(f"blocks={sides} is a tile of {len(sides)} sides, expected {len(structure.shape)}")
        check_near(structure, f"blocks={sides}")
        if not fits(n_labels, math.prod(sides)):
            raise TooLargeError(
                f"blocks={sides} has {n_labels}^{math.prod(sides)} joint labellings,"
                f" expected at most {MAX_JOINT}: take smaller tiles, or rows and columns"
            )
        return _tile_plan(structure, sides)
    if isinstance(blocks, Sequence):
        return _flatten([_listed(blocks, structure, n_labels, max_joint)], structure)
    raise InputTypeError(f"blocks is {blocks!r}, expected a name, a tile such as (h, w) or a list of site lists")


@lru_cache(CACHED_PLANS)
def _line_plan(box: Box, names: tuple[str, ...]) -> BlockPlan:
    return _flatten([_parts(box, name) for name in names], box)


def _parts(box: Box, name: str) -> Family:
    """Return chains: tiles of one row or column, whole ("rows", "columns") or of bounded length ("rows:n")."""
    line, _, length = name.partition(":")
    axis, sides = -1 if line == "rows" else -2, [1] * len(box.shape)
    sides[axis] = int(length or box.whole_shape[axis])
    tiles = _tiles(box, tuple(sides))
    begin = np.repeat(np.cumsum(tiles.length) - tiles.length, tiles.length)  # first position of each site's block
    chain = np.arange(len(tiles.site)) - begin - 1
    return tiles._replace(parent=chain, joint=np.zeros(len(tiles.length), bool))


@lru_cache(CACHED_PLANS)
def _tile_plan(box: Box, sides: tuple[int, ...]) -> BlockPlan:
    return _flatten([_tiles(box, sides)], box)


def _tiles(box: Box, sides: tuple[int, ...]) -> Family:
    tile = tuple(along // side for along, side in zip(box.global_coordinates(), sides, strict=True))
    key = box.colours_of(tile)  # and then the tile's number in the whole grid or volume
    for along, length in zip(tile, box.whole_shape, strict=True):
        key = key * length + along
    order = np.argsort(key, axis=None, kind="stable")
    starts = np.flatnonzero(np.diff(key.ravel()[order])) + 1
    sizes = np.diff(starts, prepend=0, append=len(order))
    return Family(order, sizes, np.full(len(order), -1), np.ones(len(sizes), bool))


def check_near(box: Box, what: str) -> None:
    """Raise unless a grid has 4 or 8 neighbours."""
    if isinstance(box, Grid) and isinstance(box.connectivity, tuple):
        raise InputError(f"{what} needs a grid of 4 or 8 neighbours; with further ones give a list of site lists")


def _listed(blocks: Sequence[Any], structure: Box | Graph, n_labels: int, max_joint: int) -> Family:
    near, groups = structure.adjacency(), listed_groups(blocks, structure)
    solved = [_structured(sites, near, n_labels, b, max_joint) for b, sites in enumerate(groups)]
    sites_of, parents_of = zip(*(solved[b] for b in _coloured(groups, near, structure.n_sites)), strict=True)
    parent = [np.full(len(s), -1) if p is None else p for s, p in zip(sites_of, parents_of, strict=True)]
    joint = np.array([parents is None for parents in parents_of])
    return Family(np.concatenate(sites_of), np.array([len(s) for s in sites_of]), np.concatenate(parent), joint)


def listed_groups(blocks: Sequence[Any], structure: Box | Graph) -> list[Array]:
    """Return the sites of the given blocks, sorted.  Sites in none of them become blocks of one site."""
    n_sites = structure.n_sites
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
            raise InputError(f"blocks[{b}] holds a site that is already in a block, expected disjoint blocks")
        taken[sites] = b
        groups.append(np.sort(sites))
    return groups + [np.array([site]) for site in np.flatnonzero(taken < 0)]


def _structured(sites: Array, near: Adjacency, n_labels: int, b: int, max_joint: int) -> tuple[Array, Array | None]:
    """Return a block to enumerate, or a forest in an order in which parents come first."""
    if fits(n_labels, len(sites)):
        return sites, None
    if (forest := forest_of(sites, near)) is not None:
        return forest
    if fits(n_labels, len(sites), max_joint):
        return sites, None
    raise TooLargeError(
        f"blocks[{b}] has {len(sites)} sites with a loop and {n_labels}^{len(sites)} joint labellings,"
        f" expected a forest or at most {max_joint} joint labellings: split it"
    )


def forest_of(sites: Array, near: Adjacency) -> tuple[Array, Array] | None:
    """Return the sites tree by tree with parents first, and the positions of their parents; None if there is a loop."""
    reached = dict.fromkeys(sites.tolist(), False)
    ordered: list[int] = []
    parents: list[int] = []
    for root in reached:
        queue = [] if reached[root] else [(root, -1)]
        reached[root] = True
        for site, parent in queue:
            before = ordered[parent] if parent >= 0 else -1
            for other in near.neighbour[near.indptr[site] : near.indptr[site + 1]].tolist():
                if other not in reached or other == before:
                    continue
                if reached[other]:
                    return None
                reached[other] = True
                queue.append((other, len(ordered)))
            ordered.append(site)
            parents.append(parent)
    return np.array(ordered), np.array(parents)


def _coloured(groups: list[Array], near: Adjacency, n_sites: int) -> list[int]:
    """Return the order of updates: classes of blocks without common edges, by greedy colouring."""
    block_of = np.empty(n_sites, np.int64)
    for b, sites in enumerate(groups):
        block_of[sites] = b
    site_of_slot = np.repeat(np.arange(n_sites), np.diff(near.indptr))
    pairs = np.stack([block_of[site_of_slot], block_of[near.neighbour]], axis=1)
    touching = adjacency(len(groups), np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0).astype(np.int32))
    return np.argsort(greedy_colours(touching.indptr, touching.neighbour), kind="stable").tolist()


def _flatten(families: list[Family], structure: Box | Graph) -> BlockPlan:
    joint = np.concatenate([family.joint for family in families])
    site = np.concatenate([family.site for family in families])
    parent = np.concatenate([family.parent for family in families])
    slot = np.full(len(site), -1)
    if not joint.all():
        near = structure.adjacency()
        slot = np.concatenate([_parent_slots(family, near) for family in families])
    ptr = np.cumsum(np.concatenate([[0], *(family.length for family in families)]))
    block_of = np.empty((len(families), structure.n_sites), np.int32)
    number = np.repeat(np.arange(len(joint)), np.diff(ptr)).reshape(block_of.shape)
    for row, family, numbers in zip(block_of, families, number, strict=True):
        row[family.site] = numbers
    family_of = np.repeat(np.arange(len(families), dtype=np.int32), [len(family.joint) for family in families])
    parts = (part.astype(np.int32) for part in (site, parent, slot))
    arrays = (ptr.astype(np.int64), *parts, joint, block_of, family_of)
    return BlockPlan(*(frozen(array) for array in arrays))


def _parent_slots(family: Family, near: Adjacency) -> Array:
    """Return the position of the parent in each site's neighbour list, -1 for roots, in the family's order."""
    inner = np.flatnonzero(family.parent >= 0)
    start = np.repeat(np.cumsum(family.length) - family.length, family.length)  # first position of each site's block
    parent_of = np.full(len(family.site), -1)
    parent_of[family.site[inner]] = family.site[(start + family.parent)[inner]]
    slot = np.flatnonzero(near.neighbour == np.repeat(parent_of, np.diff(near.indptr)))
    site_of_slot = np.searchsorted(near.indptr, slot, side="right") - 1
    slots = np.full(len(family.site), -1)
    slots[site_of_slot] = slot
    return slots[family.site]


def fits(n_labels: int, n_sites: int, max_joint: int = MAX_JOINT) -> bool:
    """Return whether a block of ``n_sites`` sites has at most ``max_joint`` joint labellings."""
    return n_labels ** min(n_sites, max_joint.bit_length()) <= max_joint  # the cap avoids huge powers
