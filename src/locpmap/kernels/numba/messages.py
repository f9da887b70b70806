"""Numba version of `reference.messages`: messages along an edge, on rows (L,)."""

import math

import numpy as np
from numba import njit

from locpmap.kernels.numba.compiling import inner
from locpmap.kernels.numba.edge_scores import table_score

_inf = np.inf
_FAR = 500.0  # exp(-weight) is a normal number for Potts weights up to this


@inner
def log_add(a, b):
    """Return ``log(exp a + exp b)``."""
    high, low = max(a, b), min(a, b)
    return high if low == -_inf else high + math.log1p(math.exp(low - high))


@inner
def log_sum(row):
    """Return ``log Σ exp row``; -inf if every entry is -inf."""
    top = row[0]
    for k in range(1, len(row)):
        top = max(top, row[k])
    if top == -_inf:
        return top
    total = 0.0
    for k in range(len(row)):
        total += math.exp(row[k] - top)
    return top + math.log(total)


@njit(inline="always", error_model="numpy")
def fill_table(table, features, tables, n, edge, end, scale):
    """Fill ``table[label at the sender, label at the receiver]`` with the scores of an edge times ``scale``."""
    for a in range(len(table)):
        for b in range(len(table)):
            table[a, b] = scale * table_score(features, tables, n, edge, end, a, b)


@inner
def send_table(out, cavity, table, maximise):
    """Compute the message of a cavity through a table; return the constant subtracted to normalise it."""
    shift = -_inf
    for a in range(len(out)):
        for b in range(len(out)):
            shift = max(shift, table[a, b])
    shift = shift if shift > -_inf else 0.0
    if maximise:
        total = cavity[0]
        for a in range(1, len(out)):
            total = max(total, cavity[a])
    else:
        total = log_sum(cavity)
    if total == -_inf:
        out[:] = 0.0
        return -_inf
    for b in range(len(out)):
        top = -_inf
        for a in range(len(out)):
            top = max(top, cavity[a] + table[a, b])
        if not maximise and top > -_inf:
            terms = 0.0
            for a in range(len(out)):
                terms += math.exp(cavity[a] + table[a, b] - top)
            top += math.log(terms)
        out[b] = top - total - shift
    return total + shift


@njit(inline="always", error_model="numpy")
def send_potts(out, cavity, weight, maximise):
    """Compute the message through ``weight`` times the identity, in O(L); return as `send_table`."""
    best, top = 0, cavity[0]
    for k in range(1, len(out)):
        if cavity[k] > top:
            best, top = k, cavity[k]
    shift = max(weight, 0.0)
    if top == -_inf:
        out[:] = 0.0
        return -_inf
    if maximise:
        for k in range(len(out)):
            out[k] = max(cavity[k] - top + weight, 0.0) - shift
        if weight < 0:
            second = -_inf
            for k in range(len(out)):
                second = max(second, cavity[k]) if k != best else second
            out[best] = max(second - top, weight)
        return top + shift
    rest = 0.0  # the mass of all labels but the best
    for k in range(len(out)):
        out[k] = math.exp(cavity[k] - top)
        rest += out[k] if k != best else 0.0
    share, total = 1 / (1 + rest), math.log1p(rest)
    if weight < 0:
        for k in range(len(out)):
            out[k] = math.log1p(math.expm1(weight) * share * out[k])
        # If one label has nearly all the mass, the difference above cancels: sum the others' mass instead.
        others = -_inf
        for k in range(len(out)):
            others = log_add(others, cavity[k]) if k != best else others
        out[best] = log_add(others - top, weight) - total
    elif weight <= _FAR:
        differ = math.exp(-weight)
        agree = (1 - differ) * share
        for k in range(len(out)):
            out[k] = math.log(differ + agree * out[k])
    else:
        for k in range(len(out)):
            out[k] = log_add(-weight, cavity[k] - top - total)
    return top + total + shift


@inner
def mix(old, fresh, damping, maximise):
    """Return a damped entry of a message; -inf is not damped."""
    if fresh == -_inf or old == -_inf:
        return fresh
    if maximise:
        return damping * old + (1 - damping) * fresh
    return log_add(math.log(damping) + old, math.log1p(-damping) + fresh)
