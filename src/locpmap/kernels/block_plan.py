"""Blocks as flat arrays: which sites are solved together, how, and in what order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy.typing as npt

MAX_LINE_LABELS = 32  # of rows and columns on a GPU, which note a choice in a word with a bit for every label


class BlockPlan(NamedTuple):
    """Blocks in the order in which a sweep visits them (T sites in all blocks, P families, each covering all)."""

    ptr: npt.NDArray[Any]  # (B + 1,) int64: block b's sites are site[ptr[b]:ptr[b + 1]]
    site: npt.NDArray[Any]  # (T,) int32; in a tree every site comes after its parent
    parent: npt.NDArray[Any]  # (T,) int32: the parent's position within the block, -1 at a root
    parent_slot: npt.NDArray[Any]  # (T,) int32: where the edge to the parent stands in the site's neighbour list, or -1
    joint: npt.NDArray[Any]  # (B,) bool: solve by enumerating joint labellings rather than as a forest
    block_of: npt.NDArray[Any]  # (P, S) int32: each family's block of a site
