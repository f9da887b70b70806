"""Visit sites in turn and let each send new messages to its neighbours, in logarithms: any range of scores."""

from __future__ import annotations

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import CHANGED, Model
from locpmap.kernels.reference.messages import belief, cavity, directed_table, mix, send


def pass_messages(
    model: Model,
    order: Array,
    messages: Array,
    dirty: Array,
    linear: Array,
    rho: Array,
    maximise: bool,
    damping: float,
    tolerance: float,
    lo: int,
    hi: int,
    begin: int,
    stop: int,
) -> None:
    """Visit positions begin..stop of ``order`` in images lo..hi, except those kept in the linear domain.

    Args:
        model: The model; its colour classes may be visited in parallel.
        order: Sites to visit, (V,).
        messages: (N, 2E, L), changed in place.
        dirty: (N, S) marks of sites whose incoming messages changed since they last sent; only these are visited.
        linear: (N,) images that are not for this kernel.
        rho: (E,) appearance of each edge.
        maximise: Max-product instead of sum-product.
        damping: Share of the old message in the new.
        tolerance: A message no entry of which moves by more than this stays as it is, so that nothing drifts unseen.
        lo: First image.
        hi: Last image, exclusive.
        begin: First position.
        stop: Last position, exclusive.
    """
    for n in range(lo, hi):
        if not linear[n]:
            visit(model, n, model.unary[n], order[begin:stop], messages[n], dirty[n], rho, maximise, damping, tolerance)


def visit(
    model: Model,
    image: int,
    unary: Array,
    sites: Array,
    messages: Array,
    dirty: Array,
    rho: Array,
    maximise: bool,
    damping: float,
    tolerance: float,
) -> int:
    """One image, with unaries (S, L) that may be perturbed; returns how many messages changed."""
    changes = 0
    for i in sites:
        if not dirty[i]:
            continue
        first_visit = dirty[i] > CHANGED
        dirty[i] = 0
        whole = belief(model, unary, messages, rho, i)
        for slot in range(model.indptr[i], model.indptr[i + 1]):
            table = directed_table(model, image, slot, rho)
            fresh, _ = send(cavity(whole, messages[slot]), table, maximise)
            old = messages[model.reverse[slot]]
            fresh = mix(old, fresh, damping, maximise)
            same = fresh == old  # both -inf included
            moved = np.abs(np.where(same, 0, fresh) - np.where(same, 0, old)) > tolerance
            if moved.any() or first_visit:
                messages[model.reverse[slot]] = fresh
                dirty[model.neighbour[slot]] |= CHANGED
                changes += 1
    return changes
