"""The score of a pair of labels on an edge, from plain arrays.

Kernels take the model apart before their loops and hand on only what is needed: a structure of arrays handed to a
function has all its reference counts touched, by every thread, at every call, which costs ten times the arithmetic.
"""

from __future__ import annotations

from numba import njit


@njit(inline="always", error_model="numpy")
def potts_weight(features, n, edge):
    """The score of equal labels in a Potts model."""
    return features[n if len(features) > 1 else 0, edge if features.shape[1] > 1 else 0, 0]


@njit(inline="always", error_model="numpy")
def table_score(features, tables, n, edge, end, here, there):
    """The score of label ``here`` at one end of an edge (0 or 1) and ``there`` at the other, in any other model."""
    n_features, e_features = (n if len(features) > 1 else 0), (edge if features.shape[1] > 1 else 0)
    n_tables, e_tables = (n if len(tables) > 1 else 0), (edge if tables.shape[1] > 1 else 0)
    first, second = (here, there) if end == 0 else (there, here)
    total = 0.0
    for f in range(features.shape[2]):
        total += features[n_features, e_features, f] * tables[n_tables, e_tables, f, first, second]
    return total
