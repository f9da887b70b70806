"""Neighbours' labels, counted; see the reference.  Copy to ``src/locpmap/kernels/numba/neighbour_votes.py``."""

from __future__ import annotations

from locpmap.kernels.numba.compiling import kernel


@kernel
def neighbour_votes(model, labels, counts, lo, hi, begin, stop):
    """Fill ``counts`` (N, S, L): the number of neighbours with each label; labels (N, S)."""
    order, indptr, neighbour = model.order, model.indptr, model.neighbour
    for n in range(lo, hi):
        for position in range(begin, stop):
            i = order[position]
            counts[n, i, :] = 0
            for slot in range(indptr[i], indptr[i + 1]):
                counts[n, i, labels[n, neighbour[slot]]] += 1
