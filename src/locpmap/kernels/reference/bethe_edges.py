"""The terms of edges in the Bethe approximation of log Z.

Normalised beliefs are ``b_i = exp(belief_i) / Z_i``; messages m and cavities are defined in `messages`::

    log Z ≈ Σ_i log Z_i + Σ_e log Σ_ab  exp(cavity_ij(a) + θ_e[a, b] + cavity_ji(b)),   cavity_ij = log b_i - m_ji

The value does not depend on the scale of a message.  At a fixed point on a tree it equals log Z.
"""

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.reference.messages import cavity, log_sum
from locpmap.kernels.reference.scores import edge_tables


def bethe_edges(
    model: Model, messages: Array, beliefs: Array, terms: Array, lo: int, hi: int, begin: int, stop: int
) -> None:
    """Fill ``terms`` (N, S) with the sums of the edges whose first end is the site; ``beliefs`` (N, S, L) are log b."""
    for n in range(lo, hi):
        for i in model.order[begin:stop]:
            terms[n, i] = 0.0
            for slot in range(model.indptr[i], model.indptr[i + 1]):
                if model.end[slot] == 0:
                    here = cavity(beliefs[n, i], messages[n, slot])
                    there = cavity(beliefs[n, model.neighbour[slot]], messages[n, model.reverse[slot]])
                    table = edge_tables(model, n, model.edge[slot : slot + 1])[0]
                    terms[n, i] += log_sum((here[:, None] + table + there).ravel())
