"""Neighbour lists as rows: row r holds for every site its neighbour along one kind of edge, if it has one.

An edge's kind is ``group + G · end``: its group and at which of its ends the site is.  On a grid with tables of its own
for each direction there is one row per direction, there and back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from locpmap.kernels.observations import Observations
from locpmap.kernels.triton.keeping import kept_with


class SlotRows(NamedTuple):
    """R rows of S sites on the device."""

    kinds: tuple[int, ...]  # (R,)
    neighbour: torch.Tensor  # (R, S) int32; -1 where there is none
    edge: torch.Tensor  # (R, S) int32


def slot_rows(data: Observations, n_groups: int) -> SlotRows:
    """The rows of a graph: worked out once, O(E log E), and kept for as long as its lists live."""
    return kept_with((data.neighbour, data.group), ("rows", n_groups), lambda: _slot_rows(data, n_groups))


def _slot_rows(data: Observations, n_groups: int) -> SlotRows:
    arrays = (data.indptr, data.neighbour, data.edge, data.end, data.group)
    indptr, neighbour, edge, end, group = (array.cpu().numpy() for array in arrays)
    site = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    kind = group[edge].astype(np.int64) + n_groups * end
    # Slots by site and kind; a slot's rank among those alike is how far it stands behind the first of them.
    order = np.lexsort((kind, site))
    alike = site[order] * 2 * n_groups + kind[order]
    rank = np.arange(len(order)) - np.searchsorted(alike, alike)
    places, row = np.unique(np.stack([kind[order], rank]), axis=1, return_inverse=True)
    shape = (places.shape[1], len(indptr) - 1)
    rows = np.full((2, *shape), -1, np.int32)
    rows[:, row.reshape(-1), site[order]] = neighbour[order], edge[order]
    device = data.indptr.device
    near, along = (torch.from_numpy(part).to(device) for part in rows)
    return SlotRows(tuple(places[0].tolist()), near, along)
