"""Blocks as flat arrays.  A *block* is a set of sites whose labels are optimised or drawn jointly, given all others."""

from typing import Any, NamedTuple

import numpy.typing as npt

MAX_LINE_LABELS = 32  # for rows and columns on a GPU, which store a choice as a word with one bit per label


class BlockPlan(NamedTuple):
    """B blocks, T sites in total.  They form P *families* (e.g. rows), each of which contains every site once."""

    ptr: npt.NDArray[Any]  # (B + 1,) int64: block b's sites are site[ptr[b]:ptr[b + 1]]; a sweep visits b = 0, 1, ..
    site: npt.NDArray[Any]  # (T,) int32; in a tree every site comes after its parent
    parent: npt.NDArray[Any]  # (T,) int32: position of the parent within the block, -1 at a root
    parent_slot: npt.NDArray[Any]  # (T,) int32: index of the parent in the neighbour lists, -1 at a root
    joint: npt.NDArray[Any]  # (B,) bool: True to enumerate joint labellings, False for dynamic programming on a forest
    block_of: npt.NDArray[Any]  # (P, S) int32: the block of each family that contains a site
    family: npt.NDArray[Any]  # (B,) int32: the family of each block


class DrawPlan(NamedTuple):
    """Orders in which blocks are drawn exactly: B blocks in P families; sweep t draws family ``t mod P``.

    A block is a sequence of operations on its *frontier*, a list of sites.  Adding a site appends it; this is possible
    once.  Summing out a site removes it, after all its neighbours in the block were added.  Each site has one of each.
    """

    family_ptr: npt.NDArray[Any]  # (P + 1,) int64: the blocks of family f are family_ptr[f]:family_ptr[f + 1]
    ptr: npt.NDArray[Any]  # (B + 1,) int64: the operations of block b are ptr[b]:ptr[b + 1]
    site: npt.NDArray[Any]  # (2 P S,) int32: the site of each operation
    removed: npt.NDArray[Any]  # (2 P S,) int32: position in the frontier of a site to sum out; -1 to add the site
    block_of: npt.NDArray[Any]  # (P, S) int32: the block of each family that contains a site
    width: int  # largest length of a frontier
    entries: int  # largest total size of the tables of a block
