"""Sum-product in the linear domain: messages are plain numbers, not logarithms.

A message is ``exp m`` in the notation of `messages`: an average of ``couplings = exp(θ - max θ)``, between
``exp(-range of θ)`` and 1.  A product over a site's edges stays above ``exp(-Σ ranges)``.  The caller guarantees that
this is far from underflow and that no table forbids a pair.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import CHANGED, Model


def pass_linear(
    model: Model,
    order: Array,
    messages: Array,
    dirty: Array,
    linear: Array,
    weights: Array,
    couplings: Array,
    damping: float,
    tolerance: float,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Run `pass_messages` for the images with ``linear[n]``; the tolerance is relative.

    ``weights`` (N, S, L) is ``exp(unary - max unary)``; ``couplings`` is (1|N, 1|E, L, L), or (1|N, 1|E, 1, 2) for
    Potts models (the entries off and on the diagonal).
    """
    for n in range(lo, hi):
        if not linear[n]:
            continue
        tables = couplings[n if len(couplings) > 1 else 0]
        for i in order[begin:stop]:
            if not dirty[n, i]:
                continue
            first_visit = dirty[n, i] > CHANGED
            dirty[n, i] = 0
            slots = range(model.indptr[i], model.indptr[i + 1])
            belief = weights[n, i] * messages[n, slots].prod(axis=0)
            for slot in slots:
                table = tables[model.edge[slot] if len(tables) > 1 else 0]
                if model.potts:
                    table = np.where(np.eye(len(belief), dtype=bool), table[0, 1], table[0, 0])
                cavity = belief / messages[n, slot]
                fresh = cavity / cavity.sum() @ (table.T if model.end[slot] else table)
                old = messages[n, model.reverse[slot]]
                fresh = damping * old + (1 - damping) * fresh
                if first_visit or (np.abs(fresh - old) > tolerance * fresh).any():
                    messages[n, model.reverse[slot]] = fresh
                    dirty[n, model.neighbour[slot]] |= CHANGED
