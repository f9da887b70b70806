"""Message passing in the log domain, for scores of any range: each visited site updates its outgoing messages."""

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
    """Visit positions begin..stop of ``order`` in images lo..hi, except images in the linear domain.

    ``messages`` (N, 2E, L) are updated in place.  ``dirty`` (N, S) marks sites whose incoming messages changed since
    they last sent; only these are visited.  Sites of one colour class may be visited in parallel.

    ``rho`` (E,) are the appearances (see `messages`), and ``damping`` is the weight of the old message.  A message is
    stored only if an entry moves by more than the tolerance, so repeated small changes are not lost.
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
    """Visit sites of one image; ``unary`` (S, L) may be perturbed.  Return the number of changed messages."""
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
