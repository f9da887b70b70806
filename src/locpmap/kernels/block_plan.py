"""Blocks as flat arrays.  A *block* is a set of sites whose labels are optimised jointly, given all other labels."""

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
