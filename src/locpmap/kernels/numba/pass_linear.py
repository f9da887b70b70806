"""Numba version of `reference.pass_linear`: sum-product in the linear domain, without exponentials or logarithms."""

import numpy as np

from locpmap.kernels.numba.bits import all_zero
from locpmap.kernels.numba.compiling import kernel


@kernel
def pass_linear(model, order, messages, dirty, linear, weights, couplings, damping, tolerance, lo, hi, begin, stop):
    """Visit positions begin..stop of ``order`` in the images of lo..hi that are in the linear domain."""
    potts, indptr, neighbour = model.potts, model.indptr, model.neighbour
    edges, ends, reverse = model.edge, model.end, model.reverse
    n_labels = weights.shape[2]
    belief, cavity, fresh = np.empty(n_labels), np.empty(n_labels), np.empty(n_labels)
    many_images, many_edges = len(couplings) > 1, couplings.shape[1] > 1
    for n in range(lo, hi):
        if not linear[n] or all_zero(dirty[n]):
            continue
        c = n if many_images else 0
        for position in range(begin, stop):
            i = order[position]
            if dirty[n, i] == 0:
                continue
            first_visit = dirty[n, i] > 1
            dirty[n, i] = 0
            for k in range(n_labels):
                belief[k] = weights[n, i, k]
            for slot in range(indptr[i], indptr[i + 1]):
                for k in range(n_labels):
                    belief[k] *= messages[n, slot, k]
            for slot in range(indptr[i], indptr[i + 1]):
                edge, back = (edges[slot] if many_edges else 0), reverse[slot]
                for k in range(n_labels):
                    cavity[k] = belief[k] / messages[n, slot, k]
                total = 0.0
                for k in range(n_labels):
                    total += cavity[k]
                scale = 1 / total
                if potts:
                    differ, agree = couplings[c, edge, 0, 0], couplings[c, edge, 0, 1]
                    gain = (agree - differ) * scale
                    for k in range(n_labels):
                        fresh[k] = differ + gain * cavity[k]
                    if gain < 0:
                        # Negative weight: if one label has nearly all the mass, the difference above cancels.
                        best, rest = 0, 0.0
                        for k in range(1, n_labels):
                            best = k if cavity[k] > cavity[best] else best
                        for k in range(n_labels):
                            rest += cavity[k] if k != best else 0.0
                        fresh[best] = (differ * rest + agree * cavity[best]) * scale
                else:
                    fresh[:] = 0.0
                    for a in range(n_labels):
                        mass = cavity[a] * scale
                        for k in range(n_labels):
                            first, second = (a, k) if ends[slot] == 0 else (k, a)
                            fresh[k] += mass * couplings[c, edge, first, second]
                moved = 0
                for k in range(n_labels):
                    fresh[k] += damping * (messages[n, back, k] - fresh[k])
                    moved += abs(fresh[k] - messages[n, back, k]) > tolerance * fresh[k]
                if moved or first_visit:
                    dirty[n, neighbour[slot]] |= 1
                    for k in range(n_labels):
                        messages[n, back, k] = fresh[k]
