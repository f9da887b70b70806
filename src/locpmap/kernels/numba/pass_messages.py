"""Numba version of `reference.pass_messages`: log domain.  A sweep reads and writes 2E·L values of 8 bytes."""

import numpy as np

from locpmap.kernels.numba.bits import all_zero
from locpmap.kernels.numba.compiling import allocating, kernel
from locpmap.kernels.numba.edge_scores import potts_weight
from locpmap.kernels.numba.messages import fill_table, mix, send_potts, send_table


@kernel
def pass_messages(model, order, messages, dirty, linear, rho, maximise, damping, tolerance, lo, hi, begin, stop):
    """Visit positions begin..stop of ``order`` in images lo..hi, except images in the linear domain."""
    for n in range(lo, hi):
        if not (linear[n] or all_zero(dirty[n])):
            sites = order[begin:stop]
            visit(model, n, model.unary[n], sites, messages[n], dirty[n], rho, maximise, damping, tolerance)


@allocating
def visit(model, n, unary, sites, messages, dirty, rho, maximise, damping, tolerance):
    """Update outgoing messages (2E, L) of the dirty sites of one image; return the number of changed messages."""
    potts, features, tables = model.potts, model.features, model.tables
    indptr, neighbour, edges, ends, reverse = model.indptr, model.neighbour, model.edge, model.end, model.reverse
    n_labels = unary.shape[1]
    belief, cavity, fresh = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    table = np.empty((n_labels, n_labels))
    changes = 0
    for i in sites:
        if dirty[i] == 0:
            continue
        first_visit = dirty[i] > 1
        dirty[i] = 0
        for k in range(n_labels):
            belief[k] = unary[i, k]
        for slot in range(indptr[i], indptr[i + 1]):
            share = rho[edges[slot]]
            for k in range(n_labels):
                belief[k] += share * messages[slot, k]
        for slot in range(indptr[i], indptr[i + 1]):
            edge, back = edges[slot], reverse[slot]
            for k in range(n_labels):
                # A label forbidden by this neighbour is compatible only with labels that are forbidden there.
                cavity[k] = belief[k] - messages[slot, k] if messages[slot, k] > -np.inf else -np.inf
            if potts:
                send_potts(fresh, cavity, potts_weight(features, n, edge) / rho[edge], maximise)
            else:
                fill_table(table, features, tables, n, edge, ends[slot], 1 / rho[edge])
                send_table(fresh, cavity, table, maximise)
            if damping > 0:
                for k in range(n_labels):
                    fresh[k] = mix(messages[back, k], fresh[k], damping, maximise)
            moved = 0
            for k in range(n_labels):
                moved += abs(fresh[k] - messages[back, k]) > tolerance
            if moved or first_visit:
                changes += 1
                dirty[neighbour[slot]] |= 1
                for k in range(n_labels):
                    messages[back, k] = fresh[k]
    return changes
