"""Numba version of `reference.bethe_edges`: the edge terms of the Bethe approximation of log Z.

The cost per edge is O(L) in a Potts model.
"""

import numpy as np

from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.edge_scores import potts_weight
from locpmap.kernels.numba.messages import fill_table, log_sum, send_potts, send_table


@kernel
def bethe_edges(model, messages, beliefs, terms, lo, hi, begin, stop):
    """Fill ``terms[n, i]``, (N, S), with the sum of the terms of all edges whose first end is site i."""
    potts, features, tables = model.potts, model.features, model.tables
    order, indptr, reverse = model.order, model.indptr, model.reverse
    neighbour, edges, ends = model.neighbour, model.edge, model.end
    n_labels = beliefs.shape[2]
    here, there, table = np.empty(n_labels), np.empty(n_labels), np.empty((n_labels, n_labels))
    for n in range(lo, hi):
        for position in range(begin, stop):
            i = order[position]
            total = 0.0
            for slot in range(indptr[i], indptr[i + 1]):
                if ends[slot] != 0:
                    continue
                j, back, edge = neighbour[slot], reverse[slot], edges[slot]
                for k in range(n_labels):
                    here[k] = beliefs[n, i, k] - messages[n, slot, k] if messages[n, slot, k] > -np.inf else -np.inf
                if potts:
                    taken = send_potts(there, here, potts_weight(features, n, edge), False)
                else:
                    fill_table(table, features, tables, n, edge, 0, 1.0)
                    taken = send_table(there, here, table, False)
                for k in range(n_labels):
                    forbidden = messages[n, back, k] == -np.inf
                    there[k] = -np.inf if forbidden else there[k] + beliefs[n, j, k] - messages[n, back, k]
                total += taken + log_sum(there)
            terms[n, i] = total
