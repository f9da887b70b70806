"""log Z of spanning forests under reparametrised scores; their mean is the tree-reweighted bound.

Messages M and edge appearance probabilities ρ_e (the fraction of forests that contain e) rewrite the score of any
labelling::

    θ(y) = Σ_i θ^_i(y_i) + Σ_e ρ_e θ^_e(y_i, y_j),    θ^_i = unary_i + Σ_k ρ_ki M_ki,    θ^_e = θ_e / ρ_e - M_ji - M_ij

So θ is the mean of ``θ_T = Σ_i θ^_i + Σ_(e in T) θ^_e`` over the forests T_1..T_K.  Because log Z is convex,
``log Z(θ) <= mean of log Z(θ_T)``.  Likewise ``max θ <= mean of max θ_T``, which ``maximise`` selects.  Both hold for
any messages, converged or not.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.reference.messages import belief, cavity, directed_table, log_sum, send


def forest_log_partitions(
    model: Model,
    messages: Array,
    rho: Array,
    orders: Array,
    parents: Array,
    values: Array,
    maximise: bool,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Fill ``values[n, t]`` (N, K) for images lo..hi and forests begin..stop.

    ``orders`` (K, S) lists parents before children.  ``parents`` (K, S) holds the index of each site's parent in
    ``model.neighbour``, or -1 at a root.
    """
    for n in range(lo, hi):
        for t in range(begin, stop):
            whole = np.stack([belief(model, model.unary[n], messages[n], rho, i) for i in range(model.unary.shape[1])])
            values[n, t] = 0.0
            for i in orders[t, ::-1]:
                slot = parents[t, i]
                if slot < 0:
                    values[n, t] += whole[i].max() if maximise else log_sum(whole[i])
                    continue
                up = model.neighbour[slot]
                table = directed_table(model, n, slot, rho)
                fresh, taken = send(cavity(whole[i], messages[n, slot]), table, maximise)
                values[n, t] += taken
                whole[up] += cavity(fresh, messages[n, model.reverse[slot]])
