"""Numba version of `reference.score_terms`: the score of a labelling as terms of sites."""

from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.edge_scores import potts_weight, table_score


@kernel
def score_terms(model, labels, terms, lo, hi, begin, stop):
    """Fill ``terms`` (N, S) with each site's unary score plus the scores of the edges whose first end it is."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    order, indptr, neighbour, edges, ends = model.order, model.indptr, model.neighbour, model.edge, model.end
    for n in range(lo, hi):
        for position in range(begin, stop):
            i = order[position]
            here = labels[n, i]
            total = float(unary[n, i, here])
            for slot in range(indptr[i], indptr[i + 1]):
                if ends[slot] != 0:
                    continue
                there = labels[n, neighbour[slot]]
                if not potts:
                    total += table_score(features, tables, n, edges[slot], 0, here, there)
                elif here == there:
                    total += potts_weight(features, n, edges[slot])
            terms[n, i] = total
