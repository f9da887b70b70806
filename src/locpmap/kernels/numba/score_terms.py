"""The score of a labelling, split over the sites; see the reference."""

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def score_terms(model, labels, terms, lo, hi, begin, stop):
    """Fill ``terms`` (N, S): each site's unary score and the scores of the edges that begin there; labels (N, S)."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    order, indptr, neighbour, edges, ends = model.order, model.indptr, model.neighbour, model.edge, model.end
    many_features, many_tables = features.shape[1] > 1, tables.shape[1] > 1
    for n in range(lo, hi):
        n_features, n_tables = (n if len(features) > 1 else 0), (n if len(tables) > 1 else 0)
        for position in range(begin, stop):
            i = order[position]
            here = labels[n, i]
            total = float(unary[n, i, here])
            for slot in range(indptr[i], indptr[i + 1]):
                if ends[slot] != 0:
                    continue
                there = labels[n, neighbour[slot]]
                e_features, e_tables = (edges[slot] if many_features else 0), (edges[slot] if many_tables else 0)
                if not potts:
                    for f in range(features.shape[2]):
                        total += features[n_features, e_features, f] * tables[n_tables, e_tables, f, here, there]
                elif here == there:
                    total += features[n_features, e_features, 0]
            terms[n, i] = total
