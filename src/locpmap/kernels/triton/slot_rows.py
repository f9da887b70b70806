"""Neighbour lists as rows: row r holds for every site its neighbour along one kind of edge, if it has one.

An edge's kind is ``group + G · end``: its group and at which of its ends the site is.  On a grid with tables of its own
for each direction there is one row per direction, there and back.  There, too, neighbours are equally far from all
sites, and so are the edges of a direction, there and back: then a few numbers say all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from locpmap.kernels.observations import Observations
from locpmap.kernels.triton.keeping import kept_with

Array = npt.NDArray[Any]
UNKNOWN = -(2**30)


class SlotRows(NamedTuple):
    """R rows of S sites on the device."""

    kinds: tuple[int, ...]  # (R,)
    neighbour: torch.Tensor  # (R, S) int32; -1 where there is none
    edge: torch.Tensor  # (R, S) int32
    shifts: Shifts | None


class Shifts(NamedTuple):
    """Rows that shifts describe: site i's neighbour is ``i + near[r]``, the edge ``base[line[r], i] + edge[r]``."""

    near: tuple[int, ...]  # (R,)
    line: tuple[int, ...]  # (R,)
    edge: tuple[int, ...]  # (R,)
    present: torch.Tensor  # (S,) int32: bit r says whether there is such a neighbour
    base: torch.Tensor  # (lines, S) int32


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
    return SlotRows(tuple(places[0].tolist()), near, along, _shifts(rows[0], rows[1], device))


def _shifts(neighbour: Array, edge: Array, device: torch.device) -> Shifts | None:
    """The same as shifts, where that is possible."""
    here, near, lines, shifts = np.arange(neighbour.shape[1]), [], [], []
    bases: list[Array] = []
    for to, along in zip(neighbour, edge, strict=True):
        there = to >= 0
        away = np.unique((to - here)[there])
        if len(away) > 1:
            return None
        away_from = [np.unique((along - base)[there & (base != UNKNOWN)]) for base in bases]
        line = next((line for line, shift in enumerate(away_from) if len(shift) == 1), len(bases))
        if line == len(bases):
            bases.append(np.where(there, along, UNKNOWN))
            away_from.append(np.zeros(1, int))
        shift = int(away_from[line][0])
        bases[line][there] = (along - shift)[there]
        near.append(int(away[0]))
        lines.append(line)
        shifts.append(shift)
    present = ((neighbour >= 0) << np.arange(len(neighbour))[:, None]).sum(axis=0)
    there, base = (torch.from_numpy(np.array(part, np.int32)).to(device) for part in (present, bases))
    return Shifts(tuple(near), tuple(lines), tuple(shifts), there, base)
