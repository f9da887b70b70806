"""Numba version of `reference.forest_log_partitions`: log Z or best scores of forests.  Memory per call: S·L values."""

import numpy as np

from locpmap.kernels.numba.compiling import kernel
from locpmap.kernels.numba.edge_scores import potts_weight
from locpmap.kernels.numba.messages import fill_table, log_sum, send_potts, send_table


@kernel
def forest_log_partitions(model, messages, rho, orders, parents, values, maximise, lo, hi, begin, stop):
    """Fill ``values[n, t]`` (N, K) for images lo..hi and forests begin..stop."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    indptr, neighbour, edges, ends, reverse = model.indptr, model.neighbour, model.edge, model.end, model.reverse
    n_sites, n_labels = unary.shape[1], unary.shape[2]
    whole = np.empty((n_sites, n_labels))
    cavity, fresh, table = np.empty(n_labels), np.empty(n_labels), np.empty((n_labels, n_labels))
    for n in range(lo, hi):
        for t in range(begin, stop):
            for i in range(n_sites):
                for k in range(n_labels):
                    whole[i, k] = unary[n, i, k]
                for slot in range(indptr[i], indptr[i + 1]):
                    for k in range(n_labels):
                        whole[i, k] += rho[edges[slot]] * messages[n, slot, k]
            total = 0.0
            for position in range(n_sites - 1, -1, -1):
                i = orders[t, position]
                slot = parents[t, i]
                if slot < 0:
                    total += whole[i].max() if maximise else log_sum(whole[i])
                    continue
                up, back, edge = neighbour[slot], reverse[slot], edges[slot]
                for k in range(n_labels):
                    cavity[k] = whole[i, k] - messages[n, slot, k] if messages[n, slot, k] > -np.inf else -np.inf
                if potts:
                    total += send_potts(fresh, cavity, potts_weight(features, n, edge) / rho[edge], maximise)
                else:
                    fill_table(table, features, tables, n, edge, ends[slot], 1 / rho[edge])
                    total += send_table(fresh, cavity, table, maximise)
                for k in range(n_labels):
                    forbidden = messages[n, back, k] == -np.inf
                    whole[up, k] += -np.inf if forbidden else fresh[k] - messages[n, back, k]
            values[n, t] = total
