"""Local scores, one site at a time: the recurrence that every decoder shares.

``local = unary + Σ over neighbours of pairwise(·, neighbour's label)``; then max (ICM), max after noise
(LocPMAP), sample (Gibbs), softmax (mean field, conditional probabilities).
"""

from __future__ import annotations

from numba import njit


@njit(error_model="numpy")
def add_edge(out, model, n, edge, end, label):
    """Add the scores of all labels at one end of an edge, the other end holding ``label``."""
    n_features, e_features = (n if len(model.features) > 1 else 0), (edge if model.features.shape[1] > 1 else 0)
    if model.potts:
        out[label] += model.features[n_features, e_features, 0]
        return
    n_tables, e_tables = (n if len(model.tables) > 1 else 0), (edge if model.tables.shape[1] > 1 else 0)
    for f in range(model.features.shape[2]):
        x = model.features[n_features, e_features, f]
        for k in range(len(out)):
            if end == 0:
                out[k] += x * model.tables[n_tables, e_tables, f, k, label]
            else:
                out[k] += x * model.tables[n_tables, e_tables, f, label, k]


@njit(error_model="numpy")
def add_neighbours(out, model, n, site, y):
    """Add the pairwise scores of all labels of a site against its neighbours' labels ``y`` (S,)."""
    for slot in range(model.indptr[site], model.indptr[site + 1]):
        add_edge(out, model, n, model.edge[slot], model.end[slot], y[model.neighbour[slot]])


@njit(error_model="numpy")
def pair_score(model, n, edge, first, second):
    """The score of one pair of labels on an edge."""
    n_features, e_features = (n if len(model.features) > 1 else 0), (edge if model.features.shape[1] > 1 else 0)
    if model.potts:
        return model.features[n_features, e_features, 0] if first == second else 0.0
    n_tables, e_tables = (n if len(model.tables) > 1 else 0), (edge if model.tables.shape[1] > 1 else 0)
    total = 0.0
    for f in range(model.features.shape[2]):
        total += model.features[n_features, e_features, f] * model.tables[n_tables, e_tables, f, first, second]
    return total


@njit(error_model="numpy")
def best_label(scores, current):
    """The index of the largest score; the current one where it ties, the smallest otherwise."""
    best = 0
    for k in range(1, len(scores)):
        if scores[k] > scores[best]:
            best = k
    return current if scores[current] >= scores[best] else best
