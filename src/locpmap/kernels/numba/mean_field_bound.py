"""The lower bound that mean field climbs; see the reference."""

from __future__ import annotations

import math

from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def mean_field_bound(model, beliefs, terms, lo, hi, begin, stop):
    """Fill ``terms`` (N, S): each site's own part and that of the edges that begin there."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    order, indptr, neighbour, edges, ends = model.order, model.indptr, model.neighbour, model.edge, model.end
    n_labels = beliefs.shape[2]
    many_features, many_tables = features.shape[1] > 1, tables.shape[1] > 1
    for n in range(lo, hi):
        n_features, n_tables = (n if len(features) > 1 else 0), (n if len(tables) > 1 else 0)
        for position in range(begin, stop):
            i = order[position]
            total = 0.0
            for k in range(n_labels):
                if beliefs[n, i, k] > 0:
                    total += beliefs[n, i, k] * (unary[n, i, k] - math.log(beliefs[n, i, k]))
            for slot in range(indptr[i], indptr[i + 1]):
                if ends[slot] != 0:
                    continue
                j = neighbour[slot]
                e_features, e_tables = (edges[slot] if many_features else 0), (edges[slot] if many_tables else 0)
                if potts:
                    agree = 0.0
                    for k in range(n_labels):
                        agree += beliefs[n, i, k] * beliefs[n, j, k]
                    total += features[n_features, e_features, 0] * agree
                    continue
                for a in range(n_labels):
                    for b in range(n_labels):
                        joint = beliefs[n, i, a] * beliefs[n, j, b]
                        if joint > 0:
                            for f in range(features.shape[2]):
                                total += joint * features[n_features, e_features, f] * tables[n_tables, e_tables, f, a, b]
            terms[n, i] = total
