"""Messages along an edge: the update of belief propagation, max-product and tree-reweighted message passing.

Notation: site i sends to site j over edge e with table ``θ_e[a, b]`` (a at i, b at j).  The edge appearance
probability ``ρ_e`` is the fraction of spanning forests that contain e (1 in plain belief propagation).  Messages are
logarithms::

    belief_i(a)  = unary_i(a) + Σ_k ρ_ki m_ki(a)          over all neighbours k of i
    cavity_ij(a) = belief_i(a) - m_ji(a)
    m_ij(b)      = log Σ_a q(a) exp(θ_e[a, b] / ρ_e - shift_e),   q ∝ exp cavity_ij,   shift_e = max θ_e / ρ_e

``exp m_ij(b)`` is an average of numbers between ``exp(-range of θ_e / ρ_e)`` and 1, so it stays in that interval for
any model.  Max-product replaces the sum by a maximum:
``m_ij(b) = max_a (cavity_ij(a) + θ_e[a, b]) - max cavity_ij - max θ_e``.

-inf denotes a forbidden label.  If ``m_ji(a)`` is -inf, the cavity is set to -inf too.  This is exact: all labels of j
that are compatible with a are forbidden at j.  The message from i to these labels therefore has no effect.  If the
whole cavity is -inf (the model allows no labelling), the message is 0.
"""

import numpy as np

from locpmap.arrays import Array
from locpmap.kernels.model import Model
from locpmap.kernels.reference.scores import edge_tables


def log_sum(values: Array, axis: int = -1) -> Array:
    """Return ``log Σ exp`` along an axis; -inf if every entry is -inf."""
    return np.logaddexp.reduce(values, axis=axis)


def belief(model: Model, unary: Array, messages: Array, rho: Array, site: int) -> Array:
    """Return the belief (L,) of a site; the message from its neighbour at ``slot`` is ``messages[slot]``, (2E, L)."""
    slots = slice(model.indptr[site], model.indptr[site + 1])
    return unary[site] + (rho[model.edge[slots], None] * messages[slots]).sum(axis=0)


def cavity(belief: Array, message: Array) -> Array:
    """Return a belief without the message of one neighbour."""
    forbidden = np.isneginf(message)
    return np.where(forbidden, -np.inf, belief - np.where(forbidden, 0, message))


def directed_table(model: Model, image: int, slot: int, rho: Array) -> Array:
    """Return ``θ_e / ρ_e`` indexed [label of the site that owns the slot, label of its neighbour]."""
    edge = int(model.edge[slot])
    table = edge_tables(model, image, np.array([edge]))[0] / rho[edge]
    return table.T if model.end[slot] else table


def send(cavity: Array, table: Array, maximise: bool) -> tuple[Array, float]:
    """Return the message (L,) and the constant that was subtracted to normalise it."""
    add = np.maximum if maximise else np.logaddexp
    shift = table.max() if table.max() > -np.inf else 0.0
    total = add.reduce(cavity)
    if total == -np.inf:
        return np.zeros(len(cavity)), -np.inf
    return add.reduce(cavity[:, None] + table, axis=0) - total - shift, float(total + shift)


def mix(old: Array, fresh: Array, damping: float, maximise: bool) -> Array:
    """Return ``damping · old + (1 - damping) · fresh`` of the messages (of their logarithms in max-product).

    Entries that are -inf in either message are not damped: an average with a finite value would never become -inf.
    """
    if damping == 0:
        return fresh
    free = (fresh > -np.inf) & (old > -np.inf)
    old, now = np.where(free, old, 0), np.where(free, fresh, 0)
    if maximise:
        mixed = damping * old + (1 - damping) * now
    else:
        mixed = np.logaddexp(np.log(damping) + old, np.log1p(-damping) + now)
    return np.where(free, mixed, fresh)
