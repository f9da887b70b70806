"""Numba version of `reference.expand`: the optimal move by a minimum cut."""

import numpy as np

from locpmap.kernels.numba.compiling import inner, kernel
from locpmap.kernels.numba.max_flow import SIDE, min_cut

_inf = np.inf


@kernel
def expand(model, labels, alpha, images, gains, lo, hi):
    """Change any sites of ``images[lo:hi]`` to ``alpha``, if this improves the score; fill ``gains``."""
    unary, potts, features, tables = model.unary, model.potts, model.features, model.tables
    indptr, neighbour, edges, ends, reverse = model.indptr, model.neighbour, model.edge, model.end, model.reverse
    n_sites = unary.shape[1]
    capacity, excess = np.empty(len(neighbour)), np.empty(n_sites)
    tree = np.empty((n_sites, 5), np.int32)
    waiting, orphans = np.empty(n_sites + 2, np.int32), np.empty(n_sites + 2, np.int32)
    for k in range(lo, hi):
        n = images[k]
        y = labels[n]
        own = unary[n]
        forbids = False
        for i in range(n_sites):
            forbids |= own[i, alpha] == -_inf or own[i, y[i]] == -_inf
            excess[i] = float(own[i, alpha]) - own[i, y[i]]
        for i in range(n_sites):
            for slot in range(indptr[i], indptr[i + 1]):
                if ends[slot] == 0:
                    j = neighbour[slot]
                    scores = move_scores(potts, features, tables, n, edges[slot], y[i], y[j], alpha)
                    if forbids:
                        scores = allowed(own, i, j, y[i], y[j], alpha, *scores)
                    first, second, ahead, back = link(*scores)
                    excess[i] += first
                    excess[j] += second
                    capacity[slot], capacity[reverse[slot]] = ahead, back
        min_cut(indptr, neighbour, reverse, capacity, excess, tree, waiting, orphans)
        gain, was_allowed, is_allowed = 0.0, True, True  # only changes are added: the rest may be too large to see them
        for i in range(n_sites):
            changed = tree[i, SIDE] > 0
            was_allowed &= own[i, y[i]] > -_inf
            is_allowed &= own[i, alpha if changed else y[i]] > -_inf
            if changed:
                gain += float(own[i, alpha]) - own[i, y[i]]
            for slot in range(indptr[i], indptr[i + 1]):
                if ends[slot] == 0:
                    j = neighbour[slot]
                    s00, s01, s10, s11 = move_scores(potts, features, tables, n, edges[slot], y[i], y[j], alpha)
                    score = s00
                    if changed:
                        score = s11 if tree[j, SIDE] > 0 else s10
                    elif tree[j, SIDE] > 0:
                        score = s01
                    was_allowed &= s00 > -_inf
                    is_allowed &= score > -_inf
                    gain += score - s00
        gains[k] = np.nan if not is_allowed else _inf if not was_allowed else max(gain, 0.0)
        if gains[k] > 0:
            for i in range(n_sites):
                if tree[i, SIDE] > 0:
                    y[i] = alpha


@inner
def move_scores(potts, features, tables, n, edge, y, z, alpha):
    """Return the scores of an edge if its ends keep labels y and z (0) or change to alpha (1), for 00, 01, 10, 11."""
    n_features, e_features = (n if len(features) > 1 else 0), (edge if features.shape[1] > 1 else 0)
    if potts:
        w = features[n_features, e_features, 0]
        return w if y == z else 0.0, w if y == alpha else 0.0, w if z == alpha else 0.0, w
    n_tables, e_tables = (n if len(tables) > 1 else 0), (edge if tables.shape[1] > 1 else 0)
    s00 = s01 = s10 = s11 = 0.0
    for f in range(features.shape[2]):
        w = features[n_features, e_features, f]
        s00 += w * tables[n_tables, e_tables, f, y, z]
        s01 += w * tables[n_tables, e_tables, f, y, alpha]
        s10 += w * tables[n_tables, e_tables, f, alpha, z]
        s11 += w * tables[n_tables, e_tables, f, alpha, alpha]
    return s00, s01, s10, s11


@inner
def allowed(unary, i, j, y, z, alpha, s00, s01, s10, s11):
    """Return the scores with -inf where a unary forbids the label of an end."""
    if unary[i, y] == -_inf:
        s00 = s01 = -_inf
    if unary[i, alpha] == -_inf:
        s10 = s11 = -_inf
    if unary[j, z] == -_inf:
        s00 = s10 = -_inf
    if unary[j, alpha] == -_inf:
        s01 = s11 = -_inf
    return s00, s01, s10, s11


@inner
def link(s00, s01, s10, s11):
    """Convert an attractive table to biases of both ends, and to capacities; see `reference.expand`."""
    if s00 > -_inf and s01 > -_inf and s10 > -_inf and s11 > -_inf:
        half = (s00 + s11 - s01 - s10) / 2
        half = half if half > 0 else 0.0
        return (s10 + s11 - s00 - s01) / 2, (s01 + s11 - s00 - s10) / 2, half, half
    ok00, ok01, ok10, ok11 = s00 > -_inf, s01 > -_inf, s10 > -_inf, s11 > -_inf
    first = s10 - s00 if ok00 and ok10 else s11 - s01 if ok01 and ok11 else s11 - s00 if ok00 and ok11 else 0.0
    second = s01 - s00 if ok00 and ok01 else s11 - s10 if ok10 and ok11 else 0.0
    first += (0.0 if ok00 or ok01 else _inf) - (0.0 if ok10 or ok11 else _inf)
    second += (0.0 if ok00 or ok10 else _inf) - (0.0 if ok01 or ok11 else _inf)
    return first, second, 0.0 if ok10 else _inf, 0.0 if ok01 else _inf
